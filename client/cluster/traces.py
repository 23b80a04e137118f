"""The trace of all nodes on one clock, that of the first node.

Each node's clock is compared with this process's by asking for its time; the error is half of the fastest round trip.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...interpreter.errors import TensordError
from ..session.parts import Parts
from ..waiting.procedures import of, side_by_side
from ..waiting.steps import LongWork, Steps
from .facet import open_cores

if TYPE_CHECKING:
    from .cluster import Cluster

CLOCK_READINGS: Final = 8  # questions for a node's clock; the fastest answer counts
EMPTY_TRACE: Final = (2**62, False, 2**62)  # a trace without finished instructions, live ones and routines


class ClockOffset(NamedTuple):
    """A node's clock compared with this process's, in nanoseconds: by how much it is ahead, and the possible error."""

    ahead: int
    error: int


def tracing(cluster: Cluster) -> Steps[Any]:
    """The traces of all nodes that can be reached, as one."""
    from ..embedded.traces import trace_of_nodes

    cores = yield from open_cores(cluster)
    clocks: list[ClockOffset] = []
    for core in cores:
        reading = yield from of(core.outbox, reading_clock(core))
        clocks.append(reading)
    answers = yield from side_by_side((core.outbox, asking_trace(core)) for core in cores)
    first = clocks[0]
    by_node = {
        core.node: (entries, clock.ahead - first.ahead, 0 if core is cores[0] else clock.error + first.error)
        for core, clock, entries in zip(cores, clocks, answers, strict=True)
        if not isinstance(entries, TensordError)
    }
    return (yield LongWork(partial(trace_of_nodes, by_node), stops=True))


def asking_trace(core: Parts) -> Steps[Any]:
    """A node's trace, as its machine answers it."""
    return (yield core.answers.ask("trace"))


def reading_clock(core: Parts) -> Steps[ClockOffset]:
    """Ask for a node's time several times: it was read at some moment between question and answer."""
    readings = []
    for _ in range(CLOCK_READINGS):
        began = perf_counter_ns()
        (head,) = yield core.answers.ask("trace", *EMPTY_TRACE)
        ended = perf_counter_ns()
        readings.append(ClockOffset(head["taken"] - (began + ended) // 2, (ended - began) // 2 + 1))
    return min(readings, key=lambda reading: reading.error)
