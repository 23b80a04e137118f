"""`tensord trace show`: the records of a trace as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .ask import print_json
from .figures import plural, size
from .selection import no_records, selects
from .source import about_source, counts_of, load, source

if TYPE_CHECKING:
    from ...vm.tracing.analysis.filter import Filter
    from ...vm.tracing.analysis.stream_order import StreamOrder
    from ...vm.tracing.analysis.trace import Trace
    from ...vm.tracing.record import Record

_EDGES_SHOWN = 4


@click.command()
@source
@options.address
@click.option("--limit", type=click.IntRange(min=0), default=50, help="Only this many, from the end; 0 for all.")
@selects
@click.option("--id", "ids", type=int, multiple=True, help="Only this instruction; may be repeated.")
@click.option("--around", type=int, help="Only the neighbourhood of this instruction.")
@click.option("--depth", type=click.IntRange(min=0), default=2, help="How many edges the neighbourhood reaches.")
@options.as_json
def show(
    file: Path | None,
    *,
    address: str | None,
    limit: int,
    chooses: Filter,
    ids: Sequence[int],
    around: int | None,
    depth: int,
    as_json: bool,
) -> None:
    """List the records.

    Example: tensord trace show --limit 20
    """
    from ...vm.tracing.analysis.plain import as_dict

    trace = load(file, address, as_json=as_json)
    found: Sequence[Record] = trace.records
    if ids or around is not None:
        found = trace.graph().select(ids=ids, around=around, depth=depth, releases=True).nodes
    found = chooses.select(found)
    records = found[-limit:] if limit else found
    if as_json:
        fields = [as_dict(record) | {"run": _run(trace, record)} for record in records]
        about = {"devices": trace.devices, "taken": trace.taken}
        print_json({**about_source(file), **counts_of(trace), **about, "shown": fields})
    else:
        _show_records(trace, records, cut=len(found) - len(records), chooses=chooses)


def _run(trace: Trace, record: Record) -> dict[str, object] | None:
    """The run that a record is of, for programs."""
    found = trace.run_of(record)
    if found is None:
        return None
    routine = trace.routines.get(found.routine)
    about = {} if routine is None else {"name": routine.name, "program": routine.digest}
    return {**found._asdict(), **about}


_COLUMNS = ("id>", "session>", "op", "of", "status", "where", "waits for", "blocked>", "queued>", "ran>")
_RATES = ("bytes>", "GB/s>", "GFLOP/s>")
_FOLDED = ("of", "waits for", "location", "run", "span", "error")


def _show_records(trace: Trace, records: Sequence[Record], *, cut: int, chooses: Filter) -> None:
    from ...vm.tracing.analysis.stream_order import StreamOrder
    from .terminal import print_table

    order = StreamOrder(trace)
    several = len({record.session for record in records if record.session}) > 1
    lost = f", {trace.dropped} lost before them" if trace.dropped else ""
    all_of_them = "; --limit 0 lists all" if cut else ""
    print_table(
        (*_COLUMNS, *_RATES, "location", "run", "span", "error"),
        [_row(record, trace, order, session=str(record.session or "") if several else "") for record in records],
        caption=f"{len(records)} of {plural(len(trace), 'record')}{lost}{all_of_them}",
        folded=_FOLDED,
        spare=(
            "span",
            "run",
            "GB/s>",
            "GFLOP/s>",
            "location",
            "bytes>",
            "session>",
            "blocked>",
            "queued>",
            "of",
            "error",
        ),
        empty=no_records(chooses),
    )


def _row(record: Record, trace: Trace, order: StreamOrder, *, session: str) -> tuple[str, ...]:
    from ...vm.tracing.analysis.text import duration, is_running, place, status
    from ...vm.tracing.analysis.volume import of, operations, rate, touched
    from ...vm.tracing.analysis.why import Story

    story = Story(record, (), told=False, until=order.until)
    blocked, queued, ran = (duration(ns) if ns else "" for ns in (story.blocked, story.queued, story.ran))
    return (
        str(record.id),
        session,
        record.op or record.opcode,
        of(record),
        status(record),
        place(record),
        _waits(record, order),
        blocked,
        queued,
        f"for {ran}" if ran and is_running(record) else ran,
        size(touched(record)) if touched(record) else "",
        rate(touched(record), story.ran),
        rate(operations(record), story.ran),
        record.location,
        trace.run_title(record),
        "/".join(record.span),
        record.error,
    )


def _waits(record: Record, order: StreamOrder) -> str:
    """The sources of the record's edges; also the record ahead of it on its stream, unless an edge names that one."""
    ahead = order.ahead(record)
    sources = {edge.source for edge in record.edges}
    waits = [f"#{edge.source} {edge.reason}" for edge in record.edges[:_EDGES_SHOWN]]
    if ahead is not None and ahead.id not in sources:
        waits.append(f"behind #{ahead.id}")
    more = len(record.edges) - _EDGES_SHOWN
    return ", ".join(waits) + (f" and {more} more" if more > 0 else "")
