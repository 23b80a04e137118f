"""A trace: the records of one recording, with methods that lead to the tools."""

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
    """Records with the tools that read them, which are loaded when they are first asked for."""

    def save(self, path: str | Path) -> None:
        """Write the trace to a file, whole or not at all.

        :param path: The file.
        :raises OSError: The file cannot be written.
        """
        from .files.file import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a trace from a file.

        :param path: The file.
        :returns: The trace.
        :raises OSError: The file cannot be read.
        :raises ProtocolError: The file is damaged; the message names the line.
        """
        from .files.file import load

        return load(path, cls)

    @classmethod
    def from_parts(cls, parts: Iterable[Sequence[Any]]) -> Self:
        """Put a trace together that a machine sent in slices (see `picture`).

        :param parts: The slices.
        :returns: The trace.
        :raises ProtocolError: The slices are damaged.
        """
        from .files.parts import read_parts

        return read_parts(parts).trace(cls)

    def to_numpy(self) -> NDArray[np.void]:
        """Return the records as a structured array, one row each, in their order.

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
        """Draw the DAG of the instructions, with its critical path. Chains of a large one are folded.

        :param format: "dot", "mermaid", "html" or "json".
        :param inside: Draw the steps of routines' runs.
        :param selection: Which part of the graph to draw, as for `Graph.select`.
        :returns: The picture, as text.
        :raises ValueError: There is no such format.
        :raises ProtocolError: The trace has no such instruction or session.
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

        :param path: The file: a page if the name ends in .html, else what https://ui.perfetto.dev opens.
        :raises OSError: The file cannot be written.
        """
        from ....interpreter.whole_file import write_whole
        from .page.whole import is_page, page_of
        from .sums.timeline import to_chrome

        write_whole(path, page_of(self, "") if is_page(path) else to_chrome(self))

    def why(self, instruction: int | Record, *, depth: int = 6) -> str:
        """Explain why an instruction took as long as it did: what it waited for, and the critical path before it.

        :param instruction: The id of the instruction, or its record.
        :param depth: How deep waits for waits are followed at most.
        :returns: The explanation, as text.
        :raises ProtocolError: The trace lacks the instruction.
        """
        from .waits.why import why
        from .waits.why_export import to_text

        id_ = instruction.id if isinstance(instruction, Record) else instruction
        return to_text(why(self, id_, depth=depth))

    def advise(self) -> str:
        """Say what costs time without need, at which lines, and what to do about it.

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
