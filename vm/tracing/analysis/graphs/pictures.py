"""Pictures of the graph: the choice of nodes, their layout, and the formats that need no other program.

Nodes lie in layers, sources above their targets, with few crossings. A node is placed one layer below its lowest
source, and then moved down to the layer above its highest target, so that an upload is near its first use. In a
cycle, the edges against the order of the nodes lead up. Within a layer, nodes are sorted by the mean position of
their neighbours and placed near it, in several sweeps down and up (Sugiyama, Tagawa, Toda, "Methods for visual
understanding of hierarchical system structures", 1981).

The HTML page is self-contained: it loads nothing. It zooms, searches, folds, and shows the record under the pointer.
It contains the records and the pictures as JSON, from which its script draws the chosen picture. The JSON is written
without `<`, so no text of a user can end the script element, and the script inserts texts as text, not as HTML.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from html import escape
from typing import Final

from ..recorded.derived import as_dict
from ..recorded.text import printable
from .fold import FoldedGraph, by_line, by_run, by_span, fold, unfolded
from .graph import Graph
from .graph_export import FILLS, LEGEND, arrows, to_dot, to_mermaid
from .page_template import PAGE

CROWDED: Final = 500  # a picture of more nodes is unreadable, so parts are folded
# What one node stands for -> the function that makes that picture.
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
    """The page, with each picture of `FOLDS` that has another number of nodes.

    It opens with the picture `node`, by default with the finest one that is readable.
    """
    found = {name: picture(graph) for name, picture in FOLDS.items()}
    sizes = {name: len(picture.nodes) for name, picture in found.items()}
    first = {size: name for name, size in reversed(sizes.items())}  # for each size, the finest picture
    readable = next((name for name, size in sizes.items() if size <= CROWDED), min(sizes, key=sizes.__getitem__))
    shown = first[sizes[node or readable]]
    pictures = {name: found[name] for name in FOLDS if name in first.values()}
    records = {record.id: record for picture in pictures.values() for node in picture.nodes for record in node.records}
    data = {
        "shown": shown,
        "records": {id_: _filled(as_dict(record)) for id_, record in records.items()},
        "pictures": {name: _plain(picture) for name, picture in pictures.items()},
    }
    parts = {
        "LEGEND": escape("; ".join(LEGEND)) if legend else "",
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub("@([A-Z]+)@", lambda found: parts[found[1]], PAGE)


def _plain(picture: FoldedGraph) -> dict[str, object]:
    """A picture as plain values for the script."""
    nodes, edges = list(_nodes(picture)), list(arrows(picture.edges))
    return {"nodes": nodes, "edges": edges, "critical": sorted(picture.critical), "steps": sorted(picture.steps)}


def _filled(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value or value is False}


def _nodes(picture: FoldedGraph) -> Iterator[tuple[object, ...]]:
    """Each node: its id, layer, place in the layer, colour, the lines of its text, and the ids of its records."""
    at = places(picture)
    devices = {device: number for number, device in enumerate(sorted({n.first.device for n in picture.nodes}))}
    for node in picture.nodes:
        fill = FILLS[devices[node.first.device] % len(FILLS)]
        lines = list(map(printable, node.label(picture.until)[:3]))
        yield node.id, *at[node.id], fill, lines, [record.id for record in node.records]


_SWEEPS = 4


def places(picture: FoldedGraph) -> dict[int, tuple[int, float]]:
    """Node -> (layer, position in the layer); nodes of a layer are at least 1 apart."""
    sources: dict[int, set[int]] = {node.id: set() for node in picture.nodes}
    targets: dict[int, set[int]] = defaultdict(set)
    for edge in picture.edges:
        sources[edge.target].add(edge.source)
        targets[edge.source].add(edge.target)
    layers = _layers(sources, targets)
    for sweep in range(_SWEEPS):
        _sort(layers, sources if sweep % 2 == 0 else targets, downwards=sweep % 2 == 0)
    at = _positions(layers, sources, targets)
    return {node: (depth, at[node]) for depth, layer in enumerate(layers) for node in layer}


def _layers(sources: Mapping[int, set[int]], targets: Mapping[int, set[int]]) -> list[list[int]]:
    depth: dict[int, int] = {}
    try:
        order: Sequence[int] = tuple(TopologicalSorter(sources).static_order())
    except CycleError:
        order = tuple(sources)
    for node in order:
        depth[node] = 1 + max((depth.get(source, -1) for source in sources[node]), default=-1)
    for node in reversed(order):
        below = [depth[target] for target in targets.get(node, ()) if depth[target] > depth[node]]
        depth[node] = min(below, default=depth[node] + 1) - 1
    layers: list[list[int]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node, layer in depth.items():
        layers[layer].append(node)
    return layers


def _sort(layers: list[list[int]], neighbours: Mapping[int, set[int]], *, downwards: bool) -> None:
    at: dict[int, float] = {node: place for layer in layers for place, node in enumerate(layer)}
    for layer in layers if downwards else reversed(layers):
        layer.sort(key=lambda node: _middle(node, neighbours, at))
        at.update((node, place) for place, node in enumerate(layer))


def _positions(
    layers: Sequence[Sequence[int]], sources: Mapping[int, set[int]], targets: Mapping[int, set[int]]
) -> dict[int, float]:
    """Positions near the mean position of each node's neighbours, above and below in turn.

    The leftmost node is at 0.
    """
    at = {node: float(place) for layer in layers for place, node in enumerate(layer)}
    for sweep in range(_SWEEPS + 1):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted: list[float] = []
            for node in layer:
                alone = bool(wanted) and not sources[node] and node not in targets
                near = sources if sweep % 2 == 0 else targets
                wanted.append(wanted[-1] + 1 if alone else _middle(node, near, at))
            at.update(zip(layer, apart(wanted), strict=True))
    left = min(at.values(), default=0)
    return {node: round(place - left, 3) for node, place in at.items()}


def apart(wanted: Sequence[float]) -> list[float]:
    """Positions in the same order, at least 1 apart, and as near to the wanted ones as possible, by least squares.

    Nodes that would overlap move together (isotonic regression by pooling neighbours).
    """
    blocks: list[tuple[float, int]] = []  # (sum of the wanted positions, each minus its index; number of nodes)
    for place, position in enumerate(wanted):
        total, count = position - place, 1
        while blocks and blocks[-1][0] * count > total * blocks[-1][1]:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    means = (total / count for total, count in blocks for _ in range(count))
    return [mean + place for place, mean in enumerate(means)]


def _middle(node: int, neighbours: Mapping[int, set[int]], at: Mapping[int, float]) -> float:
    others = neighbours.get(node, ())
    return sum(at[other] for other in others) / len(others) if others else at[node]
