"""The group `tensord trace`, and its commands `verify`, `timeline` and `why`.

Every command reads a saved trace file or, without a file, the ring of a running daemon.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..drawing.figures import count, plural
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.commands import Commands, Listed
from ..line.options import in_json, print_json, write
from ..line.options import output as output_option
from .source import about_source, counts_of, load, selects, source

if TYPE_CHECKING:
    from ....vm.tracing.analysis.checks.verify import Problem
    from ....vm.tracing.analysis.recorded.filter import Filter

COMMANDS: Final = {
    "dump": Listed("traces.record", "Save the daemon's recent trace, or a part of it."),
    "record": Listed("traces.record", "Record what the daemon does, until Ctrl-C."),
    "show": Listed("traces.show", "List the records."),
    "stats": Listed(
        "traces.stats", "Sum up the time per op, line, span, session and stream, and what the streams waited for."
    ),
    "diff": Listed("traces.diff", "Compare two traces by op and line: slower, called more often, new, or gone."),
    "advise": Listed(
        "traces.advise", "Find avoidable costs: which lines cause them, how much time they take, and how to avoid them."
    ),
    "replay": Listed(
        "traces.replay", "Run a recording again, on other devices or another machine, and compare every result."
    ),
    "bisect": Listed("traces.bisect", "Find the first op of a recording whose result differs between two machines."),
    "memory": Listed(
        "traces.memory", "Show each device's peak of memory, and the ops and lines that had allocated it."
    ),
    "dag": Listed("traces.dag", "Draw the logical DAG."),
    "verify": Listed(
        "traces.trace", "Recompute every edge, compare compiled routines with their programs, and report mismatches."
    ),
    "timeline": Listed(
        "traces.trace", "Write a timeline: a page, or a file for https://ui.perfetto.dev or chrome://tracing."
    ),
    "why": Listed(
        "traces.trace",
        "Explain why an instruction took so long: the instructions that it waited for, theirs, and the critical path.",
    ),
}
FORMATS: Final = ("chrome", "html")
_PROBLEMS_SHOWN = 50


trace: Final = Commands(
    COMMANDS,
    name="trace",
    help="Record, verify, draw and explain what a daemon did, from a saved FILE or from the running daemon.",
)


@click.command()
@source
@options.address
@options.as_json
def verify(file: Path | None, address: str | None) -> None:
    """Recompute every edge, compare compiled routines with their programs, and report mismatches.

    Exits with 1 if there are any.

    Example: tensord trace verify run.trace
    """
    from ....vm.tracing.analysis.checks.verify import compared

    trace = load(file, address)
    problems = trace.verify()
    counts = counts_of(trace) | {"segments": compared(trace)}
    if in_json():
        print_json({**about_source(file), **counts, "problems": [asdict(problem) for problem in problems]})
    else:
        _show_problems(counts, problems)
    if problems:
        raise click.exceptions.Exit(1)


@click.command()
@source
@options.address
@output_option
@click.option(
    "--format",
    "wanted",
    type=click.Choice(FORMATS),
    help="The format. Default: html if the file's name ends in .html, else chrome.",
)
@selects
@click.option(
    "--flows", type=click.IntRange(min=0), default=20_000, help="The largest number of arrows in the chrome format."
)
@options.json_flag("Reports and errors as JSON, too.")
def timeline(
    file: Path | None,
    *,
    address: str | None,
    output: Path | None,
    wanted: str | None,
    chooses: Filter,
    flows: int,
) -> None:
    """Write a timeline: a page, or a file for https://ui.perfetto.dev or chrome://tracing.

    html is a page in one file, which works without a network; chrome is for the other viewers.

    Example: tensord trace timeline run.trace -o run.html
    """
    from ....vm.tracing.analysis.page.page_file import is_page, page_of_trace
    from ....vm.tracing.analysis.sums.timeline import to_chrome

    trace = load(file, address)
    chosen = trace.only(chooses.select(trace.records)) if chooses else trace
    if wanted == "html" or (wanted is None and output is not None and is_page(output)):
        write(page_of_trace(chosen, "a daemon" if file is None else file.name), output)
    else:
        write(to_chrome(chosen, flows=flows), output)
    if output is not None:
        from .record import report

        written = output.stat().st_size if output.is_file() else 0
        report(output, len(chosen), trace.dropped, written, which="older ones ")


@click.command()
@click.argument("instruction", type=int, metavar="ID", help="The instruction.")
@source
@click.option("--depth", type=click.IntRange(0, 200), default=6, help="How many edges to follow.")
@options.address
@options.as_json
def why(instruction: int, file: Path | None, depth: int, address: str | None) -> None:
    """Explain why an instruction took so long: the instructions that it waited for, theirs, and the critical path.

    Example: tensord trace why 4711
    """
    from ....vm.tracing.analysis.waits.why import why as explain
    from ....vm.tracing.analysis.waits.why_json import to_json
    from ....vm.tracing.analysis.waits.why_text import to_text

    explanation = explain(load(file, address), instruction, depth=depth)
    write(to_json(explanation) if in_json() else to_text(explanation), None)


def _show_problems(counts: dict[str, int], problems: list[Problem]) -> None:
    kinds = Counter(str(problem.kind) for problem in problems)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    verdict = f"{plural(len(problems), 'problem')}: {listed}" if problems else "every edge is correct"
    lost = f" ({count(counts['dropped'])} older ones lost)" if counts["dropped"] else ""
    click.echo(verdict)
    click.echo(
        f"{plural(counts['records'], 'record')}{lost}, {plural(counts['edges'], 'edge')} waited or elided, "
        f"{plural(counts['met'], 'dependence')} met at admission"
    )
    if counts["segments"]:
        click.echo(f"{plural(counts['segments'], 'segment')} of routines compared with their programs")
    if problems:
        shown = problems[:_PROBLEMS_SHOWN]
        caption = f"{len(shown)} of {len(problems)}; --json lists all"
        print_table(COLUMNS, shown, caption=caption)


COLUMNS: Final = (
    Column("instruction>", lambda problem: f"#{problem.instruction}", folds=True),
    Column("problem", lambda problem: problem.kind.value, folds=True),
    Column("what", attrgetter("message"), folds=True),
)
