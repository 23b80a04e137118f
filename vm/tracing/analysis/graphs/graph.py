"""The logical graph of a trace: all dependences, whether or not an instruction had to wait.

The engine makes an edge only to an access that is still live. For people, a source that had finished just before the
admission is a dependence, too. So the graph is built by the same rules, but with access lists that keep every
access, and each edge has a mark that tells the difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypedDict

from .....interpreter.errors import ProtocolError
from .....interpreter.opcodes import traits_of
from ....model.reason import Reason
from ...record import Record
from ..checks.dependences import AccessLists
from ..recorded.filter import check_session, sessions_of
from ..recorded.records import Records
from ..recorded.text import plural

if TYPE_CHECKING:
    from ..inside.steps import Inner, OpenedRun, Opener


class GraphSelection(TypedDict, total=False):
    """The keywords of `Graph.select`."""

    session: int | None
    ids: Iterable[int]
    around: int | None
    upstream: int | None
    downstream: int | None
    depth: int | None
    first: int | None
    last: int | None
    releases: bool


class Mark(StrEnum):
    WAITED = "waited"  # an edge, and the source had to be done first
    ELIDED = "elided"  # an edge, but dispatch left the waiting to the stream
    MET = "met"  # no edge: the source had been erased before the admission
    MISSING = "missing"  # no edge, though the source was live: a bug, see `verify`


@dataclass(frozen=True, slots=True)
class Dependence:
    """`target` depends on `source` because of their accesses to `copy` (0: because of a barrier)."""

    source: int
    target: int
    reason: str
    copy: int
    mark: Mark


@dataclass(frozen=True, slots=True, repr=False)
class Graph:
    """Nodes in the order of admission, edges in the order of their targets.

    Both ends of every edge are nodes. Instructions that are still running are shown as running until `until`.
    `runs`: the names of the runs to which nodes belong; `inner`: facts about nodes that are steps inside runs;
    `critical`: the ids of the critical path, from its end to its beginning, which pictures mark.
    """

    nodes: tuple[Record, ...]
    edges: tuple[Dependence, ...]
    until: int = 0
    runs: Mapping[int, str] = field(default_factory=dict)
    inner: Mapping[int, Inner] = field(default_factory=dict)
    critical: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<graph: {plural(len(self.nodes), 'node')}, {plural(len(self.edges), 'edge')}>"

    def restrict(self, keep: Collection[int]) -> Graph:
        """The nodes with these ids, and the edges among them."""
        nodes = tuple(node for node in self.nodes if node.id in keep)
        edges = tuple(edge for edge in self.edges if edge.source in keep and edge.target in keep)
        return replace(self, nodes=nodes, edges=edges)

    def marked(self, critical: Iterable[int]) -> Graph:
        """The graph with a critical path."""
        return replace(self, critical=tuple(critical))

    def opened(self, opener: Opener) -> Graph:
        """The graph with runs replaced by their steps."""
        insides = {node.id: inside for node in self.nodes if (inside := opener.opened(node)) is not None}
        nodes: list[Record] = []
        edges = [_between_steps(edge, insides) for edge in self.edges]
        runs, inner = dict(self.runs), dict(self.inner)
        for node in self.nodes:
            steps = insides[node.id].steps if node.id in insides else ()
            nodes += [step for step, _ in steps] or [node]
            for step, known in steps:
                runs[step.id], inner[step.id] = runs.get(node.id, ""), known
                edges += [Dependence(edge.source, step.id, edge.reason, 0, Mark.ELIDED) for edge in step.edges]
        within = {id_: [step.id for step, _ in reversed(opened.steps)] for id_, opened in insides.items()}
        critical = tuple(each for id_ in self.critical for each in within.get(id_) or (id_,))
        return Graph(tuple(nodes), tuple(edges), self.until, runs, inner, critical)

    def select(
        self,
        *,
        session: int | None = None,
        ids: Iterable[int] = (),
        around: int | None = None,
        upstream: int | None = None,
        downstream: int | None = None,
        depth: int | None = None,
        first: int | None = None,
        last: int | None = None,
        releases: bool = False,
    ) -> Graph:
        """The part of the graph that meets all given conditions, small enough to look at.

        :param session: Keep the instructions of a session, and those that it caused, such as transfers.
        :param ids: Keep these nodes.
        :param around: Keep this node, and the nodes at most `depth` edges away from it in either direction.
        :param upstream: Keep this node and the nodes on which it depends, up to `depth` edges away.
        :param downstream: Keep this node and the nodes that depend on it, up to `depth` edges away. With `upstream`,
            both parts are kept.
        :param depth: By default 2 for `around`, and unlimited for the two others.
        :param first: Keep at most this many nodes, the first in the order of admission.
        :param last: Keep at most this many nodes, the last in the order of admission.
        :param releases: Keep releases of tensors, too; else only those whose ids are named.
        :returns: The part of the graph.
        :raises ProtocolError: An id or the session is unknown.
        """
        wanted = set(ids)
        named = wanted | {id_ for id_ in (around, upstream, downstream) if id_ is not None}
        self._check(named)
        nodes = [
            node for node in self.nodes if releases or node.id in named or traits_of(node.opcode).category != "release"
        ]
        if session is not None:
            check_session(self.nodes, session)
            nodes = [node for node in nodes if session in sessions_of(node)]
        if wanted:
            nodes = [node for node in nodes if node.id in wanted]
        graph = self.restrict({node.id for node in nodes})
        if around is not None:
            graph = graph.restrict(_near(graph.edges, around, 2 if depth is None else depth, both=True))
        if upstream is not None or downstream is not None:
            above = set() if upstream is None else _near(graph.edges, upstream, depth, up=True)
            below = set() if downstream is None else _near(graph.edges, downstream, depth)
            graph = graph.restrict(above | below)
        return graph.restrict(_cut(graph, first, last))

    def _check(self, named: set[int]) -> None:
        unknown = named - {node.id for node in self.nodes}
        if unknown:
            listed = ", ".join(f"#{instruction}" for instruction in sorted(unknown)[:5])
            raise ProtocolError(f"the trace has no instruction {listed}: `tensord trace show` lists its instructions")


def build(trace: Records) -> Graph:
    """The logical graph of a trace, without dependences on instructions that the trace has lost."""
    lists = AccessLists()
    edges: list[Dependence] = []
    for record in trace.records:
        found = {(source, copy): reason.value for (source, copy), reason in lists.admit(record).items()}
        made = {(edge.source, edge.copy): edge for edge in record.edges if trace.find(edge.source) is not None}
        # Recorded edges are shown even if the rules do not require them: the graph does not hide mistakes.
        for (source, copy), reason in (found | {key: edge.reason for key, edge in made.items()}).items():
            edge = made.get((source, copy))
            mark = _unmade(trace, source, record) if edge is None else Mark.ELIDED if edge.elided else Mark.WAITED
            if mark is Mark.MISSING and record.admitted <= trace.base_tick:
                continue  # records that were lost in a recording's gap may explain it
            edges.append(Dependence(source, record.id, reason, copy, mark))
    runs = {record.id: trace.run_name(run) for record in trace.records if (run := trace.run_of(record)) is not None}
    return Graph(trace.records, tuple(edges), trace.until, runs)


def _between_steps(edge: Dependence, opened: Mapping[int, OpenedRun]) -> Dependence:
    """The edge, with runs at its ends replaced by the steps that it is about."""
    source, target = edge.source, edge.target
    if source in opened:
        wanted = (edge.copy, edge.reason != Reason.WAR)
        source = opened[source].lasts.get(wanted, opened[source].steps[-1][0].id)
    if target in opened:
        wanted = (edge.copy, edge.reason != Reason.RAW)
        target = opened[target].firsts.get(wanted, opened[target].steps[0][0].id)
    return Dependence(source, target, edge.reason, edge.copy, edge.mark)


def met(trace: Records, record: Record) -> Iterator[Dependence]:
    """The dependences of one instruction whose sources had been erased before it was admitted."""
    lists = AccessLists()
    made = {(edge.source, edge.copy) for edge in record.edges}
    for one in trace.records:
        found = lists.admit(one)
        if one is record:
            for (source, copy), reason in found.items():
                if (source, copy) not in made and _unmade(trace, source, record) == Mark.MET:
                    yield Dependence(source, record.id, reason.value, copy, Mark.MET)
            return


def _unmade(trace: Records, source: int, record: Record) -> Mark:
    erased = trace.require(source).erased
    return Mark.MET if 0 < erased <= record.admitted else Mark.MISSING


def _near(
    edges: Iterable[Dependence], around: int, depth: int | None, *, up: bool = False, both: bool = False
) -> set[int]:
    """The nodes at most `depth` edges away: along the edges, with `up` against them, or in `both` directions."""
    neighbours: dict[int, list[int]] = {}
    for edge in edges:
        if both or not up:
            neighbours.setdefault(edge.source, []).append(edge.target)
        if both or up:
            neighbours.setdefault(edge.target, []).append(edge.source)
    distance = {around: 0}
    queue = deque([around])
    while queue:
        node = queue.popleft()
        for neighbour in neighbours.get(node, ()) if depth is None or distance[node] < depth else ():
            if neighbour not in distance:
                distance[neighbour] = distance[node] + 1
                queue.append(neighbour)
    return set(distance)


def _cut(graph: Graph, first: int | None, last: int | None) -> set[int]:
    nodes = graph.nodes[:first]
    if last is not None:
        nodes = nodes[max(0, len(nodes) - last) :]
    return {node.id for node in nodes}
