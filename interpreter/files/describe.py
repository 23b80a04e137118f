"""The contents of an open file of tensors, in any format: its first bytes identify the format."""

from __future__ import annotations

from typing import Final

from .header import FileHeader, FileLimits, Format, TensorEntry
from .npy import MAGIC, read_npy, read_npz
from .safetensors import FIRST_BYTE, read_safetensors
from .tensor_file import TensorFile
from .zip_directory import ARCHIVE_MAGICS

PICKLES: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
FORMATS: Final = "tensord reads safetensors, .npz and .npy files"


def describe(file: TensorFile, *, raw: bool = False, limits: FileLimits | None = None) -> FileHeader:
    """The tensors in a file, and the offsets of their bytes. Reads only headers; nothing is unpickled or evaluated.

    `raw`: tensors of dtypes that tensord lacks, such as bfloat16, become unsigned integers of the same size; without
    it, such a tensor is an entry without a meta, whose error is raised when it is asked for.

    Raises MetadataError for an unknown format or a malformed file, QuotaError for one beyond the limits, FileError if
    it cannot be read or changes meanwhile.
    """
    limits = limits or FileLimits()
    head = file.peek(0, min(file.size, 9))
    metadata: dict[str, str] = {}
    entries: dict[str, TensorEntry]
    if head.startswith(MAGIC):
        kind, entries = Format.NPY, read_npy(file, raw=raw)
    elif head.startswith(ARCHIVE_MAGICS):
        kind, entries = Format.NPZ, read_npz(file, raw=raw, limits=limits)
    elif head[8:] == FIRST_BYTE:
        kind, (entries, metadata) = Format.SAFETENSORS, read_safetensors(file, raw=raw, limits=limits)
    elif head.startswith(PICKLES):
        raise file.malformed(f"is a pickle, which could run any code and is never read; {FORMATS}")
    else:
        raise file.malformed(f"begins with {head!r} and is of no known format; {FORMATS}")
    file.check_identity()
    return FileHeader(file.name, kind, file.identity, entries, metadata)
