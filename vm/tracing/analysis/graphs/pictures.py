"""Pictures of the graph: the choice of nodes, and the formats that need no other program.

The HTML page is self-contained: it loads nothing. It zooms, searches, folds, and shows the record under the pointer.
It contains the records and the pictures as JSON, from which its script draws the chosen picture. The JSON is written
without `<`, so no text of a user can end the script element, and the script inserts texts as text, not as HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Final

from ..recorded.derived import as_dict
from ..recorded.text import printable
from .fold import FoldedGraph, by_line, by_run, by_span, fold, unfolded
from .graph import Graph
from .graph_export import FILLS, LEGEND, arrows, to_dot, to_mermaid
from .layered_layout import node_positions
from .page_template import PAGE

CROWDED: Final = 500  # a picture of more nodes is unreadable, so parts are folded
# The unit of a node -> the function that makes that picture.
FOLDS: Final[Mapping[str, Callable[[Graph], FoldedGraph]]] = {
    "instruction": unfolded,
    "chain": fold,
    "run": by_run,
    "line": by_line,
    "span": by_span,
}
# The formats for other tools.
TEXTS: Final[Mapping[str, Callable[..., str]]] = {"dot": to_dot, "mermaid": to_mermaid}
FORMATS: Final = (*TEXTS, "html")


def drawn(graph: Graph, wanted: str) -> str:
    """The graph in one of the `FORMATS`."""
    return page_of(graph) if wanted == "html" else TEXTS[wanted](picture_of(graph))


def picture_of(graph: Graph, node: str = "") -> FoldedGraph:
    """The folded graph.

    `node`: a key of `FOLDS`; by default, chains are folded if the graph has more than `CROWDED` nodes.
    """
    return FOLDS[node or ("chain" if len(graph.nodes) > CROWDED else "instruction")](graph)


def page_of(graph: Graph, node: str = "", *, legend: bool = True) -> str:
    """The page. Of the pictures of `FOLDS` with the same number of nodes it has one, the finest.

    It opens with the picture `node`, by default with the finest one that is readable.
    """
    folded = {name: picture(graph) for name, picture in FOLDS.items()}
    sizes = {name: len(picture.nodes) for name, picture in folded.items()}
    first = {size: name for name, size in reversed(sizes.items())}  # for each size, the finest picture
    readable = next((name for name, size in sizes.items() if size <= CROWDED), min(sizes, key=sizes.__getitem__))
    shown = first[sizes[node or readable]]
    pictures = {name: folded[name] for name in FOLDS if name in first.values()}
    records = {record.id: record for picture in pictures.values() for each in picture.nodes for record in each.records}
    data = {
        "shown": shown,
        "records": {id_: _filled(as_dict(record)) for id_, record in records.items()},
        "pictures": {name: _plain(picture) for name, picture in pictures.items()},
    }
    parts = {
        "LEGEND": escape("; ".join(LEGEND)) if legend else "",
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], PAGE)


def _plain(picture: FoldedGraph) -> dict[str, object]:
    """A picture as plain values for the script."""
    nodes, edges = list(_nodes(picture)), list(arrows(picture.edges))
    return {"nodes": nodes, "edges": edges, "critical": sorted(picture.critical), "steps": sorted(picture.steps)}


def _filled(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value or value is False}


def _nodes(picture: FoldedGraph) -> Iterator[tuple[object, ...]]:
    """Each node: its id, layer, position in the layer, colour, the lines of its text, and the ids of its records."""
    positions = node_positions(picture)
    devices = {device: number for number, device in enumerate(sorted({n.first.device for n in picture.nodes}))}
    for node in picture.nodes:
        fill = FILLS[devices[node.first.device] % len(FILLS)]
        lines = list(map(printable, node.label(picture.until)[:3]))
        yield node.id, *positions[node.id], fill, lines, [record.id for record in node.records]
