"""Pictures of the DAG: which nodes they have, and the formats that need no other program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .fold import Picture, by_line, by_run, by_span, fold, unfolded
from .graph import Graph
from .graph_export import to_dot, to_mermaid
from .page import to_html

CROWDED: Final = 500  # nodes; a picture of more is unreadable, so that parts are folded

# What one node stands for: the picture in which it does.
FOLDS: Final[Mapping[str, Callable[[Graph], Picture]]] = {
    "instruction": unfolded,
    "chain": fold,
    "run": by_run,
    "line": by_line,
    "span": by_span,
}
# The formats that are texts for other tools.
TEXTS: Final[Mapping[str, Callable[..., str]]] = {"dot": to_dot, "mermaid": to_mermaid}
FORMATS: Final = (*TEXTS, "html")


def drawn(graph: Graph, wanted: str) -> str:
    """The graph in one of the `FORMATS`."""
    return page_of(graph) if wanted == "html" else TEXTS[wanted](picture_of(graph))


def picture_of(graph: Graph, node: str = "") -> Picture:
    """The graph with such nodes, of `FOLDS`; by default chains are folded if it has more than `CROWDED` nodes."""
    return FOLDS[node or ("chain" if len(graph.nodes) > CROWDED else "instruction")](graph)


def page_of(graph: Graph, node: str = "", *, legend: bool = True) -> str:
    """The page with all pictures that differ in their numbers of nodes; by default it opens with one to be read."""
    found = {name: picture(graph) for name, picture in FOLDS.items()}
    sizes = {name: len(picture.nodes) for name, picture in found.items()}
    first = {size: name for name, size in reversed(sizes.items())}  # the finest one of that size
    shown = first[sizes[node or _readable(sizes)]]
    return to_html({name: found[name] for name in FOLDS if name in first.values()}, shown, legend=legend)


def _readable(sizes: Mapping[str, int]) -> str:
    """The first picture that is not crowded, else the smallest one."""
    return next((name for name, size in sizes.items() if size <= CROWDED), min(sizes, key=sizes.__getitem__))
