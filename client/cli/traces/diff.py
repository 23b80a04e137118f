"""`tensord trace diff`: shows the changes from one trace to another."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..drawing.figures import count, plural, size
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import in_json, print_json
from .source import load, no_records, selects_but_sessions

if TYPE_CHECKING:
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.sums.diff import Change


class Sessions(click.ParamType[tuple[int, int]]):
    """The sessions to compare: `3` in both traces, or `3:5`, session 3 of the first and 5 of the second."""

    name = "id|a:b"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """The two sessions. BadParameter if the text is neither form."""
        before, _, after = value.partition(":")
        if not (before.isdecimal() and (after or before).isdecimal()) or value.endswith(":"):
            self.fail(
                f"{value!r} is neither a session, such as 3, nor a session of A and one of B, such as 3:5", param, ctx
            )
        return int(before), int(after or before)


@click.command()
@click.argument("before", type=options.FILE, metavar="A", help="A saved trace.")
@click.argument("after", type=options.FILE, metavar="B", help="The trace to compare with the first one.")
@click.option(
    "--session", "sessions", type=Sessions(), help="Only this session; or 3:5, session 3 of A and session 5 of B."
)
@selects_but_sessions
@options.rows(20)
@options.as_json
def diff(before: Path, after: Path, *, sessions: tuple[int, int] | None, chooses: Filter, limit: int) -> None:
    """Compare two traces by op and line: slower, called more often, new, or gone.

    A line is recognized after an edit, by its function, its position there and its ops.

    Example: tensord trace diff before.trace after.trace --op matmul
    """
    changes = _changes((before, after), sessions or (None, None), chooses)
    if in_json():
        print_json({"before": str(before), "after": str(after), "changes": [_plain(change) for change in changes]})
        return
    if not changes:
        click.echo(no_records(chooses))
    _show(changes, limit)


def _changes(files: tuple[Path, Path], sessions: tuple[int | None, int | None], chooses: Filter) -> list[Change]:
    """The changes that the options select.

    All records of the sessions are used to match lines. --location may name a line of either trace.
    """
    from ....vm.tracing.analysis.recorded.device_times import on_devices
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.sums.diff import diff as compare
    from ....vm.tracing.analysis.sums.diff import same_lines

    pairs = zip(files, sessions, strict=True)
    before, after = [Filter(session=session).select(on_devices(load(file)).records) for file, session in pairs]
    anywhere, there = replace(chooses, location=""), Filter(location=chooses.location)
    changes = compare(anywhere.select(before), anywhere.select(after), same_lines(before, after))
    return [one for one in changes if any(there.may_have_made("", 0, line) for line in (one.location, one.was))]


def _plain(change: Change) -> dict[str, object]:
    return {**asdict(change), "kind": change.kind, "slower": change.slower, "more": change.more}


def _show(changes: Sequence[Change], limit: int) -> None:
    both = [change for change in changes if change.kind == "both"]
    _show_changes(
        both,
        SPEED,
        attrgetter("slower"),
        limit,
        "slower or faster per call, by the time of all calls; the largest slowdown first:",
    )
    _show_changes(
        [change for change in both if change.more],
        COUNTS,
        attrgetter("more"),
        limit,
        "called more or less often, by the time that this makes; the largest increase first:",
    )
    for kind, title, side in (
        ("new", "only in the second trace:", "after"),
        ("gone", "only in the first trace:", "before"),
    ):
        found = [change for change in changes if change.kind == kind]
        _show_changes(found, _sums(side), attrgetter(f"{side}.total"), limit, title)


def _location(change: Change) -> str:
    """The line in the second trace, and the line in the first if it differs."""
    moved = change.kind == "both" and change.was != change.location
    return f"{change.location} (was {_short(change.was, change.location)})" if moved else change.location or change.was


def _short(was: str, location: str) -> str:
    """The line's former number, such as `:9`, if only the number has changed; else the whole former location."""
    numbers = re.findall(r"(?::|, line )\d+", was)
    same = re.sub(r"\d+", "", was) == re.sub(r"\d+", "", location)
    return ", ".join(numbers) if same and len(numbers) == 1 else was


def _duration(ns: float) -> str:
    from ....vm.tracing.analysis.recorded.text import duration

    return duration(round(ns))


def _times(change: Change) -> str:
    before, after = change.before, change.after
    return f"{after.mean / before.mean:.2f}x" if before.mean and after.mean else ""


def _show_changes(
    changes: Sequence[Change], columns: Sequence[Column], by: Callable[[Change], float], limit: int, title: str
) -> None:
    """Print the changes, the worst first; with a limit, only the largest ones."""
    ordered = sorted(changes, key=lambda change: abs(by(change)), reverse=True)
    shown = sorted(ordered[: limit or None], key=by, reverse=True)
    more = len(changes) - len(shown)
    print_table(
        (Column("op", attrgetter("op")), Column("location", _location, folds=True), *columns),
        shown,
        title=title,
        caption=f"and {plural(more, 'row')} that changed less; --limit 0 lists all" if more else "",
    )


def _signed(amount: int, text: Callable[[int], str]) -> str:
    """An amount with its sign, such as `+3 ms`; empty for 0."""
    return f"{'-' if amount < 0 else '+'}{text(abs(amount))}" if amount else ""


SPEED: Final = (
    Column("count>", lambda change: count(change.after.count), spare=2),
    Column("mean before>", lambda change: _duration(change.before.mean)),
    Column("mean after>", lambda change: _duration(change.after.mean)),
    Column("times>", _times),
    Column("slower by>", lambda change: _signed(round(change.slower), _duration)),
    Column("moved>", lambda change: _signed(0 if change.more else change.moved, size), spare=1),
)
COUNTS: Final = (
    Column("calls before>", lambda change: count(change.before.count)),
    Column("calls after>", lambda change: count(change.after.count)),
    Column("total>", lambda change: _signed(round(change.more), _duration)),
    Column("moved>", lambda change: _signed(change.moved, size), spare=1),
)


def _sums(side: str) -> Sequence[Column]:
    """The columns of the table of ops that are in only one of the traces."""
    row = attrgetter(side)
    return (
        Column("calls>", lambda change: count(row(change).count)),
        Column("total>", lambda change: _duration(row(change).total)),
        Column("mean>", lambda change: _duration(row(change).mean), spare=2),
        Column("moved>", lambda change: size(row(change).moved) if row(change).moved else "", spare=1),
    )
