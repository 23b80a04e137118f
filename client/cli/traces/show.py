"""`tensord trace show`: lists the records of a trace in a table, or as JSON.

The options choose records: by id or neighbourhood in the graph of dependences first, then by the filters that all
commands on traces have (`source.selects`), then the last ones up to --limit. With --inside the steps of runs follow
their run's row; they have no status and waited for nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from ..drawing.figures import count, plural, size, some
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import in_json, print_json
from .recorded_values import print_contents
from .source import NOTHING_INSIDE, about_source, counts_of, load, no_records, selects, source

if TYPE_CHECKING:
    from ....vm.tracing.analysis.inside.steps import Inner
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.recorded.stream_order import StreamOrder
    from ....vm.tracing.analysis.trace import Trace
    from ....vm.tracing.record import Record

_EDGES_SHOWN = 4  # of a record, in the column "waits for"


@click.command()
@source
@options.address
@click.option(
    "--limit", type=click.IntRange(min=0), default=50, help="Only this many records, the last ones; 0 for all."
)
@selects
@click.option("--id", "ids", type=int, multiple=True, help="Only this instruction; may be given several times.")
@click.option("--around", type=int, help="Only the instructions near this one.")
@click.option(
    "--depth", type=click.IntRange(min=0), default=2, help="How many edges away an instruction may be to count as near."
)
@click.option(
    "--inside", is_flag=True, help="List the steps inside runs of routines, and where their values lie in memory."
)
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
    inside: bool,
) -> None:
    """List the records.

    Example: tensord trace show --limit 20
    """
    trace = load(file, address)
    if file is not None and not in_json():
        print_contents(file)
    selected: Sequence[Record] = trace.records
    if ids or around is not None:
        selected = trace.graph().select(ids=ids, around=around, depth=depth, releases=True).nodes
    selected = chooses.select(selected)
    records = selected[-limit:] if limit else selected
    steps = _steps(trace, records) if inside else {}
    if in_json():
        fields = [_fields(trace, record, steps) for record in records]
        about = {"devices": trace.devices, "taken": trace.taken}
        print_json({**about_source(file), **counts_of(trace), **about, "shown": fields})
    else:
        _show_records(trace, records, steps, cut=len(selected) - len(records), chooses=chooses)


# From the id of a run to its steps.
_Steps: TypeAlias = "Mapping[int, Sequence[tuple[Record, Inner]]]"


def _steps(trace: Trace, records: Sequence[Record]) -> _Steps:
    """The steps of each run whose program is in the trace. Prints a hint if there are none."""
    from ....vm.tracing.analysis.inside.steps import Opener

    opener = Opener(trace)
    steps = {record.id: opened.steps for record in records if (opened := opener.opened(record)) is not None}
    if not steps:
        click.echo(NOTHING_INSIDE, err=True)
    return steps


def _fields(trace: Trace, record: Record, steps: _Steps) -> dict[str, object]:
    """A record as JSON, with its steps if they are in `steps`."""
    from ....vm.tracing.analysis.inside.steps import inner_dict
    from ....vm.tracing.analysis.recorded.derived import as_dict

    fields = as_dict(record) | {"run": _run(trace, record)}
    if record.id in steps:
        fields["inside"] = [as_dict(step) | {"inside": inner_dict(inner)} for step, inner in steps[record.id]]
    return fields


def _run(trace: Trace, record: Record) -> dict[str, object] | None:
    """The run to which a record belongs, as JSON; None if there is none."""
    run = trace.run_of(record)
    if run is None:
        return None
    routine = trace.routines.get(run.routine)
    about = {} if routine is None else {"name": routine.name, "program": routine.digest}
    return {**run._asdict(), **about}


# `>`: aligned to the right. On a narrow terminal columns with `spare` are left out, and those that `folds` are wrapped.
COLUMNS: Final = (
    Column("id>"),
    Column("session>", spare=7),
    Column("op"),
    Column("of", folds=True, spare=10),
    Column("status"),
    Column("where"),
    Column("waits for", folds=True),
    Column("blocked>", spare=8),
    Column("queued>", spare=9),
    Column("ran>"),
    Column("bytes>", spare=6),
    Column("GB/s>", spare=3),
    Column("GFLOP/s>", spare=4),
    Column("location", folds=True, spare=5),
    Column("run", folds=True, spare=2),
    Column("span", folds=True, spare=1),
    Column("error", folds=True, spare=11),
)


def _show_records(trace: Trace, records: Sequence[Record], steps: _Steps, *, cut: int, chooses: Filter) -> None:
    from ....vm.tracing.analysis.recorded.stream_order import StreamOrder

    several = len({record.caused_by for record in records if record.caused_by}) > 1
    lost = f", {count(trace.dropped)} lost before them" if trace.dropped else ""
    all_of_them = "; --limit 0 lists all" if cut else ""
    print_table(
        COLUMNS,
        _rows(trace, records, steps, StreamOrder(trace), several=several),
        caption=f"{count(len(records))} of {plural(len(trace), 'record')}{lost}{all_of_them}",
        empty=no_records(chooses),
    )


def _rows(
    trace: Trace, records: Sequence[Record], steps: _Steps, order: StreamOrder, *, several: bool
) -> Iterator[dict[str, object]]:
    """A row for each record, followed by a row for each of its steps, if it is a run."""
    for record in records:
        session = {"session": record.caused_by or ""} if several else {}
        yield _row(record, trace, order) | session
        for step, inner in steps.get(record.id, ()):
            row = _row(step, trace, order)
            fusion = f"fusion {inner.fusion}: " if inner.fusion else ""
            unknown = dict.fromkeys(("status", "blocked", "queued"), "")
            yield row | unknown | {"op": f"  {row['op']}", "where": f"{fusion}{inner.memory}"}


def _row(record: Record, trace: Trace, order: StreamOrder) -> dict[str, object]:
    from ....vm.tracing.analysis.recorded.derived import operands_text, operations, rate, touched
    from ....vm.tracing.analysis.recorded.text import duration, full_stream_name, id_text, is_running, status
    from ....vm.tracing.analysis.waits.why import Story

    story = Story(record, (), expanded=False, until=order.until)
    ran = some(duration, story.ran)
    return {
        "id": id_text(record.id),
        "op": record.op or record.opcode,
        "of": operands_text(record),
        "status": status(record),
        "where": full_stream_name(record),
        "waits for": _waits(record, order),
        "blocked": some(duration, story.blocked),
        "queued": some(duration, story.queued),
        "ran": f"for {ran}" if ran and is_running(record) else ran,
        "bytes": some(size, touched(record)),
        "GB/s": rate(touched(record), story.ran),
        "GFLOP/s": rate(operations(record), story.ran),
        "location": record.location,
        "run": trace.run_title(record),
        "span": "/".join(record.span),
        "error": record.error,
    }


def _waits(record: Record, order: StreamOrder) -> str:
    """The sources of a record's edges, and the instruction ahead on the stream if no edge leads to it."""
    from ....vm.tracing.analysis.recorded.text import compiles, id_text
    from ....vm.tracing.flat import COMPILING

    ahead = order.ahead(record)
    sources = {edge.source for edge in record.edges}
    waits = [f"#{id_text(edge.source)} {edge.reason}" for edge in record.edges[:_EDGES_SHOWN]]
    if ahead is not None and ahead.id not in sources:
        waits.append(f"behind #{ahead.id}")
    if compiles(record):
        waits.append(COMPILING)
    more = len(record.edges) - _EDGES_SHOWN
    return ", ".join(waits) + (f" and {more} more" if more > 0 else "")
