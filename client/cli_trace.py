"""`tensord trace`: look at saved traces. Verify them, draw them, and ask why an instruction took so long."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..vm.tracing.graph import Graph
    from ..vm.tracing.record import Record
    from ..vm.tracing.trace import Trace
    from ..vm.tracing.verify import Problem

app = typer.Typer(
    help="Look at saved traces: verify, draw, explain.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class DagFormat(StrEnum):
    """What `trace dag` writes."""

    DOT = "dot"
    MERMAID = "mermaid"
    JSON = "json"


class TimelineFormat(StrEnum):
    """What `trace timeline` writes."""

    CHROME = "chrome"


File = Annotated[Path, typer.Argument(help="A trace saved by tensord.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout.")]
Out = Annotated[Path | None, typer.Option("-o", "--output", help="Write here instead of to stdout.")]

# Beyond this, a picture of all nodes helps nobody.
_CROWDED = 1000
_PROBLEMS_SHOWN = 50
_EDGES_SHOWN = 4


@app.callback(invoke_without_command=True)
def _trace(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def verify(file: File, as_json: Json = False) -> None:
    """Recompute every edge and report what does not fit. Exits with 1 if anything does not."""
    trace = _load(file)
    problems = trace.verify()
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
        _print_json({"file": str(file), **_counts(trace), "problems": found})
    else:
        _show_problems(trace, problems)
    if problems:
        raise typer.Exit(1)


@app.command()
def dag(
    file: File,
    *,
    output: Out = None,
    output_format: Annotated[DagFormat, typer.Option("--format", help="What to write.")] = DagFormat.DOT,
    session: Annotated[int | None, typer.Option(help="Only this session.")] = None,
    ids: Annotated[list[int] | None, typer.Option("--id", help="Only this instruction; may be repeated.")] = None,
    around: Annotated[int | None, typer.Option(help="Only the neighbourhood of this instruction.")] = None,
    depth: Annotated[int, typer.Option(min=0, help="How many edges the neighbourhood reaches.")] = 2,
    first: Annotated[int | None, typer.Option(min=0, help="Only so many, from the beginning.")] = None,
    last: Annotated[int | None, typer.Option(min=0, help="Only so many, from the end.")] = None,
    releases: Annotated[bool, typer.Option("--releases", help="Show ReleaseTensor, too.")] = False,
) -> None:
    """Draw the logical DAG: `tensord trace dag run.trace | dot -Tsvg > run.svg`."""
    from ..vm.tracing.graph_export import to_dot, to_json, to_mermaid

    graph = _load(file).graph()
    graph = graph.select(
        session=session, ids=ids or (), around=around, depth=depth, first=first, last=last, releases=releases
    )
    write = {DagFormat.DOT: to_dot, DagFormat.MERMAID: to_mermaid, DagFormat.JSON: to_json}[output_format]
    _write(write(graph), output)
    if output_format != DagFormat.JSON and len(graph.nodes) > _CROWDED:
        _hint_crowded(graph)


@app.command()
def timeline(
    file: File,
    output: Out = None,
    output_format: Annotated[TimelineFormat, typer.Option("--format", help="What to write.")] = TimelineFormat.CHROME,
    flows: Annotated[int, typer.Option(min=0, help="At most so many arrows for edges.")] = 20_000,
) -> None:
    """Write a timeline that https://ui.perfetto.dev or chrome://tracing opens."""
    from ..vm.tracing import timeline

    write = {TimelineFormat.CHROME: timeline.to_chrome}[output_format]
    _write(write(_load(file), flows=flows), output)


@app.command()
def why(
    file: File,
    instruction: Annotated[int, typer.Argument(metavar="ID", help="The instruction.", show_default=False)],
    depth: Annotated[int, typer.Option(min=0, max=200, help="How far to follow edges.")] = 6,
    as_json: Json = False,
) -> None:
    """Explain why an instruction took so long: what it waited for, what that waited for, and the critical path."""
    from ..vm.tracing.why import why as explain
    from ..vm.tracing.why_export import to_json, to_text

    explanation = explain(_load(file), instruction, depth=depth)
    _write(to_json(explanation) if as_json else to_text(explanation), None)


@app.command()
def show(
    file: File,
    limit: Annotated[int, typer.Option(min=0, help="Only so many, from the end; 0 for all.")] = 50,
    as_json: Json = False,
) -> None:
    """List the records."""
    trace = _load(file)
    records = trace.records[-limit:] if limit else trace.records
    if as_json:
        fields = [
            record._asdict()
            | {"operands": [operand._asdict() for operand in record.operands]}
            | {"edges": [edge._asdict() for edge in record.edges]}
            for record in records
        ]
        _print_json({"file": str(file), **_counts(trace), "devices": trace.devices, "shown": fields})
    else:
        _show_records(trace, records)


def _show_problems(trace: Trace, problems: list[Problem]) -> None:
    from collections import Counter

    from .terminal import print_table

    kinds = Counter(str(problem.kind) for problem in problems)
    verdict = _plural(len(problems), "problem") if problems else "every edge is as it should be"
    print_table(("", "count>"), [(name, str(count)) for name, count in (_counts(trace) | kinds).items()], title=verdict)
    if problems:
        shown = problems[:_PROBLEMS_SHOWN]
        caption = f"{len(shown)} of {len(problems)}; --json lists all"
        rows = [(f"#{problem.instruction}", problem.kind.value, problem.message) for problem in shown]
        print_table(("instruction>", "problem", "what"), rows, caption=caption)


def _show_records(trace: Trace, records: Sequence[Record]) -> None:
    from .terminal import print_table

    columns = ("id>", "session>", "op", "status", "where", "waits for", "blocked>", "queued>", "ran>", "bytes>")
    lost = f", {trace.dropped} lost before them" if trace.dropped else ""
    print_table(
        (*columns, "location", "error"),
        [_row(record) for record in records],
        caption=f"{len(records)} of {_plural(len(trace), 'record')}{lost}; --limit 0 lists all",
    )


def _row(record: Record) -> tuple[str, ...]:
    from ..vm.tracing.text import duration, place
    from ..vm.tracing.why import Story

    story = Story(record, (), told=False)
    times = [duration(ns) if ns else "" for ns in (story.blocked, story.queued, story.ran)]
    waits = ", ".join(f"#{edge.source} {edge.reason}" for edge in record.edges[:_EDGES_SHOWN])
    more = len(record.edges) - _EDGES_SHOWN
    return (
        str(record.id),
        str(record.session),
        record.op or record.opcode,
        record.status,
        place(record),
        f"{waits} and {more} more" if more > 0 else waits,
        *times,
        str(record.nbytes or ""),
        record.location,
        record.error,
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _load(file: Path) -> Trace:
    from ..vm.tracing.trace import Trace

    return Trace.load(file)


def _counts(trace: Trace) -> dict[str, int]:
    edges = sum(len(record.edges) for record in trace.records)
    return {"records": len(trace), "edges": edges, "dropped": trace.dropped, "base_tick": trace.base_tick}


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value))


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def _hint_crowded(graph: Graph) -> None:
    typer.echo(
        f"tensord: {len(graph.nodes)} nodes are hard to draw and to read. "
        f"Limit them: --around ID --depth 3, --session N, --last 200.",
        err=True,
    )
