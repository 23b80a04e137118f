"""Writes a safetensors file: its header first, then the values in pieces, so that no tensor needs memory of its own.

Order and alignment are those of the package `safetensors`: large elements first, then by name, after a header that is
padded with spaces to a multiple of 8. So each tensor is aligned to its elements, and equal tensors make equal files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..errors import MetadataError, QuotaError
from ..types.meta import DTYPE_NAMES, Meta
from ..wire.names import is_printable
from .durable_file import AtomicWriter, DurableFile
from .header import NAME_LENGTH_SHOWN, FileLimits, FilePiece, TensorEntry
from .safetensors import DTYPES, LENGTH_BYTES, MAX_HEADER_BYTES, METADATA_KEY, SWAPPED
from .tensor_file import Identity, flat

ALIGNMENT: Final = 8
CODES: Final = {name: code for code, name in DTYPES.items()}
RANKS: Final = {name: rank for rank, name in enumerate(DTYPES.values())}  # the format's order of dtypes


class SafetensorsWriter(AtomicWriter):
    """A safetensors file that is being written into an open directory; see DurableFile for `name` and `shown`.

    `metas`: the tensors by name, `metadata`: texts by name. `entries`: the tensors in the order in which their values
    have to be written, C-ordered and little-endian.

    Raises MetadataError for a dtype that the format lacks (complex128), for invalid names and texts, and for values
    whose size differs from the metas; QuotaError for a file that `limits` would not let be read; FileError if writing
    fails. After an error of writing the file is given up.
    """

    def __init__(
        self,
        directory: int,
        name: str,
        metas: Mapping[str, Meta],
        metadata: Mapping[str, str] | None = None,
        *,
        limits: FileLimits | None = None,
        shown: str = "",
    ) -> None:
        header, self.entries = header_of(metas, metadata or {}, limits or FileLimits())
        self._left = sum(entry.nbytes for entry in self.entries)
        self._file = DurableFile(directory, name, shown=shown)
        try:
            self._file.write(header)
        except BaseException:
            self._file.abandon()
            raise

    def write(self, values: Any) -> None:
        """Append the bytes of a contiguous buffer: the next values of the entries, in pieces of any size."""
        view = flat(values)
        if len(view) > self._left:
            self.abandon()
            raise MetadataError(f"{self._file.name}: {len(view) - self._left} more bytes than its tensors have")
        self._file.write(view)
        self._left -= len(view)

    @property
    def fd(self) -> int:
        """The file's descriptor, for others that write values at the offsets of `entries`."""
        return self._file.fd

    def filled(self) -> None:
        """Note that others have written all values."""
        self._left = 0

    def commit(self) -> Identity:
        """Make the file durable, in place of an existing one; returns its identity."""
        if self._left:
            self.abandon()
            raise MetadataError(f"{self._file.name}: {self._left} bytes of its tensors were not written")
        return self._file.commit()

    def abandon(self) -> None:
        """Give the file up; see DurableFile."""
        self._file.abandon()

    @property
    def is_open(self) -> bool:
        """Return whether more can be written."""
        return self._file.is_open


def header_of(
    metas: Mapping[str, Meta], metadata: Mapping[str, str], limits: FileLimits
) -> tuple[bytes, tuple[TensorEntry, ...]]:
    """The bytes before the values, and the entries in their order. Raises as SafetensorsWriter does."""
    _check(metas, metadata, limits)
    fields: dict[str, Any] = {METADATA_KEY: dict(metadata)} if metadata else {}
    ordered = sorted(metas.items(), key=lambda item: (-RANKS[DTYPE_NAMES[item[1].dtype]], item[0]))
    at = 0
    for name, meta in ordered:
        code = CODES[DTYPE_NAMES[meta.dtype]]
        fields[name] = {"dtype": code, "shape": meta.shape, "data_offsets": (at, at + meta.nbytes)}
        at += meta.nbytes
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > min(limits.header, MAX_HEADER_BYTES):
        raise QuotaError(f"a header of {len(text)} bytes; the limit is {min(limits.header, MAX_HEADER_BYTES)}")
    begin = LENGTH_BYTES + len(text)
    entries = []
    for name, meta in ordered:
        entries.append(TensorEntry(name, meta, FilePiece(begin, meta.nbytes, meta.nbytes), swapped=SWAPPED))
        begin += meta.nbytes
    return len(text).to_bytes(LENGTH_BYTES, "little") + text, tuple(entries)


def _check(metas: Mapping[str, Meta], metadata: Mapping[str, str], limits: FileLimits) -> None:
    if len(metas) > limits.entries:
        raise QuotaError(f"a file of {len(metas)} tensors; the limit is {limits.entries}")
    for name, meta in metas.items():
        if name == METADATA_KEY:
            raise MetadataError(f"a tensor cannot be called {METADATA_KEY!r}: the format keeps that name for itself")
        if not is_printable(name) or len(name) > limits.name:
            shown = name[:NAME_LENGTH_SHOWN]
            raise MetadataError(f"a tensor's name is printable text of at most {limits.name} characters, not {shown!r}")
        if DTYPE_NAMES[meta.dtype] not in CODES:
            shown = name[:NAME_LENGTH_SHOWN]
            raise MetadataError(
                f"tensor {shown!r}: safetensors has no {meta.dtype.name}; save two tensors in its place"
            )
    for texts in metadata.items():
        if not all(type(text) is str for text in texts):
            raise MetadataError("metadata are texts by name")
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            raise MetadataError(f"the metadata of {texts[0][:NAME_LENGTH_SHOWN]!r} hold half a character") from None
