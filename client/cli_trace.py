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
    from ..vm.tracing.stream_order import StreamOrder
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
_CROWDED = 500
_PROBLEMS_SHOWN = 50
_EDGES_SHOWN = 4


@app.callback(invoke_without_command=True)
def _trace(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def verify(file: File, as_json: Json = False) -> None:
    """Recompute every edge and report what does not fit. Exits with 1 if anything does not."""
    trace = _load(file, as_json=as_json)
    problems = trace.verify()
    counts = _counts(trace)
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
        _print_json({"file": str(file), **counts, "problems": found})
    else:
        _show_problems(counts, problems)
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
    no_legend: Annotated[bool, typer.Option("--no-legend", help="Do not explain the arrows in the picture.")] = False,
) -> None:
    """Draw the logical DAG: `tensord trace dag run.trace | dot -Tsvg > run.svg`."""
    from ..vm.tracing.graph_export import to_dot, to_json, to_mermaid

    if first is not None and last is not None:
        raise typer.BadParameter("--first and --last exclude each other: give one of them")
    graph = _load(file).graph()
    graph = graph.select(
        session=session, ids=ids or (), around=around, depth=depth, first=first, last=last, releases=releases
    )
    if output_format == DagFormat.JSON:
        _write(to_json(graph), output)
    else:
        write = {DagFormat.DOT: to_dot, DagFormat.MERMAID: to_mermaid}[output_format]
        _write(write(graph, legend=not no_legend), output)
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

    explanation = explain(_load(file, as_json=as_json), instruction, depth=depth)
    _write(to_json(explanation) if as_json else to_text(explanation), None)


@app.command()
def show(
    file: File,
    *,
    limit: Annotated[int, typer.Option(min=0, help="Only so many, from the end; 0 for all.")] = 50,
    session: Annotated[int | None, typer.Option(help="Only this session.")] = None,
    ids: Annotated[list[int] | None, typer.Option("--id", help="Only this instruction; may be repeated.")] = None,
    around: Annotated[int | None, typer.Option(help="Only the neighbourhood of this instruction.")] = None,
    depth: Annotated[int, typer.Option(min=0, help="How many edges the neighbourhood reaches.")] = 2,
    as_json: Json = False,
) -> None:
    """List the records."""
    trace = _load(file, as_json=as_json)
    found: Sequence[Record] = trace.records
    if ids or around is not None or session is not None:
        found = trace.graph().select(session=session, ids=ids or (), around=around, depth=depth, releases=True).nodes
    records = found[-limit:] if limit else found
    if as_json:
        fields = [
            record._asdict()
            | {"operands": [operand._asdict() for operand in record.operands]}
            | {"edges": [edge._asdict() for edge in record.edges]}
            for record in records
        ]
        about = {"devices": trace.devices, "taken": trace.taken}
        _print_json({"file": str(file), **_counts(trace), **about, "shown": fields})
    else:
        _show_records(trace, records, cut=len(found) - len(records))


def _show_problems(counts: dict[str, int], problems: list[Problem]) -> None:
    from collections import Counter

    from .terminal import print_table

    kinds = Counter(str(problem.kind) for problem in problems)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    verdict = f"{_plural(len(problems), 'problem')}: {listed}" if problems else "every edge is as it should be"
    lost = f" ({counts['dropped']} older ones lost)" if counts["dropped"] else ""
    typer.echo(verdict)
    typer.echo(
        f"{_plural(counts['records'], 'record')}{lost}, {_plural(counts['edges'], 'edge')} waited or elided, "
        f"{_plural(counts['met'], 'dependence')} met at admission"
    )
    if problems:
        shown = problems[:_PROBLEMS_SHOWN]
        caption = f"{len(shown)} of {len(problems)}; --json lists all"
        rows = [(f"#{problem.instruction}", problem.kind.value, problem.message) for problem in shown]
        print_table(("instruction>", "problem", "what"), rows, caption=caption)


_COLUMNS = ("id>", "session>", "op", "status", "where", "waits for", "blocked>", "queued>", "ran>", "bytes>")
_FOLDED = ("waits for", "error")


def _show_records(trace: Trace, records: Sequence[Record], *, cut: int) -> None:
    from ..vm.tracing.stream_order import StreamOrder
    from .terminal import print_table

    order = StreamOrder(trace)
    several = len({record.session for record in records if record.session}) > 1
    lost = f", {trace.dropped} lost before them" if trace.dropped else ""
    all_of_them = "; --limit 0 lists all" if cut else ""
    print_table(
        (*_COLUMNS, "location", "error"),
        [_row(record, order, session=str(record.session or "") if several else "") for record in records],
        caption=f"{len(records)} of {_plural(len(trace), 'record')}{lost}{all_of_them}",
        folded=_FOLDED,
        spare=("location", "bytes>", "session>", "blocked>", "queued>", "error"),
    )


def _row(record: Record, order: StreamOrder, *, session: str) -> tuple[str, ...]:
    from ..vm.tracing.text import duration, is_running, place, status
    from ..vm.tracing.why import Story

    story = Story(record, (), told=False, until=order.until)
    blocked, queued, ran = (duration(ns) if ns else "" for ns in (story.blocked, story.queued, story.ran))
    return (
        str(record.id),
        session,
        record.op or record.opcode,
        status(record),
        place(record),
        _waits(record, order),
        blocked,
        queued,
        f"for {ran}" if ran and is_running(record) else ran,
        str(record.nbytes or ""),
        record.location.rpartition("/")[2],
        record.error,
    )


def _waits(record: Record, order: StreamOrder) -> str:
    """The sources of its edges, and whoever it stood behind on its stream for no other reason."""
    ahead = order.ahead(record)
    sources = {edge.source for edge in record.edges}
    waits = [f"#{edge.source} {edge.reason}" for edge in record.edges[:_EDGES_SHOWN]]
    if ahead is not None and ahead.id not in sources:
        waits.append(f"behind #{ahead.id}")
    more = len(record.edges) - _EDGES_SHOWN
    return ", ".join(waits) + (f" and {more} more" if more > 0 else "")


def _plural(count: int, noun: str) -> str:
    from ..vm.tracing.text import plural

    return plural(count, noun)


def _load(file: Path, *, as_json: bool = False) -> Trace:
    """Where the output is for programs, so is the error: an object with "file" and "error", and exit code 1."""
    from ..interpreter.errors import TensordError
    from ..vm.tracing.trace import Trace

    try:
        return Trace.load(file)
    except (TensordError, OSError) as error:
        if not as_json:
            raise
        _print_json({"file": str(file), "error": error.strerror if isinstance(error, OSError) else str(error)})
        raise typer.Exit(1) from None


def _counts(trace: Trace) -> dict[str, int]:
    from ..vm.tracing.graph import Mark

    edges = sum(len(record.edges) for record in trace.records)
    met = sum(edge.mark == Mark.MET for edge in trace.graph().edges)
    return {"records": len(trace), "edges": edges, "met": met, "dropped": trace.dropped}


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
        f"Narrow them down: --around ID --depth 3, --session N, --id ID, --last 200.",
        err=True,
    )
