"""The document that the page shows: a trace, or what has been new of a daemon since the view before.

Its form is a contract with the page's scripts, and has a version. Tables of texts and streams keep it small: a record
is a row of numbers, some 100 bytes. A view of a whole trace has its logical DAG, its critical path, advice and
explanations; a live one has what records say by themselves, since what came before is not there to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...record import times
from ..graphs.graph import build
from ..recorded.device_times import on_devices
from ..recorded.records import Records
from ..waits.critical import with_critical_path
from .sums import Row, advice_on, curves, explanations, held, parties
from .tables import Tables, own_edges, rows_of

VERSION: Final = 1
MOST: Final = 200_000  # records of a view


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a daemon besides its records. `of`: how many records there were to be shown; `tensors` and
    `sessions`: rows that are shown in the place of what the records say."""

    of: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    tensors: Sequence[Row] | None = None
    sessions: Sequence[Row] | None = None


def view_of(trace: Records, source: str, known: Known = Known()) -> Row:
    """A whole trace, or the newest `MOST` records of one that is larger. `source`: where it is from."""
    total = len(trace)
    shown = on_devices(trace if total <= MOST else trace.only(trace.records[-MOST:]))
    graph = build(shown)
    critical = with_critical_path(shown, graph.select()).critical
    tables = Tables(origin_of(shown))
    records = rows_of(tables, shown.records, critical)
    judged = {"advice": advice_on(shown), "why": explanations(shown, graph)}
    edges = [tables.edge(edge) for edge in graph.edges]
    about = {"source": source, "live": False, "sampled": {"shown": len(shown), "of": max(known.of, total)}}
    return _document(shown, tables, about, known) | {"records": records, "edges": edges} | judged


def live_view(trace: Records, source: str, origin: int, known: Known) -> Row:
    """What has been new of a daemon since the last view. `origin`: of the first one."""
    shown = on_devices(trace)
    tables = Tables(origin)
    records = rows_of(tables, shown.records, ())
    edges = [tables.edge(edge) for edge in own_edges(shown.records)]
    about = {"source": source, "live": True, "sampled": {"shown": len(shown), "of": max(known.of, len(shown))}}
    return _document(shown, tables, about, known) | {"records": records, "edges": edges, "advice": [], "why": {}}


def origin_of(trace: Records) -> int:
    """The first time of the records; the time of recording if there is none."""
    return min((time for record in trace.records for time in times(record) if time), default=trace.until)


def _document(trace: Records, tables: Tables, about: Row, known: Known) -> Row:
    """All but the records, their edges, and what is judged."""
    counts = {"records": len(trace), "dropped": trace.dropped, "taken": trace.until - tables.origin, "origin": 0}
    return {
        "version": VERSION,
        "about": {**about, **counts, "devices": list(trace.devices)},
        "streams": tables.streams,
        "texts": tables.texts,
        "memory": curves(trace, known.limits, tables.origin, complete=not about["live"]),
        "tensors": held(trace) if known.tensors is None else known.tensors,
        "sessions": parties(trace, known.names) if known.sessions is None else known.sessions,
    }
