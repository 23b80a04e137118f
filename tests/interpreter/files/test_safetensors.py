"""Headers of safetensors files: valid ones are read, and each violation of the format is named."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import SafetensorError
from safetensors import numpy as reference

from tensord.interpreter.errors import MetadataError, MetadataKeyError, QuotaError
from tensord.interpreter.files.describe import describe
from tensord.interpreter.files.header import FileLimits, Format
from tensord.interpreter.files.safetensors import DTYPES, read_safetensors
from tensord.interpreter.files.values import read_array
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from .sound_files import opened, safetensors, tensor

F = tensor("F32", [2], 0, 8)
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=8)
ARRAYS = hnp.arrays(
    st.sampled_from([np.dtype(name) for name in DTYPES.values()]), hnp.array_shapes(min_dims=0, min_side=0)
)


@given(
    st.dictionaries(NAMES, ARRAYS, max_size=6),
    st.dictionaries(NAMES, st.text(st.characters(codec="utf-8")), max_size=3),
)
def test_what_the_package_writes_is_read_bit_for_bit(arrays, metadata):
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    with opened(reference.save(arrays, metadata or None)) as file:
        header = describe(file)
        assert (header.format, header.metadata) == (Format.SAFETENSORS, metadata)
        assert set(header.entries) == set(arrays)
        for name, array in arrays.items():
            entry = header.entry(name)
            assert entry.meta is Meta.of(array.shape, array.dtype)
            assert entry.is_direct
            assert read_array(file, entry).tobytes() == array.tobytes()


def twice(header):
    return json.dumps(header).encode().replace(b"second", b"first")


# name: (content, the error's text); LENIENT names the files that the package reads all the same.
HOSTILE = {
    "empty": (b"", "begins with b'' and is of no known format"),
    "cut in its length": (b"\x08\0\0", "is of no known format"),
    "a header beyond the end": (safetensors({"a": F}, bytes(8))[:30], "beyond its end; was it cut short"),
    "a header beyond all limits": (b"\xff" * 8 + b"{}", "the format allows 100000000"),
    "an empty header": (bytes(8), "of no known format"),
    "space in front": (safetensors(b' {"a":1}'), "of no known format"),
    "a list": (safetensors(b"[1]"), "of no known format"),
    "padding that is no space": (safetensors(b"{}\n\n"), "does not begin with { and end with }, or spaces"),
    "padding with zeros": (safetensors(b"{}\0\0"), "does not begin with { and end with }, or spaces"),
    "no JSON": (safetensors(b"{'a': 1}"), "not valid JSON text"),
    "two objects": (safetensors(b"{}{}"), "not valid JSON text: Extra data"),
    "bytes that are no UTF-8": (safetensors(b'{"\xff":1}'), "not valid JSON text: 'utf-8'"),
    "UTF-16 in disguise": (
        safetensors('{"\ud800":1}'.encode("utf-8", "surrogatepass")),
        "not valid JSON text: 'utf-8'",
    ),
    "nested deeply": (safetensors(b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b"}"), "nested too deeply"),
    "objects nested deeply": (safetensors(b'{"a":' * 90_000 + b"1" + b"}" * 90_000), "nested too deeply"),
    "a name twice": (safetensors(twice({"first": F, "second": F}), bytes(8)), "'first' occurs twice"),
    "a field twice": (
        safetensors(json.dumps({"a": {"shape ": 0, **F}}).replace("shape ", "shape").encode(), bytes(8)),
        "'shape' occurs twice",
    ),
    "metadata that are no texts": (safetensors({"__metadata__": {"a": 1}}), "__metadata__ is not an object of texts"),
    "metadata that are a list": (safetensors({"__metadata__": ["a"]}), "__metadata__ is not an object of texts"),
    "half a character": (safetensors({"__metadata__": {"a": "\ud800"}}), "__metadata__ holds half a character"),
    "a tensor that is a number": (safetensors({"a": 1}), "'a': a tensor is described by an object"),
    "a field too few": (safetensors({"a": {"dtype": "F32", "shape": []}}), "'a': a tensor is described by an object"),
    "a field too many": (safetensors({"a": {**F, "x": 1}}, bytes(8)), "'a': a tensor is described by an object"),
    "a name that is not printable": (safetensors({"a\nb": F}, bytes(8)), r"printable text, and 'a\\nb' is not"),
    "a name that is empty": (safetensors({" ": F}, bytes(8)), "printable text, and ' ' is not"),
    "a dtype that is a list": (safetensors({"a": tensor(["F32"], [2], 0, 8)}, bytes(8)), "its dtype is not a name"),  # type: ignore[arg-type]
    "a dtype that is a novel": (safetensors({"a": tensor("F" * 999, [2], 0, 8)}, bytes(8)), "its dtype is not a name"),
    "a shape that is a number": (safetensors({"a": tensor("F32", 2, 0, 8)}, bytes(8)), "its shape is not a list"),
    "65 dimensions": (safetensors({"a": tensor("F32", [1] * 65, 0, 4)}, bytes(4)), "not a list of 0 to 64 numbers"),
    "a negative dimension": (safetensors({"a": tensor("F32", [-1, -2], 0, 8)}, bytes(8)), "else than whole numbers"),
    "a dimension that is true": (safetensors({"a": tensor("F32", [True, 2], 0, 8)}, bytes(8)), "else than whole num"),
    "a dimension with a fraction": (
        safetensors({"a": tensor("F32", [2.0], 0, 8)}, bytes(8)),
        r"2\.0 is not a whole num",
    ),
    "a dimension that is NaN": (
        safetensors({"a": tensor("F32", [float("nan")], 0, 8)}, bytes(8)),
        "NaN is not a whole",
    ),
    "a dimension that is a text": (safetensors({"a": tensor("F32", ["2"], 0, 8)}, bytes(8)), "else than whole numbers"),
    "a huge dimension": (safetensors({"a": tensor("F32", [2**63], 0, 8)}, bytes(8)), "else than whole numbers"),
    "a number of 5000 digits": (
        safetensors(json.dumps({"a": F}).replace("[2]", f"[{'9' * 5000}]").encode(), bytes(8)),
        "not valid JSON text: Exceeds the limit",
    ),
    "a product that overflows": (safetensors({"a": tensor("F32", [2**32, 2**32], 0, 0)}), "too large for any memory"),
    "one that overflows beside a zero": (
        safetensors({"a": tensor("F32", [2**62, 2**62, 0], 0, 0)}),
        "too large for any memory",
    ),
    "one that overflows to what fits": (
        safetensors({"a": tensor("F32", [2**32 + 1, 2**32], 0, 0)}),
        "too large for any memory",
    ),
    "a shape that is too small": (
        safetensors({"a": tensor("F32", [1], 0, 8)}, bytes(8)),
        r"8 bytes do not make a F32\[1\]",
    ),
    "a shape that is too large": (
        safetensors({"a": tensor("F32", [3], 0, 8)}, bytes(8)),
        r"8 bytes do not make a F32\[3\]",
    ),
    "half a byte": (safetensors({"a": tensor("F4", [3], 0, 1)}, bytes(1)), r"1 bytes do not make a F4\[3\]"),
    "a size that other dtypes contradict": (
        safetensors({"a": tensor("BF16", [3], 0, 7)}, bytes(7)),
        "do not make a BF16",
    ),
    "one offset": (safetensors({"a": tensor("F32", [2], 0)}, bytes(8)), "data_offsets is not a list of 2 to 2 numbers"),
    "three offsets": (safetensors({"a": tensor("F32", [2], 0, 8, 8)}, bytes(8)), "data_offsets is not a list of 2"),
    "offsets backwards": (safetensors({"a": tensor("F32", [2], 8, 0)}, bytes(8)), r"data_offsets \[8, 0\] go backw"),
    "a negative offset": (safetensors({"a": tensor("F32", [2], -8, 0)}, bytes(8)), "else than whole numbers"),
    "an offset that is false": (safetensors({"a": tensor("F32", [2], False, 8)}, bytes(8)), "else than whole numbers"),
    "a hole in front": (safetensors({"a": tensor("F32", [2], 8, 16)}, bytes(16)), "'a' leaves a hole before it"),
    "a hole between": (
        safetensors({"a": F, "b": tensor("U8", [1], 9, 10)}, bytes(10)),
        "'b' leaves a hole before it: it begins at 9, not at 8",
    ),
    "an overlap": (
        safetensors({"a": F, "b": tensor("F32", [2], 4, 12)}, bytes(12)),
        "'b' overlaps the one before it: it begins at 4, not at 8",
    ),
    "the same bytes twice": (safetensors({"a": F, "b": F}, bytes(8)), "'b' overlaps the one before it"),
    "bytes behind": (safetensors({"a": F}, bytes(9)), "take 8 bytes and there are 9"),
    "bytes without a tensor": (safetensors({}, bytes(1)), "take 0 bytes and there are 1"),
    "offsets beyond the end": (safetensors({"a": F}, bytes(7)), "take 8 bytes and there are 7; was it cut short"),
}
# Files that the package reads all the same: the format forbids the first two, and tensord has no use for the others.
LENIENT = {
    *("padding that is no space", "a name twice"),
    *("a field too many", "a name that is not printable", "a name that is empty", "65 dimensions"),
}


@each_case("case", HOSTILE)
def test_what_the_format_forbids_is_refused_with_a_sentence(case):
    content, text = HOSTILE[case]
    with opened(content, "w.safetensors") as file, pytest.raises(MetadataError, match=text) as caught:
        describe(file)
    assert caught.value.message.startswith("w.safetensors: ")
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()


@each_case("case", sorted(set(HOSTILE) - LENIENT - {"empty"}))
def test_the_package_refuses_it_as_well(case):
    with pytest.raises((SafetensorError, KeyError)):
        reference.load(HOSTILE[case][0])


def test_tensors_come_in_the_order_of_their_bytes_whatever_that_of_their_names():
    header = {"z": tensor("U8", [1], 0, 1), "b": tensor("U8", [0], 3, 3), "a": tensor("U8", [2], 1, 3)}
    with opened(safetensors(header, bytes(3))) as file:
        assert list(describe(file).entries) == ["z", "a", "b"]


def test_names_with_escapes_are_what_they_stand_for():
    with opened(safetensors(rb'{"\u00e9\"":{"\u0064type":"U8","shape":[],"data_offsets":[0,1]}}', b"\7")) as file:
        assert list(describe(file).entries) == ['é"']


def test_a_tensor_that_is_not_there_is_an_error_when_it_is_asked_for():
    with opened(safetensors({"a": F}, bytes(8)), "w.safetensors") as file:
        header = describe(file)
    with pytest.raises(MetadataKeyError, match=r"w\.safetensors: has no tensor 'b' \(it has: a\)"):
        header.entry("b")


@each_case(
    ("dtype", "shape", "nbytes", "raw"),
    [
        ("BF16", [3], 6, "uint16[3]"),
        ("F8_E4M3", [2, 3], 6, "uint8[2, 3]"),
        ("F8_E5M2FNUZ", [], 1, "uint8[]"),
        ("F4", [4], 2, "uint8[2]"),
        ("F6_E2M3", [4, 2], 6, "uint8[6]"),
        ("X9", [7], 5, "uint8[5]"),
    ],
)
def test_a_dtype_that_tensord_has_not_fails_for_its_tensor_alone_or_is_raw_bits(dtype, shape, nbytes, raw):
    data = bytes(range(1, nbytes + 1))
    with opened(
        safetensors({"a": tensor(dtype, shape, 0, nbytes), "b": tensor("U8", [1], nbytes, nbytes + 1)}, data + b"\7")
    ) as file:
        header = describe(file)
        assert read_array(file, header.entry("b")).tolist() == [7]
        with pytest.raises(
            MetadataError, match=f"tensor 'a' is {dtype}, a dtype that tensord does not support; load it as raw bits"
        ):
            header.entry("a")
        with pytest.raises(MetadataError, match=dtype):
            read_array(file, header.entries["a"])
        entry = describe(file, raw=True).entry("a")
        assert repr(entry.meta) == raw
        assert read_array(file, entry).tobytes() == data


@each_case(
    ("header", "limits", "text"),
    [
        ({"a": F}, FileLimits(header=10), "its header has .* bytes; the limit is 10 bytes"),
        (
            {"a": tensor("U8", [0], 0, 0), "b": tensor("U8", [0], 0, 0)},
            FileLimits(entries=1),
            "has 2 tensors; the limit is 1",
        ),
        ({"abc": tensor("U8", [0], 0, 0)}, FileLimits(name=2), "'abc'... has a name of 3 characters; the limit is 2"),
    ],
)
def test_limits_can_be_narrower(header, limits, text):
    with opened(safetensors(header)) as file, pytest.raises(QuotaError, match=text):
        describe(file, limits=limits)


@each_case(
    ("part", "count"),
    [
        (b"[],", 2_000_000),
        (b'{"x":1},', 300_000),
        (b'"ab",', 2_000_000),
        (b"[[1],[2]],", 100_000),
        (b"999,", 2_000_000),
    ],
)
def test_a_header_of_many_parts_takes_little_memory(part, count):
    text = b'{"a":[' + part * count + b"0]}"
    with opened(safetensors(text)) as file:
        tracemalloc.start()
        try:
            with pytest.raises(QuotaError, match="more parts than 65536 tensors"):
                describe(file)
            assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
        finally:
            tracemalloc.stop()


@each_case("text", [b" {}", b"[1]", b"1", b'"a"'])
def test_a_header_that_became_another_since_its_format_was_recognised_is_refused(text):
    with opened(safetensors(text)) as file, pytest.raises(MetadataError, match=r"does not begin with {"):
        read_safetensors(file, raw=False, limits=FileLimits())


def test_the_duplicate_among_many_names_is_found_at_once():
    text = b"{" + b",".join(b'"%d":1' % n for n in range(300_000)) + b',"x":1,"x":1}'
    with opened(safetensors(text)) as file, pytest.raises(MetadataError, match="'x' occurs twice"):
        describe(file)
