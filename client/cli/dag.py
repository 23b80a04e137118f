"""`tensord trace dag`: the graph of dependences as a picture or a page."""

from __future__ import annotations

import subprocess
from enum import StrEnum
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated

import typer

from ...interpreter.errors import ProtocolError
from .options import Address
from .output import Out, write
from .selection import Location, Op, SessionId, Slowest, SpanName, chosen
from .source import Source, load

if TYPE_CHECKING:
    from ...vm.tracing.analysis.filter import Filter
    from ...vm.tracing.analysis.fold import Picture
    from ...vm.tracing.analysis.graph import Graph
    from ...vm.tracing.analysis.trace import Trace

_PATIENCE = 120  # seconds that Graphviz may take


class DagFormat(StrEnum):
    """The output formats."""

    DOT = "dot"
    MERMAID = "mermaid"
    JSON = "json"
    HTML = "html"
    SVG = "svg"
    PNG = "png"


RENDERED = {DagFormat.SVG, DagFormat.PNG}


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(dag)


def dag(
    file: Source = None,
    *,
    address: Address = None,
    output: Out = None,
    output_format: Annotated[DagFormat, typer.Option("--format", help="What to write.")] = DagFormat.DOT,
    op: Op = "",
    location: Location = "",
    span: SpanName = "",
    session: SessionId = None,
    slowest: Slowest = None,
    ids: Annotated[list[int] | None, typer.Option("--id", help="Only this instruction; may be repeated.")] = None,
    around: Annotated[int | None, typer.Option(help="Only the neighbourhood of this instruction.")] = None,
    upstream: Annotated[int | None, typer.Option(help="Only this instruction and what it depends on.")] = None,
    downstream: Annotated[int | None, typer.Option(help="Only this instruction and what depends on it.")] = None,
    depth: Annotated[
        int | None,
        typer.Option(min=0, help="How many edges --around (2), --upstream and --downstream (no limit) reach."),
    ] = None,
    first: Annotated[int | None, typer.Option(min=0, help="Only this many, from the beginning.")] = None,
    last: Annotated[int | None, typer.Option(min=0, help="Only this many, from the end.")] = None,
    releases: Annotated[bool, typer.Option("--releases", help="Show ReleaseTensor, too.")] = False,
    fold: Annotated[
        bool | None,
        typer.Option("--fold/--no-fold", help="Draw chains as one node each; by default where there are many nodes."),
    ] = None,
    no_legend: Annotated[bool, typer.Option("--no-legend", help="Do not explain the arrows in the picture.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Draw the logical DAG.

    dot and mermaid are texts for other tools, svg and png need Graphviz, html is a page that zooms and searches.

    Example: tensord trace dag run.trace --upstream 4711 --depth 3 --format html -o dag.html
    """
    wanted = DagFormat.JSON if as_json else output_format
    if first is not None and last is not None:
        raise typer.BadParameter("--first and --last exclude each other: give one of them")
    if wanted in RENDERED:
        graphviz(wanted)  # which is missing before the trace is loaded, too
    trace = load(file, address)
    named = {id_ for id_ in (*(ids or ()), around, upstream, downstream) if id_ is not None}
    graph = _chosen_part(trace, chosen(op, location, span, session, slowest), named).select(
        ids=ids or (), around=around, upstream=upstream, downstream=downstream,
        depth=depth, first=first, last=last, releases=releases,
    )  # fmt: skip
    _write(graph, wanted, output, fold=fold, legend=not no_legend)


def _chosen_part(trace: Trace, chooses: Filter, named: set[int]) -> Graph:
    """The graph of the records that the filter chooses, and of those that options name."""
    graph = trace.graph()
    return graph.restrict({record.id for record in chooses.select(trace.records)} | named) if chooses else graph


def _write(graph: Graph, wanted: DagFormat, output: Path | None, *, fold: bool | None, legend: bool) -> None:
    from ...vm.tracing.analysis.graph_export import to_json
    from ...vm.tracing.analysis.pictures import CROWDED, WRITERS, picture_of

    if wanted is DagFormat.JSON:
        write(to_json(graph), output)
        return
    picture = picture_of(graph, folded=fold)
    if wanted in RENDERED:
        write(render(graphviz(wanted), WRITERS["dot"](picture, legend=legend), wanted), output)
    else:
        write(WRITERS[wanted.value](picture, legend=legend), output)
    if len(picture.nodes) > CROWDED and wanted is not DagFormat.HTML:
        _hint_crowded(picture)


def graphviz(output_format: str) -> str:
    """Graphviz's program. ProtocolError if it is not installed."""
    program = which("dot")
    if program is None:
        raise ProtocolError(
            f"a picture as {output_format} needs Graphviz, whose program dot is not installed: "
            "install graphviz, or write --format html, which needs nothing"
        )
    return program


def render(program: str, dot: str, output_format: str) -> bytes:
    """Graphviz's picture of a graph. ProtocolError if Graphviz fails."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Graphviz
            [program, f"-T{output_format}"], input=dot.encode(), capture_output=True, check=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise ProtocolError(f"dot took more than {_PATIENCE} s: draw a part of the graph, or --format html") from None
    except subprocess.CalledProcessError as error:
        raise ProtocolError(f"dot failed: {error.stderr.decode(errors='replace').strip()[:200]}") from None
    return done.stdout


def _hint_crowded(picture: Picture) -> None:
    typer.echo(
        f"tensord: {len(picture.nodes)} nodes are hard to draw and to read. "
        f"Narrow them down: --around ID --depth 3, --session N, --id ID, --op NAME, --last 200; or --format html.",
        err=True,
    )
