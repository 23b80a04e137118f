"""Folding: a part of a large graph becomes one node, so that the picture stays readable.

A part is a chain, or the instructions of one line of the program, of one span, or of one run. Lines in a loop depend on
each other, so a picture of lines may have cycles.

A chain is a sequence of finished instructions of one device, in which each depends only on the one before it, and no
other instruction depends on that one. Sources without dependences of their own, such as uploads of weights, are
ignored here: a sequence whose steps all read the same weights is a chain.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from ...record import Record
from ..recorded.derived import operands_text, ran
from ..recorded.filter import sessions_of
from ..recorded.text import duration, kind_of, label, name
from .graph import Dependence, Graph

if TYPE_CHECKING:
    from ..inside.steps import Inner

MIN_CHAIN_LENGTH = 3  # shorter chains are not folded
_OPS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a picture: one instruction, or a folded part: its instructions in order, and its name.

    The id is that of the first instruction.
    """

    records: tuple[Record, ...]
    part: str = ""
    inner: Inner | None = None  # if the node is a step inside a run

    @property
    def id(self) -> int:
        return self.records[0].id

    @property
    def first(self) -> Record:
        return self.records[0]

    def label(self, until: int) -> list[str]:
        if self.inner is not None and not self.part:
            about = "  ".join(filter(None, (self.inner.memory, run_time_text(self.first))))
            return list(filter(None, (name(self.first), operands_text(self.first), about)))
        if not self.part:
            return label(self.first, until)
        counts = Counter(map(kind_of, self.records)).most_common()
        more = f" and {len(counts) - _OPS_SHOWN} more" if len(counts) > _OPS_SHOWN else ""
        ops = ", ".join(f"{count} {op}" for op, count in counts[:_OPS_SHOWN])
        devices = ", ".join(dict.fromkeys(record.device for record in self.records))
        return [self.part, f"{ops}{more}", f"{devices}  {duration(sum(map(ran, self.records)))}"]

    def tooltip(self) -> str:
        return self.first.location or name(self.first)


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """The nodes of a picture, and the edges between them.

    `critical`: the ids of nodes on the critical path; `steps`: pairs of nodes that follow each other on it.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Dependence, ...]
    until: int = 0
    critical: frozenset[int] = frozenset()
    steps: frozenset[tuple[int, int]] = frozenset()


def unfolded(graph: Graph) -> FoldedGraph:
    return _picture(graph, [single(graph, record) for record in graph.nodes])


def single(graph: Graph, record: Record) -> Node:
    """The node of one instruction, or of one step inside a run."""
    return Node((record,), inner=graph.inner.get(record.id))


def run_time_text(record: Record) -> str:
    """The running time of an instruction, if it ran."""
    return duration(ran(record)) if ran(record) else ""


def fold(graph: Graph) -> FoldedGraph:
    """A node for each chain of at least `MIN_CHAIN_LENGTH` instructions, and for each other instruction."""
    following = _links(graph)
    ahead = set(following.values())
    nodes: list[Node] = []
    records = {record.id: record for record in graph.nodes}
    for record in graph.nodes:
        if record.id not in ahead:
            chain = tuple(records[id_] for id_ in _chain(record.id, following))
            title = f"#{chain[0].id} to #{chain[-1].id}, a chain of {len(chain)}"
            nodes += [Node(chain, title)] if len(chain) >= MIN_CHAIN_LENGTH else [single(graph, one) for one in chain]
    return _picture(graph, nodes)


def by_line(graph: Graph) -> FoldedGraph:
    """A node for each line of the program and device."""
    return _grouped(graph, lambda record: (record.location, record.device), _line)


def by_span(graph: Graph) -> FoldedGraph:
    """A node for the instructions of each span, without those of inner spans; outside of spans, a node for each
    line."""
    return _grouped(
        graph,
        lambda record: record.span or (record.location, record.device),
        lambda record: " / ".join(record.span) or _line(record),
    )


def by_run(graph: Graph) -> FoldedGraph:
    """A node for each run of a routine, and for each other instruction."""
    runs: dict[str, list[Record]] = defaultdict(list)
    nodes = []
    for record in graph.nodes:
        title = graph.runs.get(record.id, "")
        if title:
            runs[title].append(record)
        else:
            nodes.append(single(graph, record))
    nodes += [
        Node(tuple(records), title) if len(records) > 1 else single(graph, *records) for title, records in runs.items()
    ]
    return _picture(graph, nodes)


def _grouped(graph: Graph, key: Callable[[Record], Hashable], name_of: Callable[[Record], str]) -> FoldedGraph:
    groups: dict[Hashable, list[Record]] = defaultdict(list)
    for record in graph.nodes:
        groups[key(record)].append(record)
    return _picture(graph, [Node(tuple(group), name_of(group[0])) for group in groups.values()])


def _picture(graph: Graph, nodes: list[Node]) -> FoldedGraph:
    nodes.sort(key=lambda node: node.first.admitted)
    owner = {record.id: node.id for node in nodes for record in node.records}
    path = [node for node, _ in groupby(owner[id_] for id_ in reversed(graph.critical) if id_ in owner)]
    edges = tuple(_joined(graph.edges, owner))
    return FoldedGraph(tuple(nodes), edges, graph.until, frozenset(path), frozenset(pairwise(path)))


def _line(record: Record) -> str:
    """`train.py:9 in step`, without folders."""
    return re.sub(r"[^\s,]*/", "", record.location) or "no line"


def _links(graph: Graph) -> dict[int, int]:
    """Instruction -> the next instruction of its chain."""
    sources: dict[int, set[int]] = defaultdict(set)
    targets: dict[int, set[int]] = defaultdict(set)
    for edge in graph.edges:
        sources[edge.target].add(edge.source)
        targets[edge.source].add(edge.target)
    records = {record.id: record for record in graph.nodes}
    links = {}
    for source, after in targets.items():
        target = next(iter(after))
        # A source without dependences of its own counts only as the head of a chain.
        before = {one for one in sources[target] if sources.get(one)} or {source}
        if len(after) == 1 and before == {source} and _alike(records[source], records[target]):
            links[source] = target
    ends = Counter(links.values())
    return {source: target for source, target in links.items() if ends[target] == 1}


def _alike(one: Record, other: Record) -> bool:
    """Whether two instructions may be in one chain."""
    same = one.device == other.device and sessions_of(one) == sessions_of(other)
    return same and one.status == other.status == "DONE"


def _chain(first: int, following: dict[int, int]) -> Iterator[int]:
    seen: set[int] = set()  # a damaged trace may hold cycles
    while first not in seen:
        yield first
        seen.add(first)
        if first not in following:
            return
        first = following[first]


def _joined(edges: Iterable[Dependence], owner: Mapping[int, int]) -> Iterator[Dependence]:
    for edge in edges:
        source, target = owner.get(edge.source), owner.get(edge.target)
        if source is not None and target is not None and source != target:
            yield Dependence(source, target, edge.reason, edge.copy, edge.mark)
