"""A file is recognised by its first bytes, and described as it was at one moment."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tensord.interpreter.errors import FileError, MetadataError
from tensord.interpreter.files import describe as module
from tensord.interpreter.files.describe import describe
from tensord.interpreter.files.header import Format
from tensord.interpreter.files.tensor_file import TensorFile

from ...each_case import each_case
from .sound_files import npy, npz, opened, safetensors

SOUND = {
    Format.SAFETENSORS: safetensors({}),
    Format.NPY: npy(np.arange(3)),
    Format.NPZ: npz({"a": np.arange(3)}),
}


@each_case("kind", Format)
def test_a_name_says_nothing_about_the_format(kind):
    with opened(SOUND[kind], "x.txt") as file:
        header = describe(file)
        assert (header.format, header.name) == (kind, "x.txt")
        assert header.identity == TensorFile(file.fd, "again").identity


@each_case("content", [b"", b"x", b"GGUF" + bytes(100), b"\x89HDF\r\n\x1a\n", b"PK\x07\x08", bytes(100)])
def test_what_is_of_no_known_format_is_said_with_its_beginning(content):
    text = r"^w\.bin: begins with b.* and is of no known format; tensord reads"
    with opened(content, "w.bin") as file, pytest.raises(MetadataError, match=text):
        describe(file)


@each_case("kind", Format)
def test_a_file_that_is_cut_short_anywhere_is_an_error(kind):
    content = SOUND[kind]
    for length in range(len(content)):
        with opened(content[:length]) as file, pytest.raises(MetadataError):
            describe(file)


def test_a_file_that_shrinks_after_it_was_looked_at_is_an_error():
    with opened(SOUND[Format.NPZ]) as file:
        os.truncate(file.fd, 20)
        with pytest.raises(FileError, match=r"x\.bin: ends at byte 20"):
            describe(file)


def test_a_file_that_is_written_while_it_is_described_is_an_error(monkeypatch):
    def written(file, **_):
        os.pwrite(file.fd, b"more", file.size)
        return {}

    monkeypatch.setattr(module, "read_npy", written)
    with opened(SOUND[Format.NPY]) as file, pytest.raises(FileError, match="has changed since it was loaded"):
        describe(file)
