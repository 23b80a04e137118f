"""Finds the critical path for a picture of the graph.

The path begins at the instruction that ended last, and goes back from each instruction to the one that released it
last. If nothing delayed an instruction, the path goes to the dependence that ended last, so a pause of the program
does not end the path. From an instruction that is not in the picture, such as a release, the path goes to the
instruction before it on the same stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .....interpreter.opcodes import traits_of
from ...record import Record
from ..graphs.graph import Graph
from ..recorded.records import Records
from ..recorded.text import is_running
from .why import Blockers


def with_critical_path(trace: Records, graph: Graph) -> Graph:
    """The graph with the critical path of the instruction that ended last, or is still running, for pictures to
    mark."""
    ran = [record for record in graph.nodes if record.started and trace.find(record.id) is record]
    return graph.marked(_path(trace, graph, max(ran, key=_ended))) if ran else graph


def _ended(record: Record) -> tuple[bool, bool, int, int]:
    """The key that orders instructions by their ends.

    Barriers come first: a path ends at one only if there is nothing else.
    """
    return not traits_of(record.opcode).covers_session, is_running(record), record.finished, record.id


def _path(trace: Records, graph: Graph, last: Record) -> Iterator[int]:
    blockers, sources = Blockers(trace), defaultdict(list)
    shown = {record.id for record in graph.nodes}
    for edge in graph.edges:
        sources[edge.target].append(edge.source)
    seen: set[int] = set()  # a damaged trace may hold cycles
    record: Record | None = last
    while record is not None and record.id not in seen:
        yield record.id
        seen.add(record.id)
        before = [one.record for one in blockers.of(record) if one.record is not None]
        met = [source for id_ in sources[record.id] if (source := trace.find(id_)) is not None]
        behind = None if record.id in shown else blockers.order.before(record)
        record = before[0] if before else max(met, key=_ended, default=behind)
