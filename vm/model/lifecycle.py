"""The life of an instruction: its states, and the transition for each event. No other file has such a table.

`Instruction.move` applies it; docs/architecture.md draws it. A doomed instruction does not run: it keeps its position
and retires when its own edges are satisfied, since it must not overtake an earlier reader.

The number of an instruction's open dependences is no state. Its edges (`hard`, `soft`) and its operands' metas
(`pending`) are counted by `scheduler.edges` and `scheduler.pending_metas`, which cause the events; `held` is history,
for the trace. The start of its kernel by a stream is decided between threads, by the claim (`Instruction.may_run`): a
state of the driving thread would come too late.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """The state of an instruction."""

    WAITING = "WAITING"  # admitted; waits for edges, or for metas
    READY = "READY"  # waits for memory, or for room on its stream
    DOOMED = "DOOMED"  # has an error; waits for its edges
    DISPATCHED = "DISPATCHED"  # operands bound to buffers; a stream has it, or the driving thread runs it
    EXECUTED = "EXECUTED"  # reported; its sources' statuses are not final, or its results wait for memory
    DONE = "DONE"  # this and the others: retired, its accesses dropped, its successors released
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class Event(StrEnum):
    """An event in the life of an instruction."""

    SATISFIED = "its edges are satisfied for dispatch"
    DOOMED = "it has an error, and no stream has it"
    DISPATCHED = "it has its memory"
    EXECUTED = "its kernel has ended"
    SUCCEEDED = "retired without an error"
    FAILED = "retired with an error that arose in it"
    SKIPPED = "retired with the error of an operand"
    CANCELLED = "retired with the error of a cancellation"


S, E = Status, Event
FAILURES: Final = {E.FAILED: S.FAILED, E.SKIPPED: S.SKIPPED, E.CANCELLED: S.CANCELLED}
OUTCOMES: Final = {E.SUCCEEDED: S.DONE, **FAILURES}
TRANSITIONS: Final[dict[Status, dict[Event, Status]]] = {
    S.WAITING: {E.SATISFIED: S.READY, E.DOOMED: S.DOOMED},
    S.READY: {E.DISPATCHED: S.DISPATCHED, E.DOOMED: S.DOOMED},
    S.DOOMED: FAILURES,
    S.DISPATCHED: {E.EXECUTED: S.EXECUTED, **OUTCOMES},
    S.EXECUTED: OUTCOMES,
    S.DONE: {},
    S.FAILED: {},
    S.SKIPPED: {},
    S.CANCELLED: {},
}

PENDING: Final = frozenset({S.WAITING, S.READY, S.DOOMED})  # no stream has it
UNDER_WAY: Final = frozenset({S.DISPATCHED, S.EXECUTED})
FINAL: Final = frozenset(status for status, steps in TRANSITIONS.items() if not steps)


class IllegalTransition(Exception):  # noqa: N818 - named after what happened, not after being an error
    """An event that is not in the table for the present status: a bug in the engine, never the user's fault."""
