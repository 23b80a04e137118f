"""Flat entries of the ring, and their conversion to records. Does not import the engine, since clients inflate, too.

There are two forms. The long form has the fields of `Record`, with flat operands and edges, and the location as a
number of its session. The short form is for an instruction that ran at admission and never had an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from .record import EdgeRecord, Kind, OperandRecord, Record

LONG = 18  # fields of the long form
IMMEDIATE = 9  # fields of the short form
ERASED = {LONG: 12, IMMEDIATE: 3}  # form -> position of the erasure's tick
KINDS = {"r": Kind.CONST.value, "w": Kind.MUT.value, "2": Kind.MUT2.value}


class Place(NamedTuple):
    """Where an instruction was issued: the user's line, "" if unknown, and the names of the open spans."""

    line: str = ""
    span: tuple[str, ...] = ()


Where: TypeAlias = Callable[[int, int], Place]  # (session, location number)


def inflate(entry: Sequence[Any], where: Where) -> Record:
    """A flat entry as a record."""
    if len(entry) == IMMEDIATE:
        return inflate_immediate(entry, where)
    id_, session, opcode, op, status, device, stream, kinds, copies, versions, edges, admitted, erased, times, *rest = (
        entry
    )
    nbytes, author, location, error = rest
    received, ready, dispatched, started, finished = times
    place = where(author, location)
    return Record(
        id_,
        session,
        opcode,
        op,
        status,
        device,
        stream,
        operands(kinds, copies, versions),
        tuple(EdgeRecord(*edges[n : n + 4]) for n in range(0, len(edges), 4)),
        admitted,
        erased,
        received,
        ready,
        dispatched,
        started,
        finished,
        nbytes,
        place.line,
        error,
        place.span,
    )


def inflate_immediate(entry: Sequence[Any], where: Where) -> Record:
    """The record of a short entry: it ran at admission, between two ticks, and waited for nothing."""
    id_, (session, opcode, op, device, kinds), copies, erased, received, started, finished, location, nbytes = entry
    ids, versions = copies[::2], copies[1::2]
    place = where(session, location)
    return Record(
        id_,
        session,
        opcode,
        op,
        "DONE",
        device,
        f"{device}/control",
        operands(kinds, ids, versions),
        (),
        erased - 1,
        erased,
        received,
        received,
        received,
        started,
        finished,
        nbytes,
        place.line,
        "",
        place.span,
    )


def operands(kinds: str, copies: Sequence[int], versions: Sequence[int]) -> tuple[OperandRecord, ...]:
    """The operands as records; the version is 0 where an instruction was made without one."""
    padded = (*versions, *[0] * (len(copies) - len(versions)))
    return tuple(OperandRecord(c, KINDS[k], v) for k, c, v in zip(kinds, copies, padded, strict=True))
