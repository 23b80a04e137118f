"""The layout of a graph in layers.

Nodes lie in layers, sources above their targets, with few crossings. A node is placed one layer below its lowest
source, and then moved down to the layer above its highest target, so that an upload is near its first use. In a
cycle, the edges against the order of the nodes lead up. Within a layer, nodes are sorted by the mean position of
their neighbours and placed near it, in several sweeps down and up (Sugiyama, Tagawa, Toda, "Methods for visual
understanding of hierarchical system structures", 1981).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from .fold import FoldedGraph

_SWEEPS: Final = 4


def node_positions(picture: FoldedGraph) -> dict[int, tuple[int, float]]:
    """Node -> (layer, position in the layer); nodes of a layer are at least 1 apart."""
    sources: dict[int, set[int]] = {node.id: set() for node in picture.nodes}
    targets: dict[int, set[int]] = defaultdict(set)
    for edge in picture.edges:
        sources[edge.target].add(edge.source)
        targets[edge.source].add(edge.target)
    layers = _layers(sources, targets)
    for sweep in range(_SWEEPS):
        _sort(layers, sources if sweep % 2 == 0 else targets, downwards=sweep % 2 == 0)
    positions = _positions(layers, sources, targets)
    return {node: (depth, positions[node]) for depth, layer in enumerate(layers) for node in layer}


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
    index_of: dict[int, float] = {node: index for layer in layers for index, node in enumerate(layer)}
    for layer in layers if downwards else reversed(layers):
        layer.sort(key=lambda node: _middle(node, neighbours, index_of))
        index_of.update((node, index) for index, node in enumerate(layer))


def _positions(
    layers: Sequence[Sequence[int]], sources: Mapping[int, set[int]], targets: Mapping[int, set[int]]
) -> dict[int, float]:
    """Node -> position near the mean of its neighbours' positions, above and below in turn; 0 for the leftmost node."""
    positions = {node: float(index) for layer in layers for index, node in enumerate(layer)}
    for sweep in range(_SWEEPS + 1):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted: list[float] = []
            for node in layer:
                alone = bool(wanted) and not sources[node] and node not in targets
                near = sources if sweep % 2 == 0 else targets
                wanted.append(wanted[-1] + 1 if alone else _middle(node, near, positions))
            positions.update(zip(layer, spread(wanted), strict=True))
    left = min(positions.values(), default=0)
    return {node: round(position - left, 3) for node, position in positions.items()}


def spread(wanted: Sequence[float]) -> list[float]:
    """Positions in the same order, at least 1 apart, and as near to the wanted ones as possible, by least squares.

    Nodes that would overlap move together (isotonic regression by pooling neighbours).
    """
    blocks: list[tuple[float, int]] = []  # (sum of the wanted positions, each minus its index; number of nodes)
    for index, position in enumerate(wanted):
        total, count = position - index, 1
        while blocks and blocks[-1][0] * count > total * blocks[-1][1]:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    means = (total / count for total, count in blocks for _ in range(count))
    return [mean + index for index, mean in enumerate(means)]


def _middle(node: int, neighbours: Mapping[int, set[int]], positions: Mapping[int, float]) -> float:
    others = neighbours.get(node, ())
    return sum(positions[other] for other in others) / len(others) if others else positions[node]
