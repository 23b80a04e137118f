"""`tensord trace dag`: draws the graph of dependences as a picture or a page."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Final

import click

from ....interpreter.errors import ProtocolError
from ..line import options
from ..line.options import output as output_option
from ..line.options import write
from .source import NOTHING_INSIDE, load, no_records, selects, source

if TYPE_CHECKING:
    from ....vm.tracing.analysis.graphs.graph import Graph
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.trace import Trace

_PATIENCE = 120  # the time limit for Graphviz, in seconds
RENDERED: Final = ("svg", "png")  # the formats that Graphviz draws
FORMATS: Final = ("dot", "mermaid", "json", "html", *RENDERED)
_AMOUNT: Final = click.IntRange(min=0)


@click.command()
@source
@options.address
@output_option
@click.option(
    "--format",
    "wanted",
    type=click.Choice(FORMATS),
    help="What to write. Default: the format that the file's name ends in, else dot.",
)
@selects
@click.option("--id", "ids", type=int, multiple=True, help="Only this instruction; may be given several times.")
@click.option("--around", type=int, help="Only the instructions near this one.")
@click.option("--upstream", type=int, help="Only this instruction and those on which it depends.")
@click.option("--downstream", type=int, help="Only this instruction and those that depend on it.")
@click.option(
    "--depth",
    type=_AMOUNT,
    help="How many edges to follow. Default: 2 for --around, no limit for --upstream and --downstream.",
)
@click.option("--first", type=_AMOUNT, help="Only this many instructions, the first ones.")
@click.option("--last", type=_AMOUNT, help="Only this many instructions, the last ones.")
@click.option("--releases", is_flag=True, help="Show ReleaseTensor instructions as well.")
@click.option(
    "--fold/--no-fold",
    default=None,
    help="Draw each chain, or each group of --fold-by, as one node. Default: only for large graphs.",
)
@click.option(
    "--fold-by", type=click.Choice(("chain", "run", "line", "span")), help="Draw each of these groups as one node."
)
@click.option(
    "--inside", is_flag=True, help="Draw the steps inside runs of routines, and where their values lie in memory."
)
@click.option("--no-legend", is_flag=True, help="Leave out the legend.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def dag(
    file: Path | None,
    *,
    address: str | None,
    output: Path | None,
    wanted: str | None,
    chooses: Filter,
    fold: bool | None,
    fold_by: str | None,
    inside: bool,
    no_legend: bool,
    as_json: bool,
    **part: Any,  # the arguments of Graph.select
) -> None:
    """Draw the logical DAG.

    dot and mermaid are texts for other tools, svg and png need Graphviz, html is a page with zoom and search.

    Example: tensord trace dag run.trace --upstream 4711 --depth 3 -o dag.html
    """
    from ....vm.tracing.analysis.waits.critical import with_critical_path

    suffix = "" if output is None else output.suffix[1:]
    wanted = "json" if as_json else wanted or (suffix if suffix in FORMATS else "dot")
    if part["first"] is not None and part["last"] is not None:
        raise click.BadParameter("--first and --last exclude each other: give one of them")
    if fold is False and fold_by is not None:
        raise click.BadParameter("--no-fold and --fold-by exclude each other: give one of them")
    if wanted in RENDERED:
        graphviz(wanted)  # raises before the trace is loaded if Graphviz is missing
    trace = load(file, address)
    named = {id_ for id_ in (*part["ids"], part["around"], part["upstream"], part["downstream"]) if id_ is not None}
    graph = trace.graph()
    if chooses:
        graph = graph.restrict({record.id for record in chooses.select(trace.records)} | named)
    graph = with_critical_path(trace, graph.select(**part))
    if not graph.nodes:
        click.echo(f"tensord: {no_records(chooses)}", err=True)
    if inside:
        graph = _opened(trace, graph)
    node = fold_by or {None: "", True: "chain", False: "instruction"}[fold]
    _write(graph, wanted, output, node, legend=not no_legend)


def _opened(trace: Trace, graph: Graph) -> Graph:
    """The graph with runs replaced by their steps. Prints a hint if there are none."""
    from ....vm.tracing.analysis.inside.steps import Opener

    opened = graph.opened(Opener(trace))
    if not opened.inner:
        click.echo(NOTHING_INSIDE, err=True)
    return opened


def _write(graph: Graph, wanted: str, output: Path | None, node: str, *, legend: bool) -> None:
    from ....vm.tracing.analysis.graphs.graph_export import to_json
    from ....vm.tracing.analysis.graphs.pictures import CROWDED, TEXTS, page_of, picture_of

    if wanted == "json":
        write(to_json(graph), output)
        return
    if wanted == "html":
        write(page_of(graph, node, legend=legend), output)
        return
    picture = picture_of(graph, node)
    if wanted in RENDERED:
        write(render(graphviz(wanted), TEXTS["dot"](picture, legend=legend), wanted), output)
    else:
        write(TEXTS[wanted](picture, legend=legend), output)
    if len(picture.nodes) > CROWDED:
        click.echo(
            f"tensord: {len(picture.nodes)} nodes are hard to draw and to read. "
            "Fold them (--fold-by line), choose some (--around ID --depth 3, --session N, --id ID, --op NAME, "
            "--last 200), or write a page (--format html).",
            err=True,
        )


def graphviz(output_format: str) -> str:
    """The path of Graphviz's program `dot`. ProtocolError if it is not installed."""
    program = which("dot")
    if program is None:
        raise ProtocolError(
            f"a picture as {output_format} needs Graphviz, whose program dot is not installed: "
            "install graphviz, or write --format html, which needs nothing"
        )
    return program


def render(program: str, dot: str, output_format: str) -> bytes:
    """Draw a graph with Graphviz. ProtocolError if Graphviz fails."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Graphviz
            [program, f"-T{output_format}"], input=dot.encode(), capture_output=True, check=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise ProtocolError(f"dot took more than {_PATIENCE} s: draw a part of the graph, or --format html") from None
    except subprocess.CalledProcessError as error:
        raise ProtocolError(f"dot failed: {error.stderr.decode(errors='replace').strip()[:200]}") from None
    return done.stdout
