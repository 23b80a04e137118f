"""Entries of a file in messages: the client has described the file, and the machine checks each entry again.

It checks that the bytes lie in the file and are as many as the tensor has. The meaning of the bytes is
the client's concern: it makes tensors of its own session from a file that it can read.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import MetadataError, ProtocolError
from ..types.meta import Meta
from ..wire.fields import is_natural
from ..wire.metas import decode_meta
from .header import FilePiece, TensorEntry
from .tensor_file import TensorFile

ENTRY_FIELDS: Final = 10
MAX_ENTRIES: Final = 64  # entries, or values, in one message, which the machine handles at once
MAX_NAME_LENGTH: Final = 4096  # characters
MAX_SKIP: Final = 1 << 16  # bytes before a tensor's own: an .npy header
MAX_EXPANSION: Final = 1032  # the most bytes that deflate makes of one; see zlib's manual


def checked_descriptor(reference: Any) -> tuple[int, str]:
    """A descriptor of the client's, and the file's name. ProtocolError for anything else."""
    if type(reference) not in (tuple, list) or len(reference) != 2:
        raise ProtocolError("a reference to a file is [descriptor, name]")
    fd, name = reference
    if not is_natural(fd) or type(name) is not str or len(name) > MAX_NAME_LENGTH:
        raise ProtocolError("a reference to a file is [descriptor, name]")
    return fd, name


def checked_path(reference: Any) -> str:
    """The path of a file of the machine's host. ProtocolError for anything else."""
    if not is_path(reference):
        raise ProtocolError("a reference to a file is [path, raw], for this connection")
    return str(reference[0])


def is_path(reference: Any) -> bool:
    """Return whether a reference is a path, with the flag whether dtypes that tensord lacks become raw bits."""
    if type(reference) not in (tuple, list) or len(reference) != 2:
        return False
    path, raw = reference
    return type(path) is str and type(raw) is bool and len(path) <= MAX_NAME_LENGTH


def encode_entry(entry: TensorEntry) -> tuple[Any, ...]:
    """(name, meta, offset, length, size, deflated, CRC-32 or None, skip, fortran, swapped)."""
    meta, piece = entry.meta, entry.piece
    if meta is None:
        raise MetadataError(f"tensor {entry.name!r} {entry.error}")
    position = (piece.offset, piece.length, piece.size, piece.deflated, piece.crc)
    return (entry.name, meta.plain, *position, entry.skip, entry.fortran, entry.swapped)


def meta_of(record: Any) -> Meta | None:
    """The meta of an encoded entry; None for one whose tensor cannot be used."""
    found = None if len(record) < ENTRY_FIELDS else decode_meta(record[1])
    return found if isinstance(found, Meta) else None


def unusable_entry(record: Any) -> tuple[str, str] | None:
    """(name, reason) of an entry whose tensor cannot be used; None for any other."""
    if type(record) in (tuple, list) and len(record) == 2 and all(type(one) is str for one in record):
        name, why = record
        return name[:MAX_NAME_LENGTH], why[:MAX_NAME_LENGTH]
    return None


def decode_entry(file: TensorFile, record: Any) -> TensorEntry:
    """An entry from the wire. ProtocolError if it is malformed, or reaches beyond the file."""
    if type(record) not in (tuple, list) or len(record) != ENTRY_FIELDS:
        raise ProtocolError(f"an entry of a file has {ENTRY_FIELDS} fields")
    name, wire, offset, length, size, deflated, crc, skip, fortran, swapped = record
    if type(name) is not str or not all(map(is_natural, (offset, length, size, skip))):
        raise ProtocolError("an entry of a file begins with its name and its position")
    if not (type(deflated) is type(fortran) is type(swapped) is bool) or not (crc is None or is_natural(crc)):
        raise ProtocolError("an entry of a file ends with its flags and its checksum")
    try:
        meta = decode_meta(wire)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ProtocolError(f"an entry of a file without a meta: {error}") from None
    if not isinstance(meta, Meta):
        raise ProtocolError("an entry of a file without a meta")
    most = length * MAX_EXPANSION + MAX_EXPANSION if deflated else length
    if offset + length > file.size or size > most or (not deflated and size != length):
        raise ProtocolError(f"{size} bytes at {offset} do not lie in {file.name}, which has {file.size}")
    if skip > MAX_SKIP or size - skip != meta.nbytes:
        raise ProtocolError(f"{size - skip} bytes of {file.name} are no {meta}")
    return TensorEntry(name, meta, FilePiece(offset, length, size, deflated, crc), skip, fortran, swapped)
