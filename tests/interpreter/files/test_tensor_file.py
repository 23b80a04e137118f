"""Only regular files are read, in ranges, to their end and no further, and only while they do not change."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tensord.interpreter.errors import FileError, MetadataError
from tensord.interpreter.files import tensor_file
from tensord.interpreter.files.tensor_file import TensorFile, flat
from tensord.interpreter.wire.frames import decode_error, encode_error

from ...each_case import each_case
from .sound_files import opened


@each_case("make", [os.pipe, os.openpty, lambda: [os.open("/", os.O_RDONLY)], lambda: [os.eventfd(0)]])
def test_what_is_no_regular_file_is_refused_unread(make):
    made = make()
    try:
        with pytest.raises(MetadataError, match=r"^weights: is not a regular file"):
            TensorFile(made[0], "weights")
    finally:
        for fd in made:
            os.close(fd)


def test_a_closed_descriptor_and_one_that_cannot_be_read_are_errors_with_the_name(tmp_path):
    fd = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    try:
        os.write(fd, b"abc")
        with pytest.raises(FileError, match=r"^x\.npy: cannot be read: Bad file descriptor"):
            TensorFile(fd, "x.npy").read(0, 3)
    finally:
        os.close(fd)
    with pytest.raises(FileError, match=r"^x\.npy: cannot be examined: Bad file descriptor"):
        TensorFile(fd, "x.npy")


def test_ranges_are_read_in_pieces(monkeypatch):
    monkeypatch.setattr(tensor_file, "MAX_IO_BYTES", 7)
    content = bytes(range(200))
    with opened(content) as file:
        target = bytearray(100)
        file.read_into(target, 31)
        assert target == content[31:131]
        assert os.lseek(file.fd, 0, os.SEEK_CUR) == 0


def test_reads_that_give_less_are_continued(monkeypatch):
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: preadv(fd, [buffers[0][:3]], offset))
    with opened(b"0123456789") as file:
        assert file.read(1, 8) == b"12345678"


def test_an_end_that_comes_too_early_is_an_error_that_says_where():
    text = r"^w\.safetensors: ends at byte 10, 2 bytes too early"
    with opened(bytes(10), "w.safetensors") as file, pytest.raises(FileError, match=text):
        file.read(4, 8)


def test_an_error_of_the_disk_is_one_of_the_file(monkeypatch):
    def fails(*_):
        raise OSError(5, "Input/output error")

    with opened(bytes(10)) as file, monkeypatch.context() as patch:
        patch.setattr(os, "preadv", fails)
        with pytest.raises(FileError, match=r"x\.bin: cannot be read: Input/output error") as caught:
            file.read(0, 1)
    assert isinstance(caught.value.__cause__, OSError)


def test_headers_are_read_from_one_block(monkeypatch):
    calls = []
    preadv = os.preadv

    def watched(fd, buffers, offset):
        calls.append(offset)
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", watched)
    content = bytes(range(250)) * 40
    with opened(content) as file:
        for offset, count in ((0, 8), (8, 100), (100, 4000), (4190, 20), (4200, 5), (9990, 10), (9999, 1)):
            assert file.peek(offset, count) == content[offset : offset + count]
    assert calls == [0, 100, 4190, 9990]


@each_case(
    ("change", "why"),
    [
        (lambda fd: os.truncate(fd, 5), r"it has now 5 bytes, not 10 bytes"),
        (lambda fd: os.pwrite(fd, b"more", 10), r"it has now 14 bytes, not 10 bytes"),
        (lambda fd: os.utime(fd, ns=(1, 1)), r"it was written"),
    ],
)
def test_a_file_that_has_changed_is_not_what_was_loaded(change, why):
    with opened(bytes(10), "w.npy") as file:
        file.check_identity()
        change(file.fd)
        with pytest.raises(FileError, match=rf"^w\.npy: has changed since it was loaded: {why}; load it again"):
            file.check_identity()
        TensorFile(file.fd, "again").check_identity()


def test_names_are_shown_without_control_characters():
    with opened(b"", "a\nb\x1b[0m") as file:
        assert file.name == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[0m"


@each_case(
    "buffer",
    [
        np.zeros((2, 3), np.complex128),
        np.zeros((), np.float16),
        np.zeros((0, 3)),
        bytearray(9),
        memoryview(bytearray(0)),
        np.zeros(4, np.int32).data,
    ],
)
def test_any_contiguous_buffer_is_bytes(buffer):
    view = flat(buffer)
    assert (view.format, view.ndim, view.nbytes) == ("B", 1, memoryview(buffer).nbytes)


def test_a_strided_buffer_is_refused():
    for array in (np.zeros((4, 4))[:, ::2], np.zeros((2, 3)).T):
        with pytest.raises(ValueError, match="contiguous"):
            flat(array)
    with pytest.raises(TypeError, match="contiguous"):
        flat(memoryview(bytearray(8))[::2])


def test_an_error_of_a_file_travels_and_is_raised_again_as_it_is():
    error = FileError("w.npy: ends", op="transfer", location="a.py:1", instruction=7)
    for copy in (error.reraisable(), decode_error(encode_error(error))):
        assert isinstance(copy, OSError)
        assert (type(copy), str(copy), copy.op, copy.instruction) == (FileError, "w.npy: ends [a.py:1]", "transfer", 7)
