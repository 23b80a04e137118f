"""Pictures of the DAG: which nodes they have, and the formats that need no other program."""

from __future__ import annotations

from collections.abc import Callable

from .fold import Picture, fold, unfolded
from .graph import Graph
from .graph_export import to_dot, to_mermaid
from .page import to_html

CROWDED = 500  # nodes; a picture of more is unreadable, so that chains are folded

WRITERS: dict[str, Callable[..., str]] = {"dot": to_dot, "mermaid": to_mermaid, "html": to_html}


def picture_of(graph: Graph, *, folded: bool | None = None) -> Picture:
    """The graph as a picture: folded or not, by default where it has more than `CROWDED` nodes."""
    return fold(graph) if folded or (folded is None and len(graph.nodes) > CROWDED) else unfolded(graph)
