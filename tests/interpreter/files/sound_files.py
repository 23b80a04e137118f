"""Files of tensors in memory: valid ones of every format, and their parts, which tests combine wrongly."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensord.interpreter.files.tensor_file import TensorFile


@contextmanager
def opened(content: bytes, name: str = "x.bin") -> Iterator[TensorFile]:
    """A file with that content, open for the length of the block."""
    fd = os.memfd_create("test")
    try:
        os.truncate(fd, len(content))
        os.pwrite(fd, content, 0)
        yield TensorFile(fd, name)
    finally:
        os.close(fd)


def safetensors(header: Any, data: bytes = b"") -> bytes:
    """A safetensors file. The header is a text, or any other value, which is encoded as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str, shape: Any, *offsets: Any) -> dict[str, Any]:
    """The entry of a tensor in a safetensors header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    """An .npy file as NumPy writes it."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version)
    return file.getvalue()


def npy_of(header: str | bytes, data: bytes = b"", version: int = 1) -> bytes:
    """An .npy file with any header."""
    text = header if isinstance(header, bytes) else header.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + data


def npz(arrays: Mapping[str, Any], *, deflated: bool = False) -> bytes:
    """An .npz file as NumPy writes it."""
    file = io.BytesIO()
    (np.savez_compressed if deflated else np.savez)(file, **arrays)
    return file.getvalue()


def archive(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED, file: Any = None) -> bytes:
    """A zip archive of any members."""
    target = file or io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return target.getvalue()


def patched(content: bytes, at: int, with_: bytes) -> bytes:
    """The content with the bytes at a position replaced; negative positions count from the end."""
    at %= len(content)
    return content[:at] + with_ + content[at + len(with_) :]
