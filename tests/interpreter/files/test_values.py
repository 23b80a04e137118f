"""Bytes of entries: in ranges, as arrays, as digests; in any order of the file."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest

from tensord.interpreter.errors import FileError
from tensord.interpreter.files import values
from tensord.interpreter.files.describe import describe
from tensord.interpreter.files.values import EntryReader, digest, read_array, read_range

from ...each_case import each_case
from .sound_files import npy, npy_of, npz, opened, safetensors, tensor

ARRAY = np.arange(2 * 3 * 5 * 7, dtype=np.float64).reshape(2, 3, 5, 7)


@pytest.mark.parametrize("make", [npy, lambda array: npz({"array": array})])
def test_ranges_of_what_is_direct_come_from_where_they_are(make):
    with opened(make(ARRAY)) as file:
        entry = describe(file).entry("array")
        assert entry.is_direct
        target = np.empty(20)
        read_range(file, entry, target, 8 * 50)
        assert target.tolist() == list(range(50, 70))
        read_range(file, entry, target[:0], entry.nbytes)
        for offset in (-1, entry.nbytes - 159):
            with pytest.raises(ValueError, match=rf"bytes {offset} to {offset + 160} of 1680"):
                read_range(file, entry, target, offset)


def test_what_is_deflated_has_no_ranges():
    with opened(npz({"array": ARRAY}, deflated=True)) as file:
        entry = describe(file).entry("array")
        with pytest.raises(ValueError, match="a deflated entry has no ranges"):
            read_range(file, entry, bytearray(8))


@each_case("chunk", [1, 8, 24, 1000, 1 << 20])
@each_case("dtype", ["<f8", ">f8", ">c16", ">i2", "|u1"])
@each_case("deflated", [None, False, True])
def test_other_orders_are_turned_piece_by_piece(monkeypatch, chunk, dtype, deflated):
    monkeypatch.setattr(values, "CHUNK_BYTES", chunk)
    array = np.asfortranarray(ARRAY.astype(dtype))
    content = npy(array) if deflated is None else npz({"array": array}, deflated=deflated)
    with opened(content) as file:
        entry = describe(file).entry("array")
        assert (entry.fortran, entry.swapped, entry.is_direct) == (True, dtype[0] == ">", False)
        read = read_array(file, entry)
    assert (read.flags.c_contiguous, read.dtype.isnative) == (True, True)
    np.testing.assert_array_equal(read, array)


@each_case("shape", [(0, 2**59), (2**59, 0), (2**29, 0, 2**30)])
def test_an_empty_array_of_another_order_is_there_at_once(shape):
    header = f"{{'descr': '<f8', 'fortran_order': True, 'shape': {shape}}}"
    with opened(npy_of(header)) as file:
        assert read_array(file, describe(file).entry("array")).shape == shape


def test_an_array_of_another_order_takes_little_memory_beside_itself():
    array = np.asfortranarray(np.arange(1 << 22, dtype=">i4").reshape(1 << 11, 1 << 11))
    out = np.empty(array.shape, np.int32)
    with opened(npy(array)) as file:
        entry = describe(file).entry("array")
        tracemalloc.start()
        try:
            assert read_array(file, entry, out) is out
            assert tracemalloc.get_traced_memory()[1] < 3 << 20
        finally:
            tracemalloc.stop()
    np.testing.assert_array_equal(out, array)


def test_an_array_is_filled_only_if_it_fits():
    with opened(npy(ARRAY)) as file:
        entry = describe(file).entry("array")
        for out in (np.empty(3), np.empty(ARRAY.shape, np.int64)):
            with pytest.raises(ValueError, match=r"out is .*, not float64\[2, 3, 5, 7\]"):
                read_array(file, entry, out)


@pytest.mark.parametrize("deflated", [False, True])
def test_a_digest_is_of_the_bytes_alone(deflated):
    array = np.arange(400_000, dtype=np.int64)
    with opened(npz({"a": array, "b": np.empty(0)}, deflated=deflated)) as file:
        header = describe(file)
        assert digest(file, header.entry("a")) == hashlib.sha256(array.tobytes()).hexdigest()
        assert digest(file, header.entry("b")) == hashlib.sha256().hexdigest()


def test_bools_that_are_neither_0_nor_1_are_found_however_they_are_read():
    with opened(safetensors({"a": tensor("BOOL", [3], 0, 3)}, b"\0\1\2"), "w.safetensors") as file:
        entry = describe(file).entry("a")
        read_range(file, entry, bytearray(2))
        for read in (
            lambda: read_array(file, entry),
            lambda: read_range(file, entry, bytearray(1), 2),
            lambda: EntryReader(file, entry).read_into(bytearray(3)),
        ):
            with pytest.raises(FileError, match=r"w\.safetensors: is damaged: tensor 'a' holds bools that are neither"):
                read()
