"""The parts of a view about a trace as a whole: memory, tensors, sessions, advice, explanations. All are bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Final, TypeAlias

from ...record import Holding, Record
from ..advice.advice_text import plain
from ..advice.advise import advise
from ..advice.finding import Finding
from ..graphs.graph import Dependence, Graph, Mark
from ..recorded.derived import between, operands_text
from ..recorded.records import Records
from ..recorded.stream_order import is_live
from ..recorded.text import is_running
from ..sums.memory import in_use, memory
from ..waits.why import Explainer
from ..waits.why_text import to_text

Row: TypeAlias = dict[str, object]
Curve: TypeAlias = Sequence[tuple[int, int]]

# The most that a view contains:
POINTS: Final = 2000  # points of a curve
TENSORS: Final = 500
FINDINGS: Final = 50
INSTRUCTIONS: Final = 100  # instructions of a finding
EXPLAINED: Final = 200  # explained instructions that waited longest; as many live ones, and as many failed ones
STEPS: Final = 100_000  # steps in the critical paths of all explanations, which take some 2 s
MAX_LENGTH: Final = 6000  # characters of an explanation
DEPTH: Final = 3


def curves(trace: Records, limits: Mapping[str, int], origin: int, *, complete: bool) -> list[Row]:
    """The memory of each device over time. If the trace is not `complete`, only the bytes that records measured."""
    if complete:
        device_curves: Iterable[tuple[str, Curve]] = [(one.device, one.curve) for one in memory(trace)]
    else:
        device_curves = [(device, in_use(trace, device, ())) for device in trace.devices]
    return [
        {
            "device": device,
            "limit": limits.get(device, 0),
            "curve": [[max(0, time - origin), used] for time, used in thinned(curve)],
        }
        for device, curve in device_curves
        if curve
    ]


def thinned(curve: Curve) -> Iterator[tuple[int, int]]:
    """The curve with at most `POINTS` points, its peaks among them."""
    step = -(-len(curve) // POINTS)
    for start in range(0, len(curve), step):
        yield max(curve[start : start + step], key=lambda point: point[1])


def held(trace: Records) -> list[Row]:
    """The largest copies that had memory when the trace was taken."""
    made = {operand.copy: record for record in trace.records for operand in record.operands if operand.kind != "const"}
    largest = sorted(trace.memory.holdings, key=lambda one: -one.nbytes)[:TENSORS]
    return [_holding(one, made.get(one.copy)) for one in largest]


def _holding(holding: Holding, maker: Record | None) -> Row:
    return {
        "session": holding.session,
        "name": ", ".join(holding.names),
        "holder": f"session {holding.session}" if holding.session else "names alone",
        "bytes": holding.nbytes,
        "of": "" if maker is None else operands_text(maker),
        "where": [holding.device],
        "location": holding.location,
        "id": holding.copy,
    }


def parties(trace: Records) -> list[Row]:
    """The sessions that caused recorded instructions, or that hold memory."""
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for record in trace.records:
        count = counts[record.caused_by]
        count[0] += 1
        if is_live(record):
            count[1 if is_running(record) else 2] += 1
    for one in trace.memory.holdings:
        counts[one.session][3] += one.nbytes
    return [
        {
            "id": session,
            "name": "",
            "records": count[0],
            "running": count[1],
            "waiting": count[2],
            "bytes": count[3],
        }
        for session, count in sorted(counts.items())
    ]


def advice_on(trace: Records) -> list[Row]:
    return [_advice(one) for one in advise(trace).findings[:FINDINGS]]


def _advice(finding: Finding) -> Row:
    words = plain(finding)
    return {
        "rule": finding.rule,
        "title": words["title"],
        "what": words["what"],
        "cost": finding.cost / 1e6,
        "lines": [line.location for line in finding.lines],
        "do": words["todo"],
        "ids": finding.instructions[:INSTRUCTIONS],
    }


def explanations(trace: Records, graph: Graph) -> dict[str, str]:
    """Explanations, by id: of live instructions, of failed ones, and of those with the longest waits.

    `STEPS` bounds their number, since each may contain a path through the whole trace.
    """
    met: dict[int, list[Dependence]] = defaultdict(list)
    for edge in graph.edges:
        if edge.mark is Mark.MET:
            met[edge.target].append(edge)
    explainer = Explainer(trace, lambda record: met.get(record.id, ()))
    texts: dict[str, str] = {}
    steps = 0
    for record in worth_explaining(trace):
        explanation = explainer.why(record, DEPTH)
        texts[str(record.id)] = cut(to_text(explanation))
        steps += len(explanation.spans)
        if steps > STEPS:
            break
    return texts


def worth_explaining(trace: Records) -> Iterator[Record]:
    live = (record for record in trace.records if is_live(record))
    failed = (record for record in trace.records if record.error)
    longest = nlargest(EXPLAINED, trace.records, key=lambda record: between(record.received, record.started))
    chosen = (*islice(failed, EXPLAINED), *islice(live, EXPLAINED), *longest)
    yield from {record.id: record for record in chosen}.values()


def cut(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}\n... `tensord trace why` shows the rest\n"
