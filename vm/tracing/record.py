"""The records of a trace: of instructions, finished or live, and of routines, with their segments and runs.

The engine's ring keeps plain tuples (see `flat`), since the garbage collector walks all live objects. They become a
`Record` on demand.

Ticks are the times of the engine's logical clock, which counts admissions and erasures. The ticks say which accesses
were still in an access list when an instruction was admitted, so `verify` can recompute every edge.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

ARENA: Final = -1  # the slot of the arena
FILL: Final = "(fill)"  # in place of an op: copies a value, before a step writes a part of the copy
FUSED: Final = "(fused)"  # in place of an op: several steps that are computed together


class PartRecord(NamedTuple):
    """The part of a routine that an instruction runs: the routine's number, the first and the last step."""

    routine: int
    first: int
    last: int


class BufferSliceRecord(NamedTuple):
    """The memory of a value: at an offset in the memory of an operand, or in the arena. `strides` is None for a packed
    value. `whole`: whether the value is the operand itself, whatever its layout."""

    slot: int
    offset: int
    strides: tuple[int, ...] | None
    shape: tuple[int, ...]
    dtype: str
    whole: bool


class ArgumentRecord(NamedTuple):
    """A value that a call reads or makes, and its buffer slice. A number of the program has none; number n is written
    as the value ~n."""

    value: int
    buffer_slice: BufferSliceRecord | None


class CallRecord(NamedTuple):
    """A call in a segment: its op, or `FILL` or `FUSED`; the steps that it computes; the arguments
    that it reads and makes; and for each result the values whose errors the result takes over."""

    op: str
    steps: tuple[int, ...]
    takes: tuple[ArgumentRecord, ...]
    gives: tuple[ArgumentRecord, ...]
    depends: tuple[tuple[int, ...], ...]


class SegmentRecord(NamedTuple):
    """A compiled segment: its first and last step; its operands, which are variables of the program, either only read,
    written, or made; the bytes of its arena; and its calls."""

    first: int
    last: int
    reads: tuple[int, ...]
    written: tuple[int, ...]
    made: tuple[int, ...]
    arena: int
    calls: tuple[CallRecord, ...]


class RoutineRecord(NamedTuple):
    """A routine: its number, session and name.

    `digest`: of its program as it was linked; `text` and `ran`: the text and the digest of the program that ran,
    which is the linked one after passes.
    """

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
        """The routine's name and a short digest of its program, such as `train_step 3f2a9c1b2d3e`."""
        passes = "" if self.ran == self.digest else " after passes"
        return f"{self.name} {self.digest[:12]}{passes}".lstrip()


class RunRecord(NamedTuple):
    """One run of a routine: it consists of all instructions of its session from the first to the last.

    `location`: of the call. `last` is 0 for a run that was still being admitted.
    """

    session: int
    routine: int
    first: int
    last: int
    location: str


class OperandKind(StrEnum):
    """The access of an instruction to an operand: reads it, writes it, or writes it and decides its meta."""

    CONST = "const"
    MUT = "mut"
    MUT2 = "mut2"
    FREED = "freed"  # not an access: the instruction released this copy's memory


class MetaRecord(NamedTuple):
    """The meta of an operand or a result.

    A Python scalar has the shape None, and its type as `dtype`; a meta that was not known has the shape None and an
    empty `dtype`.
    """

    shape: tuple[int, ...] | None
    dtype: str


class OperandRecord(NamedTuple):
    """One operand: the id of its copy, how it was used, and the version that was read, or that the write made."""

    copy: int
    kind: str
    version: int


class EdgeRecord(NamedTuple):
    """One edge. `source`: the instruction waited for;

    `copy`: the copy that the edge is about, 0 for a barrier; `elided`: whether the instruction was dispatched before
    the source was done.
    """

    source: int
    reason: str
    copy: int
    elided: bool


class Record(NamedTuple):
    """One instruction. Times are those of `time.perf_counter_ns`, 0 for a state that the instruction never reached."""

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
    span: tuple[str, ...] = ()  # the names of the spans that were open where it was issued, the outermost first
    inputs: tuple[MetaRecord, ...] = ()  # the kernel's arguments, in order
    outputs: tuple[MetaRecord, ...] = ()
    attributes: str = ""  # "axis=0, keepdims=True": those that differ from their defaults
    work: int = 0  # the scheduler's estimate, in element operations; 0 if unknown
    used: int = 0  # bytes in use on its device once its results had memory; 0 if unknown
    held: str = ""  # "memory", "fairness", "compiling" or several: the reasons to wait once it was ready
    part: PartRecord | None = None  # of a RunRoutine: its part of a routine
    stamps: tuple[int, ...] = ()  # when each of its calls started and ended, if the run was timed
    caused_by: int = 0  # the session that needed it: `session`, or the session for which the machine planned it
    launch: int = 0  # of a launch: its number on its device; of a fence: the highest launch that it covers


class Holding(NamedTuple):
    """A copy that had memory when the trace was taken.

    `op`, `location`, `session`: the op that made its storage, with its line and its session.
    """

    copy: int
    device: str
    nbytes: int
    op: str
    session: int
    location: str
    names: tuple[str, ...]


def times(record: Record) -> tuple[int, ...]:
    """The five times of a record in order, 0 for a state that the instruction never reached."""
    return record.received, record.ready, record.dispatched, record.started, record.finished
