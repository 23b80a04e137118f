"""A trace: its records, with methods that call the tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from ..record import Record
from .recorded.records import Records

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from .checks.verify import Problem
    from .graphs.graph import Graph, GraphSelection


class Trace(Records):
    """The records of a machine or a session, with the tools that read them. A tool is imported on its first use."""

    def save(self, path: str | Path) -> None:
        """Write the trace to a file, whole or not at all.

        :param path: The file.
        :raises OSError: The file cannot be written.
        """
        from .files.trace_file import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a trace from a file.

        :param path: The file.
        :returns: The trace.
        :raises OSError: The file cannot be read.
        :raises ProtocolError: The file is damaged; the message names the line.
        """
        from .files.trace_file import load

        return load(path, cls)

    @classmethod
    def from_parts(cls, parts: Iterable[Sequence[Any]]) -> Self:
        """Put a trace together that a machine has sent in parts (see `reporting.live_trace`).

        :param parts: The parts.
        :returns: The trace.
        :raises ProtocolError: The parts are damaged.
        """
        from .files.parts import read_parts

        return read_parts(parts).trace(cls)

    def to_numpy(self) -> NDArray[np.void]:
        """Return the records as a structured array, one element each, in their order.

        :returns: The array; see `columns` for its fields.
        """
        from .recorded.columns import to_numpy

        return to_numpy(self.records)

    def to_pandas(self) -> pd.DataFrame:
        """Return the records as a DataFrame, with the fields of `to_numpy`.

        :returns: The DataFrame.
        :raises ImportError: pandas is not installed; the message says what to do.
        """
        from .recorded.columns import to_pandas

        return to_pandas(self.records)

    def graph(self) -> Graph:
        """Return the DAG of the instructions.

        :returns: The graph, with instructions and their edges.
        """
        from .graphs.graph import build

        return build(self)

    def dag(
        self,
        format: str = "dot",  # noqa: A002 - as on the command line
        *,
        inside: bool = False,
        **selection: Unpack[GraphSelection],
    ) -> str:
        """Draw the DAG of the instructions, with its critical path. Chains are folded if the graph is large.

        :param format: "dot", "mermaid", "html" or "json".
        :param inside: Draw the steps of routines' runs.
        :param selection: The part of the graph to draw, as for `Graph.select`.
        :returns: The picture, as text.
        :raises ValueError: The format is unknown.
        :raises ProtocolError: The selection names an instruction or a session that the trace does not have.
        """
        from .graphs.graph_export import to_json
        from .graphs.pictures import FORMATS, drawn
        from .inside.steps import Opener
        from .waits.critical import with_critical_path

        if format not in {*FORMATS, "json"}:
            raise ValueError(f"the format {format!r} is not one of {', '.join(FORMATS)}, json")
        graph = with_critical_path(self, self.graph().select(**selection))
        if inside:
            graph = graph.opened(Opener(self))
        return to_json(graph) if format == "json" else drawn(graph, format)

    def timeline(self, path: str | Path) -> None:
        """Write a timeline, whole or not at all.

        :param path: The file. If its name ends in .html, it becomes a page; else a file for https://ui.perfetto.dev.
        :raises OSError: The file cannot be written.
        """
        from ....interpreter.whole_file import write_whole
        from .page.page_file import is_page, page_of_trace
        from .sums.timeline import to_chrome

        write_whole(path, page_of_trace(self, "") if is_page(path) else to_chrome(self))

    def why(self, instruction: int | Record, *, depth: int = 6) -> str:
        """Explain why an instruction took as long as it did: what it waited for, and the critical path before it.

        :param instruction: The id of the instruction, or its record.
        :param depth: How many waits are followed one behind the other at most.
        :returns: The explanation, as text.
        :raises ProtocolError: The trace lacks the instruction.
        """
        from .waits.why import why
        from .waits.why_text import to_text

        id_ = instruction.id if isinstance(instruction, Record) else instruction
        return to_text(why(self, id_, depth=depth))

    def advise(self) -> str:
        """Say which costs can be avoided, at which lines, and how.

        :returns: The advice, as text, with the costliest first.
        """
        from .advice.advice_text import to_text
        from .advice.advise import advise

        return to_text(advise(self))

    def verify(self) -> list[Problem]:
        """Recompute every edge from the operands, and compare the records with each other.

        :returns: All contradictions; empty if the engine worked correctly.
        """
        from .checks.verify import verify

        return verify(self)
