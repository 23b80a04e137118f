"""What a trace says of routines: their programs, what their segments were compiled to, which instructions were one run.

Plain values: they are sent, and written to files, as they are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ARENA: Final = -1  # as a slot
FILL: Final = "(fill)"  # in place of an op: a copy of a value, before a part of the copy is written
FUSED: Final = "(fused)"  # steps that are computed together


class PartRecord(NamedTuple):
    """What an instruction is of a run: the routine's number, and the first and the last of its steps."""

    routine: int
    first: int
    last: int


class PlaceRecord(NamedTuple):
    """Where a value lies: in the memory of an operand, or in the arena, at an offset. `strides` is None for a packed
    value. `whole`: it is the operand itself, whatever its layout."""

    slot: int
    offset: int
    strides: tuple[int, ...] | None
    shape: tuple[int, ...]
    dtype: str
    whole: bool


class PlacedRecord(NamedTuple):
    """A value in its place. A number, n < 0 for slot ~n, has none."""

    value: int
    place: PlaceRecord | None


class CallRecord(NamedTuple):
    """A call of a segment: its op, `FILL` or `FUSED`; the steps that it computes; what it is given, and where its
    results go; and for each result the values that it fails with."""

    op: str
    steps: tuple[int, ...]
    takes: tuple[PlacedRecord, ...]
    gives: tuple[PlacedRecord, ...]
    depends: tuple[tuple[int, ...], ...]


class SegmentRecord(NamedTuple):
    """A compiled segment: the first and the last of its steps, its operands (variables of the program: read only,
    written, made), the bytes of its arena, and its calls."""

    first: int
    last: int
    reads: tuple[int, ...]
    written: tuple[int, ...]
    made: tuple[int, ...]
    arena: int
    calls: tuple[CallRecord, ...]


class RoutineRecord(NamedTuple):
    """A routine: its number, the session that runs it, its name; the digest of its program as it was linked, and the
    text and the digest of what has run, which is that program after its passes."""

    number: int
    session: int
    name: str
    digest: str
    devices: tuple[str, ...]
    text: str
    segments: tuple[SegmentRecord, ...]
    ran: str

    @property
    def title(self) -> str:
        """`train_step 3f2a9c1b2d3e`."""
        passes = "" if self.ran == self.digest else " after passes"
        return f"{self.name} {self.digest[:12]}{passes}".lstrip()


class RunRecord(NamedTuple):
    """One run of a routine: all instructions of its session from the first to the last are of it, and where it was
    called. `last` is 0 for a run that was still being admitted."""

    session: int
    routine: int
    first: int
    last: int
    location: str
