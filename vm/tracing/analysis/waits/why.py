"""Explains why an instruction took as long as it did: its waits, the waits of its sources, and so on.

The form is that of the stories of dask/distributed, with times. An instruction waits for the sources of its edges
(in the scheduler, or on a stream if the edge is elided) and for the instruction before it on its stream. The
critical path goes from an instruction to the one of these that released it last: without the others, the instruction
would have started no earlier. The path goes back to an instruction that was not delayed, but not beyond the time
when the explained instruction was received. So its steps add up to the time from received to finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from ....model.reason import EVICT, REPLAN
from ...record import EdgeRecord, Record
from ..graphs.graph import Dependence, met
from ..recorded.derived import between
from ..recorded.records import Records
from ..recorded.stream_order import StreamOrder, is_live
from ..recorded.text import compiles
from .run_notes import Notes


@dataclass(frozen=True, slots=True)
class SourceWait:
    """A source for which an instruction waited, with the source's own story.

    `edges`: the edges to the source. `behind`: whether the source was ahead on the same stream. There are edges, or
    `behind` is true, or both. `waited`: nanoseconds from the receipt of the instruction until the source released
    it. `critical`: whether the critical path goes through this wait.
    """

    source: int
    edges: tuple[EdgeRecord, ...]
    behind: bool
    story: Story | None  # None if the trace has lost the source
    waited: int
    critical: bool


@dataclass(frozen=True, slots=True)
class Story:
    """An instruction and its waits; the wait that ended last comes first.

    `expanded` is False if the waits are left out because they are elsewhere in the tree, or too deep. Times are in
    nanoseconds, 0 for a phase that was not reached; an unfinished phase counts until `until`, when the trace was
    taken.
    """

    record: Record
    waits: tuple[SourceWait, ...]
    expanded: bool
    until: int = 0

    @property
    def blocked(self) -> int:
        """The time from received to ready, spent waiting for the sources of edges."""
        return self._spent(self.record.received, self.record.ready)

    @property
    def queued(self) -> int:
        """The time from ready to started, spent waiting for memory or for earlier work on the stream."""
        return self._spent(self.record.ready, self.record.started)

    @property
    def ran(self) -> int:
        return self._spent(self.record.started, self.record.finished)

    def _spent(self, begin: int, end: int) -> int:
        return between(begin, end or (self.until if is_live(self.record) else 0))


@dataclass(frozen=True, slots=True)
class PathStep:
    """A step of the critical path:

    `record` started `gap` nanoseconds after the end of the previous step, and ran for `ran` nanoseconds. `edges` and
    `behind` say how the next step depends on this one, as in `SourceWait`; in the last step they are empty.
    """

    record: Record
    gap: int
    ran: int
    edges: tuple[EdgeRecord, ...] = ()
    behind: bool = False


@dataclass(frozen=True, slots=True)
class LineSum:
    """The steps of the critical path that one line has issued: their number and ops, and the sums of their times."""

    location: str
    count: int
    ops: tuple[str, ...]
    gap: int
    ran: int


@dataclass(frozen=True)
class Explanation:
    """The explanation of an instruction.

    `story`: the tree of waits; `spans`: the critical path, from its end to its beginning; `met`: the dependences
    that were met at admission; `notes`: about runs; `evictions`: if the instruction waited for memory, those that
    made room, the last one first.
    """

    story: Story
    spans: tuple[PathStep, ...]
    met: tuple[Dependence, ...]
    notes: Notes
    evictions: tuple[Record, ...] = ()

    @cached_property
    def path(self) -> tuple[Record, ...]:
        return tuple(span.record for span in self.spans)

    @property
    def total(self) -> int:
        """The time from received to finished, or until the trace was taken: the sum of the path's steps."""
        return sum(span.gap + span.ran for span in self.spans)

    @property
    def compiling(self) -> int:
        """The part of `total` in which kernels were compiled, since they ran for the first time."""
        return sum(span.ran for span in self.spans if compiles(span.record))

    @cached_property
    def lines(self) -> tuple[LineSum, ...]:
        """The critical path by line, the longest time first; the sums add up to `total`."""
        groups: dict[str, list[PathStep]] = {}
        for span in reversed(self.spans):
            groups.setdefault(span.record.location, []).append(span)
        sums = []
        for location, spans in groups.items():
            ops = tuple(dict.fromkeys(span.record.op or span.record.opcode for span in spans))
            sums.append(LineSum(location, len(spans), ops, sum(s.gap for s in spans), sum(s.ran for s in spans)))
        return tuple(sorted(sums, key=lambda line: line.gap + line.ran, reverse=True))


@dataclass(frozen=True, slots=True)
class _Blocker:
    source: int
    record: Record | None
    edges: tuple[EdgeRecord, ...]
    behind: bool
    ended: int


def why(trace: Records, instruction: int, *, depth: int = 8) -> Explanation:
    """Explain an instruction. Raises ProtocolError if the trace does not have it.

    `depth` limits the tree of waits; the critical path is followed to its end, however long it is.
    """
    return Explainer(trace, partial(met, trace)).why(trace.require(instruction), depth)


class Explainer:
    """Explains instructions of one trace. `met`: from a record to the dependences that were met at its admission."""

    def __init__(self, trace: Records, met: Callable[[Record], Iterable[Dependence]]) -> None:
        self._trace = trace
        self._blockers = Blockers(trace)
        self._notes = Notes(trace)
        self._met = met

    def why(self, record: Record, depth: int) -> Explanation:
        spans = tuple(_critical_path(self._blockers, record))
        steps = {span.record.id: before.record.id for span, before in pairwise(spans)}
        story = _TreeBuilder(self._blockers, steps).build(record, depth)
        evictions = evictions_awaited(self._trace, record)
        return Explanation(story, spans, tuple(self._met(record)), self._notes, evictions)


def evictions_awaited(trace: Records, record: Record) -> tuple[Record, ...]:
    """The evictions from an instruction's device that ended, or were under way, while the instruction waited for
    memory."""
    if "memory" not in record.held:
        return ()
    until = record.dispatched or trace.taken
    prefixes = tuple(f"{word} {record.device}->" for word in (EVICT, REPLAN))
    evictions = [
        one
        for one in trace.records
        if one.op.startswith(prefixes)
        and record.ready <= (one.finished or until) <= until
        and (one.admitted < record.admitted or one.op.startswith(REPLAN))
    ]
    return tuple(sorted(evictions, key=lambda one: (one.finished or until, one.id), reverse=True))


def waited_on_stream(edge: EdgeRecord, record: Record, source: Record | None) -> bool:
    """Whether `record` waited on its stream, after dispatch, for the source of an elided edge."""
    return edge.elided and source is not None and (is_live(source) or source.finished > record.dispatched)


class Blockers:
    """Finds the instructions that delayed another one, by an edge or on its stream."""

    def __init__(self, trace: Records) -> None:
        self._trace = trace
        self.order = StreamOrder(trace)

    def of(self, record: Record) -> list[_Blocker]:
        """The blockers of a record; the one that released it last comes first.

        Live ones count as later than finished ones, and those that have not started as later still.
        """
        by_source: dict[int, list[EdgeRecord]] = {}
        for edge in record.edges:
            by_source.setdefault(edge.source, []).append(edge)
        ahead = self.order.ahead(record)
        if ahead is not None and ahead is not record:
            by_source.setdefault(ahead.id, [])
        found = [self._blocker(name, edges, ahead) for name, edges in by_source.items()]
        return sorted(found, key=_latest_first)

    def _blocker(self, name: int, edges: list[EdgeRecord], ahead: Record | None) -> _Blocker:
        source = self._trace.find(name)
        ended = -1 if source is None else self.order.ended(source)
        return _Blocker(name, source, tuple(edges), source is not None and source is ahead, ended)


class _TreeBuilder:
    """Makes the tree of waits, in which each instruction is expanded once: otherwise a graph as a tree would grow
    without bounds."""

    def __init__(self, blockers: Blockers, steps: dict[int, int]) -> None:
        self._blockers = blockers
        self._steps = steps
        self._expanded: set[int] = set()

    def build(self, record: Record, depth: int) -> Story:
        blockers = self._blockers.of(record)
        until = self._blockers.order.until
        if blockers and (depth == 0 or record.id in self._expanded):
            return Story(record, (), expanded=False, until=until)
        self._expanded.add(record.id)
        return Story(record, tuple(self._wait(record, one, depth) for one in blockers), expanded=True, until=until)

    def _wait(self, record: Record, blocker: _Blocker, depth: int) -> SourceWait:
        if blocker.record is None:
            return SourceWait(blocker.source, blocker.edges, blocker.behind, None, 0, critical=False)
        critical = self._steps.get(record.id) == blocker.source
        waited = between(record.received, blocker.ended)
        story = self.build(blocker.record, depth - 1)
        return SourceWait(blocker.source, blocker.edges, blocker.behind, story, waited, critical)


def _critical_path(blockers: Blockers, record: Record) -> Iterator[PathStep]:
    begin = record.received
    end = max(begin, blockers.order.ended(record))
    how: tuple[tuple[EdgeRecord, ...], bool] = ((), False)
    seen: set[int] = set()
    while True:
        seen.add(record.id)
        latest = next((one for one in blockers.of(record) if one.record is not None), None)
        released = begin if latest is None else latest.ended
        # Stamps of different threads may contradict each other by a little; the spans still add up.
        started = min(max(record.started or end, begin), end)
        released = min(max(released, begin), started)
        yield PathStep(record, started - released, end - started, *how)
        # A damaged trace may hold cycles.
        if latest is None or latest.record is None or latest.source in seen:
            return
        if latest.ended <= begin and not is_live(latest.record):
            return
        record, end, how = latest.record, released, (latest.edges, latest.behind)


def _latest_first(one: _Blocker) -> tuple[int, bool, bool, int]:
    record = one.record
    live = record is not None and is_live(record)
    return -one.ended, not live, record is not None and record.started > 0, -one.source
