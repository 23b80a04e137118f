"""`tensord trace stats` and `trace diff`: sums over one trace, and what changed from one to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..drawing.figures import count, plural, size
from ..line import options
from ..line.output import print_json
from .selection import no_records, selects
from .source import about_source, load, source

if TYPE_CHECKING:
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.sums.stats import Change, Row, StreamRow


@click.command()
@source
@options.address
@selects
@options.rows(12)
@options.as_json
def stats(file: Path | None, *, address: str | None, chooses: Filter, limit: int, as_json: bool) -> None:
    """Sum up what ran, per op, line, span, session and stream, and what the streams waited for.

    Example: tensord trace stats run.trace --location train.py
    """
    from ....vm.tracing.analysis.sums.stats import stats as sum_up

    trace = load(file, address, as_json=as_json)
    records = chooses.select(trace.records)
    found = sum_up(trace, records)
    if as_json:
        print_json({**about_source(file), "records": len(records), "dropped": trace.dropped, **asdict(found)})
        return
    if not records:
        click.echo(no_records(chooses))
        return
    lost = f"; {count(trace.dropped)} were lost" if trace.dropped else ""
    click.echo(f"{plural(len(records), 'record')} of {count(len(trace))}{lost}")
    sessions = found.sessions if len(found.sessions) > 1 else ()
    tables = (("op", found.ops), ("location", found.locations), ("span", found.spans), ("session", sessions))
    for title, rows in tables:
        if rows:
            _show_rows(title, rows, limit)
    _show_streams(found.streams)


_COLUMNS = (
    "spans>",
    "count>",
    "total>",
    "mean>",
    "p99>",
    "blocked>",
    "queued>",
    "bytes>",
    "GB/s>",
    "GFLOP/s>",
    "moved>",
    "failed>",
)
_SPARE = ("failed>", "spans>", "moved>", "GFLOP/s>", "GB/s>", "p99>", "queued>", "blocked>")


def _show_rows(title: str, rows: Sequence[Row], limit: int) -> None:
    from ..drawing.tables import print_table

    shown = rows[:limit] if limit else rows
    more = len(rows) - len(shown)
    caption = f"and {plural(more, 'row')} more; --limit 0 lists all" if more else ""
    print_table((title, *_COLUMNS), [_cells(row) for row in shown], caption=caption, folded=(title,), spare=_SPARE)


def _cells(row: Row) -> tuple[str, ...]:
    from ....vm.tracing.analysis.recorded.text import duration
    from ....vm.tracing.analysis.recorded.volume import rate

    times = (row.total, round(row.mean), row.p99, row.blocked, row.queued)
    return (
        row.key,
        count(row.paths) if row.paths > 1 else "",
        count(row.count),
        *(duration(ns) if ns else "" for ns in times),
        size(row.touched) if row.touched else "",
        rate(row.touched, row.timed),
        rate(row.operations, row.rated),
        size(row.moved) if row.moved else "",
        count(row.failed) if row.failed else "",
    )


def _show_streams(rows: Sequence[StreamRow]) -> None:
    from ....vm.tracing.analysis.recorded.text import duration
    from ....vm.tracing.analysis.sums.stats import CAUSES
    from ..drawing.tables import print_table

    cells = [
        (
            row.stream,
            count(row.count),
            duration(row.busy),
            *(duration(row.lost[cause]) if row.lost[cause] else "" for cause in CAUSES),
        )
        for row in rows
    ]
    columns = ("stream", "count>", "busy>", *(f"{cause}>" for cause in CAUSES))
    print_table(columns, cells, title="what each stream did, and what it waited for:", spare=("count>",))


@click.command()
@click.argument("before", type=options.FILE, metavar="A", help="A saved trace.")
@click.argument("after", type=options.FILE, metavar="B", help="The trace to compare with it.")
@selects
@options.rows(20)
@options.as_json
def diff(before: Path, after: Path, *, chooses: Filter, limit: int, as_json: bool) -> None:
    """Compare two traces, per op and line: what got slower, what was called more often.

    Example: tensord trace diff before.trace after.trace --op matmul
    """
    from ....vm.tracing.analysis.sums.stats import diff as compare

    traces = [load(file, None, as_json=as_json) for file in (before, after)]
    changes = compare(*(chooses.select(trace.records) for trace in traces))
    if as_json:
        print_json({"before": str(before), "after": str(after), "changes": [_plain(change) for change in changes]})
        return
    if not changes:
        click.echo(no_records(chooses))
    _show_speed([change for change in changes if change.before.count and change.after.count], limit)
    _show_counts([change for change in changes if change.more], limit)


def _plain(change: Change) -> dict[str, object]:
    return {**asdict(change), "slower": change.slower, "more": change.more}


def _show_speed(changes: Sequence[Change], limit: int) -> None:
    """What a call takes, before and after."""
    _show_changes(
        sorted(changes, key=attrgetter("slower"), reverse=True),
        ("count>", "mean before>", "mean after>", "times>", "slower by>", "moved>"),
        _speed_cells,
        "slower",
        limit,
        "what got slower per call, by most in all of its calls first; what got faster, by most last:",
    )


def _show_counts(changes: Sequence[Change], limit: int) -> None:
    """What was called more or less often."""
    _show_changes(
        sorted(changes, key=attrgetter("more"), reverse=True),
        ("calls before>", "calls after>", "total>", "moved>"),
        _count_cells,
        "more",
        limit,
        "what was called more often, by most time first; what was called less often, by most last:",
    )


def _show_changes(
    changes: Sequence[Change],
    columns: Sequence[str],
    cells: Callable[[Change], tuple[str, ...]],
    by: str,
    limit: int,
    title: str,
) -> None:
    """The changes, in their order; with a limit those that matter most."""
    from ..drawing.tables import print_table

    largest = sorted(changes, key=lambda change: abs(getattr(change, by)), reverse=True)[: limit or None]
    shown = [change for change in changes if change in largest]
    more = len(changes) - len(shown)
    print_table(
        ("op", "location", *columns),
        [(change.op, change.location, *cells(change)) for change in shown],
        title=title,
        caption=f"and {plural(more, 'row')} that changed less; --limit 0 lists all" if more else "",
        folded=("location",),
        spare=("moved>", "count>"),
    )


def _speed_cells(change: Change) -> tuple[str, ...]:
    from ....vm.tracing.analysis.recorded.text import duration

    before, after = change.before, change.after
    return (
        count(after.count),
        *(duration(round(row.mean)) for row in (before, after)),
        f"{after.mean / before.mean:.2f}x" if before.mean and after.mean else "",
        _signed(round(change.slower), duration),
        _signed(0 if change.more else change.moved, size),
    )


def _count_cells(change: Change) -> tuple[str, ...]:
    from ....vm.tracing.analysis.recorded.text import duration

    counts = (count(change.before.count), count(change.after.count))
    return (*counts, _signed(round(change.more), duration), _signed(change.moved, size))


def _signed(amount: int, text: Callable[[int], str]) -> str:
    """`+3 ms`, `-3 ms`; empty for 0."""
    return f"{'-' if amount < 0 else '+'}{text(abs(amount))}" if amount else ""
