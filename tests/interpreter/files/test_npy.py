"""Headers of .npy files: NumPy's own are read, and nothing is evaluated or unpickled."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.files.describe import describe
from tensord.interpreter.files.header import Format
from tensord.interpreter.files.npy import ARRAY_NAME
from tensord.interpreter.files.values import read_array
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from .sound_files import npy, npy_of, opened

KINDS = st.sampled_from(list(DTYPES.values()))
ARRAYS = hnp.arrays(KINDS, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"


@given(ARRAYS, st.sampled_from("<>"), st.booleans(), st.sampled_from([(1, 0), (2, 0), (3, 0)]))
@pytest.mark.filterwarnings("ignore:Stored array in format")
def test_what_numpy_writes_is_read_in_c_order_and_our_byte_order(array, order, fortran, version):
    stored = np.array(array, array.dtype.newbyteorder(order), order="F" if fortran else "C")
    with opened(npy(stored, version)) as file:
        header = describe(file)
        assert (header.format, list(header.entries), header.metadata) == (Format.NPY, [ARRAY_NAME], {})
        entry = header.entry(ARRAY_NAME)
        assert entry.meta is Meta.of(array.shape, array.dtype)
        read = read_array(file, entry)
    assert read.flags.c_contiguous
    assert read.dtype == array.dtype
    assert read.tobytes() == np.ascontiguousarray(array).tobytes()


def test_an_array_of_one_dimension_is_direct_in_either_order():
    header = GOOD.replace("False", "True")
    with opened(npy_of(header, bytes(8))) as file:
        assert describe(file).entry(ARRAY_NAME).is_direct


HOSTILE = {
    "cut in its magic": (b"\x93NUMPY", "has an unknown version: it ends before that"),
    "version 4": (npy_of(GOOD, bytes(8), version=4), r"has an unknown version: 4\.0"),
    "version 1.1": (b"\x93NUMPY\x01\x01" + bytes(100), r"has an unknown version: 1\.1"),
    "cut in its length": (b"\x93NUMPY\x02\x00\x10", "ends in its header"),
    "a header beyond the end": (npy_of(GOOD)[:30], "bytes, beyond its end"),
    "a header of 4 GiB": (b"\x93NUMPY\x02\x00" + b"\xff" * 4, "its header has 4294967295 bytes; at most 10000"),
    "a header beyond NumPy's limit": (npy_of(GOOD + " " * 10_000, version=2), "at most 10000 are read"),
    "an empty header": (npy_of(""), "not a plain literal"),
    "bytes that are no UTF-8": (npy_of(b"{'\xff'}", version=3), "'utf-8' codec can't decode"),
    "a call": (npy_of("__import__('os').system('true')"), "not a plain literal"),
    "a comprehension": (npy_of("{a: 1 for a in 'bc'}"), "not a plain literal"),
    "an attribute": (npy_of("{'descr': ''.x}"), "not a plain literal"),
    "a sum": (npy_of(GOOD.replace("2", "1+1"), bytes(8)), "not a plain literal"),
    "a repeated text": (npy_of(GOOD.replace("2", "'a'*999999999"), bytes(8)), "not a plain literal"),
    "a power": (npy_of(GOOD.replace("2", "9**9"), bytes(8)), "not a plain literal"),
    "many signs": (npy_of(GOOD.replace("2", "-" * 9000 + "2"), bytes(8)), "not a plain literal"),
    "a negative dimension": (npy_of(GOOD.replace("2", "-2"), bytes(8)), "not a plain literal"),
    "a dimension with a fraction": (npy_of(GOOD.replace("2", "2.0"), bytes(8)), "not a plain literal"),
    "a long of Python 2": (npy_of(GOOD.replace("2", "2L"), bytes(8)), "not a plain literal"),
    "a comment": (npy_of("# x\n" + GOOD, bytes(8)), "not a plain literal"),
    "an escape": (npy_of(GOOD.replace("<f4", r"\x3cf4"), bytes(8)), "not a plain literal"),
    "an f-string": (npy_of(GOOD.replace("'<f4'", "f'<f4'"), bytes(8)), "not a plain literal"),
    "two literals": (npy_of("{} {}"), "not a plain literal"),
    "open brackets": (npy_of("(" * 9000), "not a plain literal"),
    "deep brackets": (npy_of("[" * 4000 + "]" * 4000), "not a plain literal"),
    "a NUL": (npy_of(GOOD + "\0"), "not a plain literal"),
    "a list": (npy_of("['descr', 'fortran_order', 'shape']"), "not a dict of descr, fortran_order, shape"),
    "a field too few": (npy_of("{'descr': '<f4', 'shape': (2,)}"), "not a dict of descr, fortran_order, shape"),
    "a field too many": (npy_of(GOOD.replace("}", "'x': 1}")), "not a dict of descr, fortran_order, shape"),
    "a field twice": (npy_of(GOOD.replace("}", "'shape': (2,)}")), "not a dict of descr, fortran_order, shape"),
    "a field that is a list": (npy_of("{[]: 1, 'shape': 2, 'descr': 3}"), "not a dict of descr, fortran_order, shape"),
    "a shape that is a number": (npy_of(GOOD.replace("(2,)", "(2)"), bytes(8)), "its shape is not a tuple"),
    "a shape that is a list": (npy_of(GOOD.replace("(2,)", "[2]"), bytes(8)), "its shape is not a tuple"),
    "a dimension that is true": (npy_of(GOOD.replace("2", "True"), bytes(4)), "its shape is not a tuple"),
    "a dimension that is a text": (npy_of(GOOD.replace("2", "'2'"), bytes(8)), "its shape is not a tuple"),
    "a huge dimension": (npy_of(GOOD.replace("2", str(2**63)), bytes(8)), "its shape is not a tuple"),
    "65 dimensions": (npy_of(GOOD.replace("2,", "1," * 65), bytes(4)), "its shape is not a tuple of at most 64"),
    "an order that is a number": (npy_of(GOOD.replace("False", "0"), bytes(8)), "neither True nor False"),
    "a product that overflows": (npy_of(GOOD.replace("2,", "4294967297,4294967296")), "0 bytes do not make a <f4"),
    "one that overflows beside a zero": (npy_of(GOOD.replace("2,", f"{2**62},4,0")), "too large for any memory"),
    "a dtype that is none": (npy_of(GOOD.replace("<f4", "f4,f4"), bytes(16)), "NumPy has no dtype 'f4,f4'"),
    "a dtype without an order": (npy_of(GOOD.replace("<f4", "f4"), bytes(8)), "NumPy has no dtype 'f4'"),
    "a dtype of a billion bytes": (npy_of(GOOD.replace("<f4", "|V9999999999"), bytes(8)), "NumPy has no dtype"),
    "a size that its dtype contradicts": (
        npy_of(GOOD.replace("<f4", "<f3"), bytes(8)),
        r"8 bytes do not make a <f3\[2\]",
    ),
    "bytes too few": (npy_of(GOOD, bytes(7)), r"7 bytes do not make a <f4\[2\]"),
    "bytes behind": (npy_of(GOOD, bytes(9)), r"9 bytes do not make a <f4\[2\]"),
}


@each_case("case", HOSTILE)
def test_a_malformed_header_is_refused_with_a_sentence(case):
    content, text = HOSTILE[case]
    with opened(content, "w.npy") as file, pytest.raises(MetadataError, match=text) as caught:
        describe(file)
    assert caught.value.message.startswith("w.npy: array 'array': ")
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()


class Trap:
    def __reduce__(self):
        raise AssertionError("nobody pickles this here")


OBJECTS = npy_of(GOOD.replace("<f4", "|O"), b"cos\nsystem\n(S'false'\ntR.")


@pytest.mark.parametrize("raw", [False, True])
def test_objects_are_never_read(raw):
    with opened(OBJECTS, "w.npy") as file:
        header = describe(file, raw=raw)
        with pytest.raises(
            MetadataError, match=r"w\.npy: tensor 'array' holds Python objects, whose pickles could run any"
        ):
            header.entry(ARRAY_NAME)
        with pytest.raises(MetadataError, match="holds Python objects"):
            read_array(file, header.entries[ARRAY_NAME])


def test_a_pickle_is_no_file_of_tensors():
    with (
        opened(b"\x80\x04N.", "w.npy") as file,
        pytest.raises(MetadataError, match=r"w\.npy: is a pickle, which could run"),
    ):
        describe(file)


@each_case(
    ("array", "why", "raw"),
    [
        (np.zeros(2, [("a", "i4"), ("b", "f8", (3,))]), "array of records", None),
        (np.array(["ab", "c"]), "is <U2", "uint8[16]"),
        (np.array([b"ab", b"c"]), r"is \|S2", "uint8[4]"),
        (np.array([dt.date(2000, 1, 1)], "M8[D]"), r"is <M8\[D\]", "uint64[1]"),
        (np.array([b"ab", b"cd"], "V2"), r"is \|V2", "uint16[2]"),  # how bfloat16 of ml_dtypes is saved
        (np.array([b"a"], "V1"), r"is \|V1", "uint8[1]"),
        (np.array([b"abc"], "V3"), r"is \|V3", "uint8[3]"),
        (np.zeros((2, 0), "U3"), "is <U3", "uint8[0]"),
        (np.zeros(3, np.longdouble), "is <f16", "uint8[48]"),
    ],
)
def test_a_dtype_that_tensord_has_not_is_an_error_when_it_is_asked_for_or_raw_bits(array, why, raw):
    with opened(npy(array)) as file:
        with pytest.raises(MetadataError, match=f"tensor 'array' .*{why}"):
            describe(file).entry(ARRAY_NAME)
        header = describe(file, raw=True)
        if raw is None:
            with pytest.raises(MetadataError, match=why):
                header.entry(ARRAY_NAME)
        else:
            assert repr(header.entry(ARRAY_NAME).meta) == raw
            assert read_array(file, header.entry(ARRAY_NAME)).tobytes() == array.tobytes()


def test_raw_bits_of_the_other_byte_order_are_turned():
    with opened(npy(np.array([1], ">M8[s]"))) as file:
        assert read_array(file, describe(file, raw=True).entry(ARRAY_NAME)).tolist() == [1]
