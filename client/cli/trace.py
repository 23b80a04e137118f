"""`tensord trace`: verify a trace, draw it, and ask why an instruction took so long.

Every command reads a saved trace file, or else the ring of a running daemon.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from . import dag, memory, show, stats
from . import record as cli_record
from .ask import print_json
from .figures import count, plural
from .options import Address, Json
from .output import Out, write
from .selection import Location, Op, SessionId, Slowest, SpanName, chosen
from .source import Source, about_source, counts_of, load

if TYPE_CHECKING:
    from ...vm.tracing.analysis.verify import Problem

app = typer.Typer(
    help="Record, verify, draw and explain what a daemon did, from a saved FILE or from the running daemon.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class TimelineFormat(StrEnum):
    """The output formats of `trace timeline`."""

    CHROME = "chrome"


def add(parent: typer.Typer) -> None:
    """Register the commands."""
    parent.add_typer(app, name="trace")


_PROBLEMS_SHOWN = 50


@app.callback(invoke_without_command=True)
def _trace(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


cli_record.add(app)
show.add(app)
stats.add(app)
memory.add(app)
dag.add(app)


@app.command()
def verify(file: Source = None, address: Address = None, as_json: Json = False) -> None:
    """Recompute every edge and report each mismatch. Exits with 1 if there is one.

    Example: tensord trace verify run.trace
    """
    trace = load(file, address, as_json=as_json)
    problems = trace.verify()
    counts = counts_of(trace)
    if as_json:
        found = [
            {
                "kind": problem.kind,
                "instruction": problem.instruction,
                "source": problem.source,
                "copy": problem.copy,
                "message": problem.message,
            }
            for problem in problems
        ]
        print_json({**about_source(file), **counts, "problems": found})
    else:
        _show_problems(counts, problems)
    if problems:
        raise typer.Exit(1)


@app.command()
def timeline(
    file: Source = None,
    *,
    address: Address = None,
    output: Out = None,
    output_format: Annotated[TimelineFormat, typer.Option("--format", help="What to write.")] = TimelineFormat.CHROME,
    op: Op = "",
    location: Location = "",
    span: SpanName = "",
    session: SessionId = None,
    slowest: Slowest = None,
    flows: Annotated[int, typer.Option(min=0, help="At most this many arrows for edges.")] = 20_000,
    as_json: Annotated[bool, typer.Option("--json", help="Errors as JSON, too; the timeline always is.")] = False,  # noqa: ARG001 - `main` looks for it
) -> None:
    """Write a timeline that https://ui.perfetto.dev or chrome://tracing opens.

    Example: tensord trace timeline -o run.json
    """
    from ...vm.tracing.analysis import timeline

    trace = load(file, address)
    chooses = chosen(op, location, span, session, slowest)
    writer = {TimelineFormat.CHROME: timeline.to_chrome}[output_format]
    write(writer(trace.only(chooses.select(trace.records)) if chooses else trace, flows=flows), output)


@app.command()
def why(
    instruction: Annotated[int, typer.Argument(metavar="ID", help="The instruction.", show_default=False)],
    file: Source = None,
    depth: Annotated[int, typer.Option(min=0, max=200, help="How far to follow edges.")] = 6,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Explain why an instruction took so long: what it waited for, what that waited for, and the critical path.

    Example: tensord trace why 4711
    """
    from ...vm.tracing.analysis.why import why as explain
    from ...vm.tracing.analysis.why_export import to_json, to_text

    explanation = explain(load(file, address, as_json=as_json), instruction, depth=depth)
    write(to_json(explanation) if as_json else to_text(explanation), None)


def _show_problems(counts: dict[str, int], problems: list[Problem]) -> None:
    from collections import Counter

    from .terminal import print_table

    kinds = Counter(str(problem.kind) for problem in problems)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    verdict = f"{plural(len(problems), 'problem')}: {listed}" if problems else "every edge is as it should be"
    lost = f" ({count(counts['dropped'])} older ones lost)" if counts["dropped"] else ""
    typer.echo(verdict)
    typer.echo(
        f"{plural(counts['records'], 'record')}{lost}, {plural(counts['edges'], 'edge')} waited or elided, "
        f"{plural(counts['met'], 'dependence')} met at admission"
    )
    if problems:
        shown = problems[:_PROBLEMS_SHOWN]
        caption = f"{len(shown)} of {len(problems)}; --json lists all"
        rows = [(f"#{problem.instruction}", problem.kind.value, problem.message) for problem in shown]
        print_table(("instruction>", "problem", "what"), rows, caption=caption)
