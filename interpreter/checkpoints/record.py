"""The contents of a generation of checkpoints: a record for each value, the generation itself, and limits.

A record says where a value's bytes lie and which checksum they have, so later generations can refer to the same bytes.
Limits are checked when a generation is written, and before memory is used to read one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

from ..errors import MetadataError, ProtocolError, QuotaError
from ..files.header import NAME_LENGTH_SHOWN, FilePiece, TensorEntry
from ..files.tensor_file import TensorFile
from ..types.meta import Meta
from ..types.sizes import exact_size
from ..wire.codec import Encoder, decode
from ..wire.limits import MIB
from ..wire.names import check_names

INNER_SEPARATOR: Final = "\N{NO-BREAK SPACE}"  # looks like a space; not printable, so no published name contains it
FIELDS_KIND: Final = 0  # the kind of packed fields


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """Limits of a generation, checked when it is written and before memory is used to read it.

    `manifest`: bytes of its manifest. `names`: names in it. `name`: characters of a name. `fields`: bytes of the packed
    fields of a name. `text`: bytes of a routine's text.
    """

    manifest: int = 64 * MIB
    names: int = 1 << 16
    name: int = 1024
    fields: int = MIB  # a routine has fields for the tensors that it captures
    text: int = 16 * MIB


class ValueRecord(NamedTuple):
    """A value: its meta, and the byte range of its data.

    `meta`: shape and dtype of a tensor, whose bytes are those of a C-ordered array of this machine; None for the text
    of a routine, in UTF-8. `file`: the id of its values file, in which it has `nbytes` bytes from `offset` on; `crc`:
    their CRC-32. `packed`: its fields, as `pack_fields` makes them.
    """

    meta: Meta | None
    file: int
    offset: int
    nbytes: int
    crc: int
    packed: bytes = b""

    @property
    def fields(self) -> dict[str, Any]:
        """The writer's own fields: values of msgpack by name, lists as tuples.

        Raises MetadataError if they are malformed.
        """
        return unpack_fields(self.packed)

    def entry(self, name: str) -> TensorEntry:
        """The record as an entry of its values file, for readers of files."""
        meta = self.meta or Meta.of((self.nbytes,), "uint8")
        return TensorEntry(name, meta, FilePiece(self.offset, self.nbytes, self.nbytes, crc=self.crc))

    def check_within(self, file: TensorFile) -> None:
        """FileError unless its values file is long enough. Called before memory is allocated for its bytes."""
        end = self.offset + self.nbytes
        if end > file.size:
            raise file.failed(f"has {exact_size(file.size)} and should have {end} at least; was it cut short?")

    @property
    def byte_range(self) -> tuple[int, int, int]:
        """File, offset and length of the bytes. Records with the same byte range are one value."""
        return self[1:4]


@dataclass(frozen=True, slots=True)
class Generation:
    """Everything that had a name at one moment.

    `number`: generations are counted upwards; `written`: nanoseconds since 1970; `tensors`, `routines`: records by
    name, with no name in both; `files`: the bytes of each values file of these, by id.
    """

    number: int
    written: int
    tensors: Mapping[str, ValueRecord]
    routines: Mapping[str, ValueRecord]
    files: Mapping[int, int]

    def records(self) -> Iterator[tuple[str, ValueRecord]]:
        """The records of tensors and routines, each with its name."""
        return chain(self.tensors.items(), self.routines.items())

    @property
    def nbytes(self) -> int:
        """Bytes of the values; a value with several names counts once."""
        return sum(nbytes for _, _, nbytes in {record.byte_range for _, record in self.records()})


def pack_fields(name: str, fields: Mapping[str, Any], limits: CheckpointLimits) -> bytes:
    """The bytes of fields. MetadataError for values that cannot be packed, QuotaError for too many bytes."""
    if not fields:
        return b""
    if not all(type(key) is str for key in fields):
        raise MetadataError(f"fields of {name[:NAME_LENGTH_SHOWN]!r}: are values by name")
    try:
        packed = Encoder().encode((FIELDS_KIND, dict(fields)))
        unpack_fields(packed)
    except MetadataError as error:
        raise MetadataError(f"fields of {name[:NAME_LENGTH_SHOWN]!r}: cannot be kept: {error.message}") from None
    if len(packed) > limits.fields:
        raise QuotaError(
            f"fields of {name[:NAME_LENGTH_SHOWN]!r}: take {len(packed)} bytes; the limit is {limits.fields}"
        )
    return packed


def unpack_fields(packed: bytes) -> dict[str, Any]:
    """The unpacked fields. MetadataError if they are malformed."""
    if not packed:
        return {}
    try:
        kind, *values = decode(packed, len(packed))
    except ProtocolError as error:
        raise MetadataError(f"malformed fields: {error.message}") from None
    if kind != FIELDS_KIND or len(values) != 1 or type(values[0]) is not dict:
        raise MetadataError("malformed fields: they are not values by name")
    if not all(type(key) is str for key in values[0]):
        raise MetadataError("malformed fields: a name is not text")
    return dict(values[0])


def check_record_names(names: Sequence[Any], limits: CheckpointLimits) -> None:
    """MetadataError unless values may be stored under these names, which appear in tables, logs and errors.

    Names may contain `INNER_SEPARATOR`: values that belong to a published object get names of their own by it.
    """
    for name in names:
        if type(name) is not str:
            raise MetadataError(f"a name is printable text, and {str(name)[:NAME_LENGTH_SHOWN]!r} is not")
        if len(name) > limits.name:
            raise MetadataError(
                f"name {name[:NAME_LENGTH_SHOWN]!r}... has {len(name)} characters; the limit is {limits.name}"
            )
    check_names([name.replace(INNER_SEPARATOR, " ") for name in names])
