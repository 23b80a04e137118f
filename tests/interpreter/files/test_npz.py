"""Archives of arrays: NumPy's own are read, stored or deflated."""

from __future__ import annotations

import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import FileError, MetadataError, QuotaError, TensordError
from tensord.interpreter.files.describe import describe
from tensord.interpreter.files.header import FileLimits, Format
from tensord.interpreter.files.values import digest, read_array
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from .sound_files import archive, npy, opened, patched
from .sound_files import npz as npz_of
from .test_npy import ARRAYS, OBJECTS

NAMES = st.text("aZ7\N{GREEK SMALL LETTER ALPHA}\N{CJK UNIFIED IDEOGRAPH-4E2D}", min_size=1, max_size=8)


@given(st.dictionaries(NAMES, ARRAYS, max_size=5), st.booleans(), st.sampled_from("CF"))
def test_what_numpy_writes_is_read(arrays, deflated, order):
    arrays = {name: np.array(array, order=order) for name, array in arrays.items() if name != "file"}
    with opened(npz_of(arrays, deflated=deflated)) as file:
        header = describe(file)
        assert header.format is Format.NPZ
        assert list(header.entries) == list(arrays)
        for name, array in arrays.items():
            entry = header.entry(name)
            assert entry.meta is Meta.of(array.shape, array.dtype)
            read = read_array(file, entry)
            assert read.tobytes() == np.ascontiguousarray(array).tobytes()


def test_members_that_are_no_arrays_or_hold_objects_fail_alone():
    members = {"a.npy": npy([1.5]), "read.me": b"hello", "none.npy": b"", "objects.npy": OBJECTS, "folder/": b""}
    with opened(archive(members), "w.npz") as file:
        header = describe(file)
        assert read_array(file, header.entry("a")).tolist() == [1.5]
        for name in ("read.me", "none", "folder/"):
            with pytest.raises(MetadataError, match=f"tensor '{name}' is not an array"):
                header.entry(name)
        with pytest.raises(MetadataError, match="tensor 'objects' holds Python objects"):
            header.entry("objects")


@each_case(
    ("members", "text"),
    [
        ({"a.npy": npy(1), "a": npy(2)}, "two members are called 'a'"),
        ({".npy": npy(1)}, "printable text, and '' is not"),
        ({"a\nb.npy": npy(1)}, r"printable text, and 'a\\nb' is not"),
        ({"a" * 1100: npy(1)}, "has a name of 1100 characters; the limit is 1024"),
        ({"a.npy": npy([1, 2])[:-1]}, r"array 'a': 15 bytes do not make a <i8\[2\]"),
        ({"a.npy": npy([1, 2]) + b"x"}, r"array 'a': 17 bytes do not make a <i8\[2\]"),
        ({"a.npy": b"\x93NUMPY"}, "array 'a': has an unknown version"),
    ],
)
@each_case("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_malformed_members_are_refused_with_a_sentence(members, text, method):
    with opened(archive(members, method), "w.npz") as file, pytest.raises(TensordError, match=text) as caught:
        describe(file)
    assert caught.value.message.startswith("w.npz: ")


def bomb(said: int, real: int) -> bytes:
    """An archive with an array of zeros, which says to have another size."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % (said - 128)
    content = b"\x93NUMPY\x01\0" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n" + bytes(real - 128)
    made = archive({"a.npy": content}, zipfile.ZIP_DEFLATED)
    directory = made.index(b"PK\x01\x02")
    return patched(patched(made, 22, said.to_bytes(4, "little")), directory + 24, said.to_bytes(4, "little"))


def test_a_bomb_that_says_so_is_read_in_bounded_memory():
    size = 1 << 26
    content = bomb(size, size)
    assert len(content) < 100_000
    with opened(content) as file:
        entry = describe(file).entry("a")
        tracemalloc.start()
        try:
            digest(file, entry)
            assert tracemalloc.get_traced_memory()[1] < 1 << 23
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("said", "text"), [(1 << 16, "inflates to more than 64 KiB"), ((1 << 20) + 9, "inflates to 1 MiB")]
)
def test_a_bomb_that_lies_is_found_out_when_it_is_read(said, text):
    with opened(bomb(said, 1 << 20), "w.npz") as file:
        entry = describe(file).entry("a")
        assert entry.nbytes == said - 128
        with pytest.raises(FileError, match=rf"w\.npz: is damaged: .* {text}"):
            read_array(file, entry)


def test_a_bomb_beyond_what_deflate_can_do_is_refused_at_once():
    with opened(bomb(1 << 31, 1 << 20)) as file, pytest.raises(MetadataError, match="cannot have 2147483648 bytes"):
        describe(file)


def test_many_long_headers_are_too_many():
    long = b"\x93NUMPY\1\0" + (9_990).to_bytes(2, "little") + b"{'descr': '|u1', 'fortran_order': False, 'shape': ()}"
    members = {f"{n}.npy": long.ljust(10_000) + b"x" for n in range(3)}
    with opened(archive(members, zipfile.ZIP_DEFLATED)) as file:
        assert len(describe(file).entries) == 3
        with pytest.raises(QuotaError, match="headers of its arrays have more than"):
            describe(file, limits=FileLimits(entries=9))


def test_describing_inflates_no_more_than_headers():
    content = archive({f"{n}.npy": npy(np.zeros(1 << 20)) for n in range(8)}, zipfile.ZIP_DEFLATED)
    with opened(content) as file:
        tracemalloc.start()
        try:
            assert len(describe(file).entries) == 8
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("deflated", [False, True])
def test_a_wrong_checksum_is_found_out_when_the_array_is_read(deflated):
    content = npz_of({"a": np.arange(1000)}, deflated=deflated)
    directory = content.index(b"PK\x01\x02")
    wrong = (zlib.crc32(b"another") & 0xFFFF_FFFF).to_bytes(4, "little")
    with opened(patched(patched(content, 14, wrong), directory + 16, wrong), "w.npz") as file:
        entry = describe(file).entry("a")
        with pytest.raises(FileError, match=r"w\.npz: is damaged: .* has checksum [0-9a-f]{8}, not [0-9a-f]{8}"):
            read_array(file, entry)
