"""The trace that a command reads: from a saved file, or from the ring of a running daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..daemon.ask import ask
from ..line.options import FILE
from ..line.output import in_json, print_json

if TYPE_CHECKING:
    from ....vm.tracing.analysis.trace import Trace

NOTHING_INSIDE: Final = "tensord: nothing to open: no record here is a run of a routine as one instruction"

source = click.argument("file", type=FILE, required=False, help="A saved trace; without it, the running daemon's.")


def load(file: Path | None, address: str | None = None) -> Trace:
    """Load the trace. With --json, a file's error is printed as an object with "file" and "error"."""
    from ....interpreter.errors import TensordError
    from ....vm.tracing.analysis.trace import Trace
    from ...embedded.traces import trace_of

    if file is None:
        return trace_of(ask(address, "trace"))
    try:
        return Trace.load(file)
    except (TensordError, OSError) as error:
        if not in_json():
            raise
        print_json({"file": str(file), "error": error.strerror if isinstance(error, OSError) else str(error)})
        raise click.exceptions.Exit(1) from None


def about_source(file: Path | None) -> dict[str, str]:
    """The field for JSON output that names the file; none for a daemon's trace."""
    return {} if file is None else {"file": str(file)}


def counts_of(trace: Trace) -> dict[str, int]:
    """The numbers of records, of edges, of dependences met at admission, and of dropped records."""
    from ....vm.tracing.analysis.graphs.graph import Mark

    edges = sum(len(record.edges) for record in trace.records)
    met = sum(edge.mark == Mark.MET for edge in trace.graph().edges)
    return {"records": len(trace), "edges": edges, "met": met, "dropped": trace.dropped}
