"""Why an instruction took as long as it did: what it waited for, what that waited for, and so on.

After the stories of dask/distributed, with times. The chain that counts is the critical path: behind an instruction,
the source that finished last, since without the others it would have started no earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .record import EdgeRecord, Record
from .trace import Trace


@dataclass(frozen=True, slots=True)
class Wait:
    """One source of an instruction, followed, with the edges to it. `waited` is how many nanoseconds passed from the
    moment the instruction was received until the source finished; `critical`, whether the critical path goes here."""

    source: int
    edges: tuple[EdgeRecord, ...]
    story: Story | None  # None if the trace has lost the source
    waited: int
    critical: bool


@dataclass(frozen=True, slots=True)
class Story:
    """An instruction and what it waited for, latest first. `told` is False where the sources are left out, because
    they are told elsewhere in the tree or lie too deep. Times are in nanoseconds, 0 for a phase not (yet) reached."""

    record: Record
    waits: tuple[Wait, ...]
    told: bool

    @property
    def blocked(self) -> int:
        """From received to ready: on edges, or for memory."""
        return _between(self.record.received, self.record.ready)

    @property
    def queued(self) -> int:
        """From ready to started: behind other work of its stream."""
        return _between(self.record.ready, self.record.started)

    @property
    def ran(self) -> int:
        return _between(self.record.started, self.record.finished)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The tree of waits, and the critical path from the instruction back to where it began."""

    story: Story
    path: tuple[Record, ...]


def why(trace: Trace, instruction: int, *, depth: int = 8) -> Explanation:
    """Explain an instruction, following edges at most `depth` deep. Raises ProtocolError if the trace lacks it.

    The critical path is followed to its end, however long it is.
    """
    record = trace.require(instruction)
    path = tuple(_critical_path(trace, record))
    return Explanation(_Teller(trace, {one.id for one in path}).tell(record, depth), path)


class _Teller:
    """Tells every instruction once: a DAG written as a tree would grow without bounds."""

    def __init__(self, trace: Trace, critical: set[int]) -> None:
        self._trace = trace
        self._critical = critical
        self._told: set[int] = set()

    def tell(self, record: Record, depth: int) -> Story:
        if record.edges and (depth == 0 or record.id in self._told):
            return Story(record, (), told=False)
        self._told.add(record.id)
        by_source: dict[int, list[EdgeRecord]] = {}
        for edge in record.edges:
            by_source.setdefault(edge.source, []).append(edge)
        order = sorted(by_source, key=lambda source: (-_finish(self._trace.find(source)), source))
        return Story(record, tuple(self._wait(record, by_source[source], depth) for source in order), told=True)

    def _wait(self, record: Record, edges: list[EdgeRecord], depth: int) -> Wait:
        name = edges[0].source
        source = self._trace.find(name)
        if source is None:
            return Wait(name, tuple(edges), None, 0, critical=False)
        critical = record.id in self._critical and source is _latest(self._trace, record)
        waited = _between(record.received, source.finished)
        return Wait(name, tuple(edges), self.tell(source, depth - 1), waited, critical)


def _critical_path(trace: Trace, record: Record) -> Iterator[Record]:
    seen: set[int] = set()
    source: Record | None = record
    # A damaged trace may hold cycles.
    while source is not None and source.id not in seen:
        seen.add(source.id)
        yield source
        source = _latest(trace, source)


def _latest(trace: Trace, record: Record) -> Record | None:
    """The source that held `record` back for longest, if the trace still has it."""
    sources = [trace.find(edge.source) for edge in record.edges]
    return max((source for source in sources if source is not None), key=_finish, default=None)


def _finish(record: Record | None) -> float:
    """When it let go: an unfinished one has not yet, a lost one long ago."""
    if record is None:
        return -1
    return record.finished or (0 if record.erased else float("inf"))


def _between(begin: int, end: int) -> int:
    return max(0, end - begin) if begin and end else 0
