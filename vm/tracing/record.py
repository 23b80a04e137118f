"""A trace record: one finished or live instruction, flat; and the records of routines, with their segments and runs.

The engine's ring keeps plain tuples of atoms in the order of the fields below, since the garbage collector walks all
live objects; `Record` names the fields on demand.

Ticks are the times of the engine's logical clock, which counts admissions and erasures. They determine the accesses
that were still in an access list when an instruction was admitted, so that `verify` can recompute every edge.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

ARENA: Final = -1  # as a slot
FILL: Final = "(fill)"  # in place of an op: a copy of a value, before a part of the copy is written
FUSED: Final = "(fused)"  # steps that are computed together


class PartRecord(NamedTuple):
    """The part of a routine that an instruction runs: its number, and the first and the last of the steps."""

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


class OperandKind(StrEnum):
    """Operand kinds."""

    CONST = "const"
    MUT = "mut"
    MUT2 = "mut2"
    FREED = "freed"  # no access: its memory went with the instruction


class MetaRecord(NamedTuple):
    """The meta of an operand or a result. `shape` is None for a Python scalar, whose type `dtype` names, and for a meta
    that was not known, whose `dtype` is empty."""

    shape: tuple[int, ...] | None
    dtype: str


class OperandRecord(NamedTuple):
    """One operand: the mirrored object's id, how it was used, and the version it had when admitted (read or made)."""

    copy: int
    kind: str
    version: int


class EdgeRecord(NamedTuple):
    """One edge, to `source`: the reason, the mirrored object it is about (0 for a barrier), and whether dispatch
    elided it (did not wait for the source to be done)."""

    source: int
    reason: str
    copy: int
    elided: bool


class Record(NamedTuple):
    """One instruction. Times are `time.perf_counter_ns`, 0 for a state that it never reached."""

    id: int
    session: int
    opcode: str
    op: str
    status: str  # a `Status` of `vm.model.lifecycle`
    device: str
    stream: str  # empty while not dispatched
    operands: tuple[OperandRecord, ...]
    edges: tuple[EdgeRecord, ...]  # in the order in which they were made
    admitted: int  # tick
    erased: int  # tick; 0 while live
    received: int
    ready: int
    dispatched: int
    started: int
    finished: int
    nbytes: int  # bytes moved by a transfer or an access, 0 for kernels
    location: str  # "file:line in function", empty if unknown
    error: str  # "Type: message", empty if none
    span: tuple[str, ...] = ()  # the names of the spans that it was issued in, the outermost first
    inputs: tuple[MetaRecord, ...] = ()  # what the kernel was given, in its order
    outputs: tuple[MetaRecord, ...] = ()
    attributes: str = ""  # "axis=0, keepdims=True": those that have not their defaults
    work: int = 0  # the scheduler's estimate, in element operations; 0 if unknown
    used: int = 0  # bytes of its device's memory in use once its results had theirs; 0 if unknown
    held: str = ""  # "memory", "fairness", "compiling" or several: what it had to wait for once it was ready
    part: PartRecord | None = None  # what a RunRoutine is of its routine
    stamps: tuple[int, ...] = ()  # when each of its calls started and ended, if that was asked for
    caused_by: int = 0  # the session that needed it: `session`, unless the machine has planned it for another one
    launch: int = 0  # its number among the launches at admission of its device; of a Fence the highest that it covers


class Holding(NamedTuple):
    """A copy that had memory when the trace was taken. `op` and `location` made its storage, for `session`."""

    copy: int
    device: str
    nbytes: int
    op: str
    session: int
    location: str
    names: tuple[str, ...]


def times(record: Record) -> tuple[int, ...]:
    """The stamps of a record in their proper order, 0 for a state that it never reached."""
    return record.received, record.ready, record.dispatched, record.started, record.finished
