"""Where the nodes of a picture go: in layers, sources above their targets, with few crossings.

Each node lies one layer below its lowest source, and then moves down until it is right above its highest target, so
that an upload lies where it is first needed. In a cycle, the edges against the order of the nodes go up. Within a layer
nodes are sorted by the middle of their neighbours, in some sweeps down and up.

Source: Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures", 1981.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from .fold import Picture

_SWEEPS = 4


def places(picture: Picture) -> dict[int, tuple[int, int]]:
    """Node -> (layer, position in the layer)."""
    sources: dict[int, set[int]] = {node.id: set() for node in picture.nodes}
    targets: dict[int, set[int]] = defaultdict(set)
    for edge in picture.edges:
        sources[edge.target].add(edge.source)
        targets[edge.source].add(edge.target)
    layers = _layers(sources, targets)
    for sweep in range(_SWEEPS):
        _sort(layers, sources if sweep % 2 == 0 else targets, downwards=sweep % 2 == 0)
    return {node: (depth, at) for depth, layer in enumerate(layers) for at, node in enumerate(layer)}


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
    at = {node: place for layer in layers for place, node in enumerate(layer)}
    for layer in layers if downwards else reversed(layers):
        layer.sort(key=lambda node: _middle(node, neighbours, at))
        at.update((node, place) for place, node in enumerate(layer))


def _middle(node: int, neighbours: Mapping[int, set[int]], at: Mapping[int, int]) -> float:
    others = neighbours.get(node, ())
    return sum(at[other] for other in others) / len(others) if others else at[node]
