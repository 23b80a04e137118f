"""`tensord trace advise`: finds avoidable costs in a trace, their lines, and how to avoid them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..drawing.figures import plural
from ..drawing.tables import wrapped
from ..drawing.terminal import bold, print_lines, width_of_stdout
from ..line import options
from ..line.options import in_json, print_json
from .source import about_source, load, selects, source

if TYPE_CHECKING:
    from ....vm.tracing.analysis.advice.advise import Advice
    from ....vm.tracing.analysis.recorded.filter import Filter

_INDENT = 2


@click.command()
@source
@options.address
@selects
@click.option("--limit", type=click.IntRange(min=0), default=10, help="Show at most this many findings; 0 for all.")
@options.as_json
def advise(file: Path | None, *, address: str | None, chooses: Filter, limit: int) -> None:
    """Find avoidable costs: which lines cause them, how much time they take, and how to avoid them.

    Transfers, uploads, small ops, waits, evictions, sessions that delay others, kernels compiled in the middle of work.

    Example: tensord trace advise run.trace --location train.py
    """
    from ....vm.tracing.analysis.advice.advice_text import plain
    from ....vm.tracing.analysis.advice.advise import advise as find

    trace = load(file, address)
    advice = find(trace, {record.id for record in chooses.select(trace.records)} if chooses else None)
    shown = advice.findings[: limit or None]
    if in_json():
        print_json(
            {
                **about_source(file),
                "records": len(trace),
                "dropped": trace.dropped,
                "length": advice.length,
                "minor": advice.minor,
                "findings": [plain(one) for one in shown],
            }
        )
    else:
        _show(advice, len(shown))


def _show(advice: Advice, shown: int) -> None:
    from ....vm.tracing.analysis.advice.advice_text import head, minor, to_lines

    click.echo(head(advice))
    room = width_of_stdout() - _INDENT
    for finding in advice.findings[:shown]:
        first, *lines = to_lines(finding, advice.length)
        print_lines(("", bold(first)))
        print_lines(" " * _INDENT + part for line in lines for part in wrapped(line, room))
    more = len(advice.findings) - shown
    notes = [f"{plural(more, 'finding')} more; --limit 0 lists all" if more else "", minor(advice)]
    print_lines(["", *filter(None, notes)] if any(notes) else [])
