"""`tensord trace stats`: shows sums over a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..drawing.figures import count, plural, size, some
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import in_json, print_json
from .source import about_source, load, no_records, selects, source

if TYPE_CHECKING:
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.sums.stats import StatsRow, StreamRow


@click.command()
@source
@options.address
@selects
@options.rows(12)
@options.as_json
def stats(file: Path | None, *, address: str | None, chooses: Filter, limit: int) -> None:
    """Sum up the time per op, line, span, session and stream, and what the streams waited for.

    Example: tensord trace stats run.trace --location train.py
    """
    from ....vm.tracing.analysis.sums.stats import stats as sum_up

    trace = load(file, address)
    records = chooses.select(trace.records)
    sums = sum_up(trace, records)
    if in_json():
        print_json({**about_source(file), "records": len(records), "dropped": trace.dropped, **asdict(sums)})
        return
    if not records:
        click.echo(no_records(chooses))
        return
    lost = f"; {count(trace.dropped)} were lost" if trace.dropped else ""
    click.echo(f"{plural(len(records), 'record')} of {count(len(trace))}{lost}")
    sessions = sums.sessions if len(sums.sessions) > 1 else ()
    tables = (("op", sums.ops), ("location", sums.locations), ("span", sums.spans), ("session", sessions))
    for title, rows in tables:
        if rows:
            _show_rows(title, rows, limit)
    _show_streams(sums.streams)


def _show_rows(title: str, rows: Sequence[StatsRow], limit: int) -> None:
    from ....vm.tracing.analysis.recorded.derived import rate
    from ....vm.tracing.analysis.recorded.text import duration

    columns = (
        Column(title, attrgetter("key"), folds=True),
        Column("spans>", lambda row: count(row.paths) if row.paths > 1 else "", spare=2),
        Column("count>", lambda row: count(row.count)),
        Column("total>", lambda row: some(duration, row.total)),
        Column("mean>", lambda row: some(duration, round(row.mean))),
        Column("p99>", lambda row: some(duration, row.p99), spare=6),
        Column("blocked>", lambda row: some(duration, row.blocked), spare=8),
        Column("queued>", lambda row: some(duration, row.queued), spare=7),
        Column("bytes>", lambda row: some(size, row.touched)),
        Column("GB/s>", lambda row: rate(row.touched, row.timed), spare=5),
        Column("GFLOP/s>", lambda row: rate(row.operations, row.rated), spare=4),
        Column("moved>", lambda row: some(size, row.moved), spare=3),
        Column("hidden>", hidden, spare=2),
        Column("failed>", lambda row: some(count, row.failed), spare=1),
    )
    shown = rows[: limit or None]
    more = len(rows) - len(shown)
    print_table(columns, shown, caption=f"and {plural(more, 'row')} more; --limit 0 lists all" if more else "")


def hidden(row: StatsRow) -> str:
    """The share of the time of transfers and collectives in which the same device computed, as text."""
    return f"{row.hidden / row.moving:.0%}" if row.moving else ""


def _show_streams(rows: Sequence[StreamRow]) -> None:
    from ....vm.tracing.analysis.recorded.text import duration
    from ....vm.tracing.analysis.sums.stats import CAUSES

    def lost(cause: str) -> Column:
        return Column(f"{cause}>", lambda row: some(duration, row.lost[cause]), folds=True)

    columns = (
        Column("stream", attrgetter("stream"), folds=True),
        Column("count>", lambda row: count(row.count), folds=True, spare=1),
        Column("busy>", lambda row: duration(row.busy), folds=True),
        *map(lost, CAUSES),
    )
    print_table(columns, rows, title="what each stream did, and what it waited for:")
