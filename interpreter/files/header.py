"""The facts about a file of tensors that are known before its tensors' bytes are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ..errors import MetadataError, MetadataKeyError
from ..types.meta import Meta, Shape
from ..wire.limits import MIB
from ..wire.names import is_printable, some_of
from .tensor_file import Identity, TensorFile

NAME_LENGTH_SHOWN: Final = 64  # characters of a name in an error
RAW_SIZES: Final = (1, 2, 4, 8)  # bytes of the unsigned integers


class Format(StrEnum):
    """The format of a file."""

    SAFETENSORS = "safetensors"
    NPY = "npy"
    NPZ = "npz"


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of a file's header, checked before memory is used.

    `header`: bytes of a safetensors header, or of an archive's directory. `entries`: tensors in a file. `name`:
    characters of a tensor's name.
    """

    header: int = 16 * MIB
    entries: int = 1 << 16
    name: int = 1024


class FilePiece(NamedTuple):
    """Contiguous bytes in a file.

    `offset`: their begin in the file; `length`: their bytes in the file; `size`: their bytes once inflated; `deflated`:
    whether they are compressed; `crc`: CRC-32 of those `size` bytes, None if the file has none.
    """

    offset: int
    length: int
    size: int
    deflated: bool = False
    crc: int | None = None


class TensorEntry(NamedTuple):
    """A tensor of a file.

    `meta`: its shape and dtype, None if the tensor cannot be used; `error` then says why. Its bytes are those of
    `piece` after the first `skip`. `fortran`: the first axis of the bytes varies fastest; `swapped`: they are not in
    this machine's byte order.
    """

    name: str
    meta: Meta | None
    piece: FilePiece
    skip: int = 0
    fortran: bool = False
    swapped: bool = False
    error: str = ""

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor, once inflated."""
        return self.piece.size - self.skip

    @property
    def offset(self) -> int:
        """The offset of its bytes in the file; meaningless for deflated ones."""
        return self.piece.offset + self.skip

    @property
    def is_direct(self) -> bool:
        """Return whether the bytes in the file are those of a C-ordered array of this machine."""
        return not (self.piece.deflated or self.fortran or self.swapped)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The contents of a file. `metadata`: the texts in a safetensors file; `entries`: by name, in the order of the
    file."""

    name: str
    format: Format
    identity: Identity
    entries: Mapping[str, TensorEntry]
    metadata: Mapping[str, str]

    def entry(self, name: str) -> TensorEntry:
        """The entry of that name. MetadataKeyError if there is none, MetadataError if it cannot be used."""
        entry = self.entries.get(name)
        if entry is None:
            raise MetadataKeyError(
                f"{self.name}: has no tensor {name[:NAME_LENGTH_SHOWN]!r} (it has: {some_of(self.entries)})"
            )
        if entry.meta is None:
            raise MetadataError(f"{self.name}: tensor {name[:NAME_LENGTH_SHOWN]!r} {entry.error}")
        return entry


def check_name(file: TensorFile, name: str, limits: FileLimits) -> None:
    """MetadataError unless the name is valid for a tensor: names appear in tables, logs and errors."""
    if not is_printable(name):
        raise file.malformed(f"a tensor's name is printable text, and {name[:NAME_LENGTH_SHOWN]!r} is not")
    if len(name) > limits.name:
        raise file.excessive(
            f"tensor {name[:NAME_LENGTH_SHOWN]!r}... has a name of {len(name)} characters; the limit is {limits.name}"
        )


def check_count(file: TensorFile, count: int, limits: FileLimits) -> None:
    """QuotaError if a file has too many tensors."""
    if count > limits.entries:
        raise file.excessive(f"it has {count} tensors; the limit is {limits.entries}")


def raw_meta(shape: Shape, itemsize: int, nbytes: int) -> Meta:
    """The meta of elements whose dtype tensord lacks, as raw bits: unsigned integers of the same size.

    If there is no integer of that size, the meta of all bytes in a row. Raises ValueError as `Meta.of` does.
    """
    return Meta.of(shape, f"uint{8 * itemsize}") if itemsize in RAW_SIZES else Meta.of((nbytes,), "uint8")
