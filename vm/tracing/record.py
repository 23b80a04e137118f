"""A trace record: one finished or live instruction, flat.

The engine's ring keeps plain tuples of atoms in the order of the fields below, since the garbage collector walks all
live objects; `Record` names the fields on demand.

Ticks are the times of the engine's logical clock, which counts admissions and erasures. They tell which accesses were
still in an access list when an instruction was admitted, so that `verify` can recompute every edge.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from .inside import PartRecord


class Kind(StrEnum):
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
    status: str  # WAITING, READY, DISPATCHED (live ones), DONE, FAILED, SKIPPED, CANCELLED
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
