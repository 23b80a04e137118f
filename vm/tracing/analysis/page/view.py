"""Builds the document that the page shows: a trace, or what happened in a daemon since the previous view.

The document's form is a contract with the page's scripts, and has a version. Tables of texts and streams keep the
document small: a record is a row of numbers of some 100 bytes. The view of a whole trace has its logical graph, its
critical path, advice and explanations. A live view has only facts that follow from single records, since it lacks
earlier records.
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
from .tables import PageTables, own_edges, rows_of

VERSION: Final = 1
MAX_RECORDS: Final = 200_000  # in a view


@dataclass(frozen=True, slots=True)
class DaemonState:
    """The state of a daemon in a view, besides its records.

    `of`: how many instructions have finished since the previous view, and `live`: how many are live; the records may
    be a sample of both. `limits`: the memory limits of devices. `tensors`, `sessions`: rows of these tables, None if
    they have not changed. `run`: a number for the daemon's process, since a restarted daemon begins anew. `note`: a
    text for people.
    """

    of: int = 0
    live: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    tensors: Sequence[Row] | None = None
    sessions: Sequence[Row] | None = None
    run: int = 0
    note: str = ""


def view_of(trace: Records, source: str, known: DaemonState = DaemonState()) -> Row:
    """The view of a whole trace, or of its newest `MAX_RECORDS` records. `source`: where the trace comes from."""
    total = len(trace)
    shown = on_devices(trace if total <= MAX_RECORDS else trace.only(trace.records[-MAX_RECORDS:]))
    graph = build(shown)
    critical = with_critical_path(shown, graph.select()).critical
    tables = PageTables(origin_of(shown))
    records = rows_of(tables, shown.records, critical)
    judged = {"advice": advice_on(shown), "why": explanations(shown, graph)}
    rows: Row = {"tensors": held(shown), "sessions": parties(shown)}
    edges = [tables.edge(edge) for edge in graph.edges]
    about = {"source": source, "live": False, "sampled": {"shown": len(shown), "of": max(known.of, total)}}
    return _document(shown, tables, about, known) | {"records": records, "edges": edges} | rows | judged


def live_view(trace: Records, source: str, origin: int, known: DaemonState) -> Row:
    """The view of what happened in a daemon since the previous view. `origin`: that of the first view."""
    shown = on_devices(trace)
    tables = PageTables(origin)
    records = rows_of(tables, shown.records, ())
    edges = [tables.edge(edge) for edge in own_edges(shown.records)]
    finished = sum(1 for record in shown.records if record.erased)
    unfinished = {"shown": len(shown) - finished, "of": known.live}
    sampled = {"shown": finished, "of": known.of}
    about = {"source": source, "live": True, "sampled": sampled, "unfinished": unfinished}
    rows: Row = {"tensors": known.tensors, "sessions": known.sessions, "advice": [], "why": {}}
    return _document(shown, tables, about, known) | {"records": records, "edges": edges} | rows


def origin_of(trace: Records) -> int:
    """The earliest time in the records; if there is none, the time when the trace was taken."""
    return min((time for record in trace.records for time in times(record) if time), default=trace.until)


def _document(trace: Records, tables: PageTables, about: Row, known: DaemonState) -> Row:
    """The document without its rows: records, edges, tensors, sessions."""
    counts = {"records": len(trace), "dropped": trace.dropped, "taken": trace.until - tables.origin, "origin": 0}
    return {
        "version": VERSION,
        "about": {**about, **counts, "devices": list(trace.devices), "run": known.run, "note": known.note},
        "streams": tables.streams,
        "texts": tables.texts,
        "memory": curves(trace, known.limits, tables.origin, complete=not about["live"]),
    }
