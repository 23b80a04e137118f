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
    from .graphs.graph import Graph, Selection


class Trace(Records):
    """Records with the tools that read them, which are loaded when they are first asked for."""

    def save(self, path: str | Path) -> None:
        """Write the trace to a file, whole or not at all; raises OSError."""
        from .files.file import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a trace from a file. Raises OSError, or ProtocolError naming the line if the file is damaged."""
        from .files.file import load

        return load(path, cls)

    @classmethod
    def from_parts(cls, parts: Iterable[Sequence[Any]]) -> Self:
        """The trace that a machine sent in slices (see `picture`). Raises ProtocolError if the slices are damaged."""
        from .files.parts import read_parts

        return read_parts(parts).trace(cls)

    def to_numpy(self) -> NDArray[np.void]:
        """The records as a structured array, a row each, in their order: see `columns` for its fields."""
        from .recorded.columns import to_numpy

        return to_numpy(self.records)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a DataFrame. Raises ImportError, saying what to do, without pandas."""
        from .recorded.columns import to_pandas

        return to_pandas(self.records)

    def graph(self) -> Graph:
        """The logical DAG, for people."""
        from .graphs.graph import build

        return build(self)

    def dag(
        self,
        format: str = "dot",  # noqa: A002 - as on the command line
        *,
        inside: bool = False,
        **selection: Unpack[Selection],
    ) -> str:
        """The DAG, or what `selection` leaves of it (see `Graph.select`), as "dot", "mermaid", "html" or "json". Chains
        of a large one are folded; with `inside` the steps of routines' runs are drawn. Raises ValueError for another
        format, ProtocolError for an unknown id or session."""
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
        """Write a timeline, whole or not at all: a page if the name ends in .html, else what https://ui.perfetto.dev
        opens. Raises OSError."""
        from ....interpreter.whole_file import write_whole
        from .page.whole import is_page, page_of
        from .sums.timeline import to_chrome

        write_whole(path, page_of(self, "") if is_page(path) else to_chrome(self))

    def why(self, instruction: int | Record, *, depth: int = 6) -> str:
        """Why an instruction, a record or its id, took as long as it did: what it waited for and the critical path, as
        text. Raises ProtocolError if the trace lacks it."""
        from .waits.why import why
        from .waits.why_export import to_text

        id_ = instruction.id if isinstance(instruction, Record) else instruction
        return to_text(why(self, id_, depth=depth))

    def advise(self) -> str:
        """What costs time and need not, at which lines, and what to do about it, the costliest first, as text."""
        from .advice.advice_text import to_text
        from .advice.advise import advise

        return to_text(advise(self))

    def verify(self) -> list[Problem]:
        """All contradictions between the records; empty if the engine worked correctly."""
        from .checks.verify import verify

        return verify(self)
