"""Flat entries of the ring, and their conversion to records.

This file does not import the engine, since clients convert entries, too.

An entry has one of two forms. The long form has the fields of `Record`: operands and edges are flat, the location is a
number of the session, and a signature (`model.signature`) holds metas, attributes and work. The short form is for an
instruction that ran at admission and never had an edge. It has one more field if the instruction moved bytes, and three
more if it was launched.

All entries of a plan share a signature. A segment's signature has a fifth field: the number of its routine, and its
first and last step. If an instruction has no plan, and all its operands and results have the same meta, the entry
has that meta in place of a signature.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from .record import EdgeRecord, MetaRecord, OperandKind, OperandRecord, PartRecord, Record

LONG = 22  # fields of the long form
IMMEDIATE = 9  # fields of the short form
MOVED = 10  # the short form with the bytes that the instruction moved
LAUNCHED = 12  # the short form with these bytes, the number of the launch, and the edges, all of which are elided
SHORT = frozenset({IMMEDIATE, MOVED, LAUNCHED})
ERASED = {LONG: 12, IMMEDIATE: 3, MOVED: 3, LAUNCHED: 3}  # form -> position of the erasure's tick
SIGNATURE = 18  # position of the signature in the long form
TRAIT = 5  # position of the signature in the second field of the short form
KINDS = {
    "r": OperandKind.CONST.value,
    "w": OperandKind.MUT.value,
    "2": OperandKind.MUT2.value,
    "f": OperandKind.FREED.value,
}
COMPILING = "compiling"
# The words for the bits of `Instruction.held`.
HELD = (
    "",
    "memory",
    "fairness",
    "memory, fairness",
    COMPILING,
    f"memory, {COMPILING}",
    f"fairness, {COMPILING}",
    f"memory, fairness, {COMPILING}",
)

Metas: TypeAlias = tuple[MetaRecord, ...]


class SourceLocation(NamedTuple):
    """Where an instruction was issued: the user's line, "" if unknown, and the names of the open spans."""

    line: str = ""
    span: tuple[str, ...] = ()


Where: TypeAlias = Callable[[int, int], SourceLocation]  # (session, location number)


def inflate(entry: Sequence[Any], where: Where, stamps: bytes = b"") -> Record:
    """Convert a flat entry to a record. `stamps`: the times of its calls, packed."""
    long = long_form(entry) if len(entry) in SHORT else entry
    *head, kinds, copies, versions, edges, admitted, erased, times = long[:14]
    nbytes, author, location, error, signature, used, held, launch = long[14:]
    inputs, outputs, attributes, work, part = described(signature, kinds)
    source = where(author, location)
    found_edges = tuple(EdgeRecord(*edges[n : n + 4]) for n in range(0, len(edges), 4))
    accesses = (operands(kinds, copies, versions), found_edges, admitted, erased)
    about = (nbytes, source.line, error, source.span, inputs, outputs, attributes, work, used, HELD[held], part)
    return Record._make((*head, *accesses, *times, *about, tuple(array("q", stamps)), author, launch))


def long_form(entry: Sequence[Any]) -> tuple[Any, ...]:
    """The long form of a short entry, which ran or was launched at admission, and waited for nothing.

    It was erased one tick after its admission. A launch is on the first compute stream of its device.
    """
    id_, traits, copies, erased, received, started, finished, location, used, *more = entry
    moved, launch, edges = more if len(more) > 1 else (more[0] if more else 0, 0, ())
    session, opcode, op, device, kinds, signature = traits
    access = (kinds, copies[::2], copies[1::2], edges, erased - 1, erased)
    times = (received, received, received, started, finished)
    rest = (moved, session, location, "", signature, used, 0, launch)
    stream = f"{device}/compute0" if launch else f"{device}/control"
    return (id_, session, opcode, op, "DONE", device, stream, *access, times, *rest)


def operands(kinds: str, copies: Sequence[int], versions: Sequence[int]) -> tuple[OperandRecord, ...]:
    """The operands as records. Instructions that were made without versions have the version 0."""
    padded = (*versions, *[0] * (len(copies) - len(versions)))
    return tuple(OperandRecord(c, KINDS[k], v) for k, c, v in zip(kinds, copies, padded, strict=True))


def described(signature: Sequence[Any], kinds: str) -> tuple[Metas, Metas, str, int, PartRecord | None]:
    """Inputs, outputs, attributes and work of a record, and its part of a routine, if it has one."""
    if len(signature) == 2:  # one meta, for all operands and results
        meta = meta_record(signature)
        return (meta,) * ("r" in kinds), (meta,) * ("w" in kinds), "", 0, None
    inputs, outputs, attributes, work, *rest = signature
    part = PartRecord(*map(int, rest[0])) if rest else None
    return tuple(map(meta_record, inputs)), tuple(map(meta_record, outputs)), str(attributes), int(work), part


def meta_record(plain: Sequence[Any]) -> MetaRecord:
    """Convert a plain meta to a record."""
    shape, dtype = plain
    return MetaRecord(None if shape is None else tuple(map(int, shape)), str(dtype))
