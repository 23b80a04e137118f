"""Loads the trace that a command reads: from a saved file, or from the ring of a running daemon."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..daemon.ask import ask
from ..line.options import FILE, in_json, print_json

if TYPE_CHECKING:
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.trace import Trace


NOTHING_INSIDE: Final = "tensord: --inside shows nothing: no record here is a run of a routine as one instruction"

CLUSTER: Final = "tensord.cluster"  # in a context's `meta`: --cluster was given


def all_nodes(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flag --cluster. Commands do not get it as a parameter: `load` reads it from the context."""

    def note(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context.meta[CLUSTER] = value

    described = "The traces of all nodes of the daemon's cluster, merged on one clock."
    return click.option("--cluster", is_flag=True, expose_value=False, callback=note, help=described)(command)


def source(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and the option that select the trace."""
    file = click.argument(
        "file", type=FILE, required=False, help="A saved trace. Default: the trace of the running daemon."
    )
    return file(all_nodes(command))


def load(file: Path | None, address: str | None = None) -> Trace:
    """Load the trace. With --json, a file's error is printed as an object with "file" and "error"."""
    from ....interpreter.errors import TensordError
    from ....vm.tracing.analysis.trace import Trace
    from ...embedded.traces import trace_of

    if file is None and click.get_current_context().meta.get(CLUSTER):
        return of_cluster(address)
    if file is None:
        return trace_of(ask(address, "trace"))
    try:
        return Trace.load(file)
    except (TensordError, OSError) as error:
        if not in_json():
            raise
        print_json({"file": str(file), "error": error.strerror if isinstance(error, OSError) else str(error)})
        raise click.exceptions.Exit(1) from None


def of_cluster(address: str | None) -> Trace:
    """The trace of all nodes of the cluster to which the daemon at an address belongs."""
    from ...cluster.connect import connect_cluster

    with connect_cluster(address, None, strict=False, frames=None, name=None) as session:
        found: Trace = session.trace()
    return found


def about_source(file: Path | None) -> dict[str, str]:
    """The JSON field that names the file; empty for a daemon's trace."""
    return {} if file is None else {"file": str(file)}


def counts_of(trace: Trace) -> dict[str, int]:
    """The numbers of records, edges, dependences met at admission, and lost records."""
    from ....vm.tracing.analysis.graphs.graph import Mark

    edges = sum(len(record.edges) for record in trace.records)
    met = sum(edge.mark == Mark.MET for edge in trace.graph().edges)
    return {"records": len(trace), "edges": edges, "met": met, "dropped": trace.dropped}


_text: Final = partial(click.option, default="", show_default=False)
_SESSION: Final = click.option(
    "--session", type=int, help="Only this session, with the transfers and copies that the machine planned for it."
)
_OPTIONS: Final = (
    _text("--op", help="Only this op or opcode, or those that match a pattern such as 'mat*'."),
    _text("--location", help="Only instructions whose location contains this text, such as train.py:9."),
    _text("--span", help="Only instructions inside this span: a name, a path, or a pattern such as 'step */forward'."),
    click.option("--slowest", type=click.IntRange(min=1), help="Only this many instructions, those that ran longest."),
)


def selects(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select records. The command gets them as one filter, `chooses`."""
    return selects_but_sessions(_SESSION(command))


def selects_but_sessions(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `selects`, except --session."""

    @wraps(command)
    def with_filter(
        *, op: str, location: str, span: str, slowest: int | None, session: int | None = None, **others: Any
    ) -> None:
        from ....vm.tracing.analysis.recorded.filter import Filter

        command(chooses=Filter(op, location, span, session, slowest), **others)

    return reduce(lambda so_far, option: option(so_far), reversed(_OPTIONS), with_filter)


def no_records(chooses: Filter) -> str:
    """The text for an empty table: `no records match --span nonsense`."""
    from dataclasses import asdict

    given = " ".join(f"--{name} {value}" for name, value in asdict(chooses).items() if value not in {"", None})
    return f"no records match {given}" if given else "no records"
