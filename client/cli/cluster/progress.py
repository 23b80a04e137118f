"""News of the nodes while a command waits: one line that is redrawn, or a line for each change."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import Self

from ..drawing.figures import duration
from ..drawing.terminal import StatusLine, can_draw
from ..line.options import in_json


class NodeProgress:
    """Called with a node and its new state. A context manager. Nothing is written with --json."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._began = monotonic()
        self._line = StatusLine()
        self._quiet = in_json()

    @property
    def seconds(self) -> float:
        return monotonic() - self._began

    def __call__(self, node: str, what: str) -> None:
        changed = self._states.get(node) != what
        self._states[node] = what
        if self._quiet:
            return
        if can_draw(sys.stderr):
            self._line.draw(self.text())
        elif changed:
            sys.stderr.write(f"{node}: {what}\n")
            sys.stderr.flush()

    def text(self) -> str:
        """`node0 serving, node1 starting, 1.5 s`; many nodes are grouped by state."""
        by_state: dict[str, list[str]] = {}
        for node, what in self._states.items():
            by_state.setdefault(what, []).append(node)
        parts = [f"{nodes[0] if len(nodes) == 1 else f'{len(nodes)} nodes'} {what}" for what, nodes in by_state.items()]
        return f"{', '.join(parts)}, {duration(round(self.seconds, 1))}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._line.clear()
