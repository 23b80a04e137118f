"""Collectives with devices of several nodes: the part of each node, checked, and the names of its transfers.

Each node computes the same steps from the same request, and takes those that read or write its own memory. A step from
one node's memory to another's is a transfer, whose name is that of the request's first one plus the number of the step.

If a library carries the collective out, the nodes agree on its launch by small values (`streams.gangs`), whose names
are counted in the same way. The client chooses the library, so that all nodes do the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from ..errors import MetadataError
from ..types.device_names import node_of
from ..types.meta import Meta
from .choice import schedule_of
from .collective import CollectiveKind, CollectiveSpec
from .library import calls_of
from .request import ResolvedRequest, resolve_request
from .steps import CollectiveStep, numbered

MAX_RANKS: Final = 64  # the number of steps grows with the square of the ranks
CACHED: Final = 64  # cached requests and parts: training repeats a few of them
VALUES_PER_LAUNCH: Final = 6  # values by which the first node of a launch and another one agree on it


class NodeStep(NamedTuple):
    """A step in which a node takes part. `number`: among the steps of all nodes; `meta`: of its chunk; `text`: as from
    `numbered`; `source`, `target`: the nodes that have the chunk, and that receive it."""

    number: int
    step: CollectiveStep
    meta: Meta
    text: str
    source: str
    target: str


class NodeShare(NamedTuple):
    """The part of one node, and the name of the algorithm."""

    algorithm: str
    tasks: Sequence[NodeStep]

    @property
    def steps(self) -> list[CollectiveStep]:
        """The steps alone."""
        return [task.step for task in self.tasks]


@lru_cache(CACHED)
def part_of(given: CollectiveSpec, homes: tuple[str, ...], devices: tuple[str, ...], node: str) -> NodeShare:
    """`part_to_do`, cached. Only for devices that the node is known to have: with few devices a part is small."""
    return part_to_do(given, homes, devices, node)


def part_to_do(given: CollectiveSpec, homes: tuple[str, ...], devices: tuple[str, ...], node: str) -> NodeShare:
    """The part of a node in a collective on tensors with these homes, and ranks with these devices."""
    algorithm, steps = schedule_of(given, over_nodes=True)
    tasks, dtype = [], given.inputs[0].dtype
    for number, (step, text) in enumerate(zip(steps, numbered(steps, given.ranks), strict=True)):
        origin = (homes if step.source.is_input else devices)[step.source.rank]  # a broadcast has number 0
        meta = Meta.of(step.source.region.shape, dtype)
        task = NodeStep(number, step, meta, text, node_of(origin), node_of(devices[step.rank]))
        if node in {task.source, task.target}:
            tasks.append(task)
    return NodeShare(algorithm, tasks)


@lru_cache(CACHED)
def nodes_of(homes: tuple[str, ...], devices: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes, in the order in which these first name them."""
    return tuple(dict.fromkeys([node_of(name) for name in (*homes, *devices)]))


@lru_cache(CACHED)
def count_of(given: CollectiveSpec) -> int:
    """The number of steps of all nodes."""
    return len(schedule_of(given, over_nodes=True).steps)


def resolve_over_nodes(
    kind: str,
    homes: Sequence[str],
    metas: Sequence[Meta | None],
    devices: Sequence[str],
    attributes: Mapping[Any, Any] | Sequence[Any],
) -> ResolvedRequest:
    """The request, on tensors with these homes and metas; MetadataError if it is invalid."""
    if max(len(homes), len(devices)) > MAX_RANKS:
        raise MetadataError(f"{kind}: {MAX_RANKS} devices of several nodes are possible at most", op=kind)
    if not homes or len(homes) != len(metas):
        raise MetadataError(f"{kind}: {len(metas)} tensors on {len(homes)} devices", op=kind)
    try:
        named = tuple([(name, type(value), value) for name, value in dict(attributes).items()])
        return _resolve_cached(kind, tuple(homes), tuple(metas), tuple(devices), named)
    except (TypeError, ValueError):  # an attribute that no collective has
        return resolve_request(kind, homes, metas, devices, attributes, len(devices or homes))


@lru_cache(CACHED)
def _resolve_cached(
    kind: str,
    homes: tuple[str, ...],
    metas: tuple[Meta | None, ...],
    devices: tuple[str, ...],
    attributes: tuple[tuple[str, type, Any], ...],  # with the type, since True equals 1
) -> ResolvedRequest:
    given = [(name, value) for name, _, value in attributes]
    return resolve_request(kind, homes, metas, devices, given, len(devices or homes))


def transfer_of(first: bytes, step: int) -> bytes:
    """The name of the transfer of a step."""
    return ((int.from_bytes(first) + step) % (1 << 8 * len(first))).to_bytes(len(first))


def launching_nodes(resolved: ResolvedRequest) -> list[str]:
    """The nodes whose devices take part in a launch, in the order of their names."""
    return sorted(nodes_of((), tuple(resolved.devices)))


def transfers(resolved: ResolvedRequest) -> int:
    """The number of names that a request needs, for any algorithm."""
    return max(count_of(resolved.collective), VALUES_PER_LAUNCH * len(launching_nodes(resolved)))


def is_launchable(resolved: ResolvedRequest, homes: Sequence[str]) -> bool:
    """Return whether a library can carry it out. The tensor of a broadcast has to be on one of its devices."""
    given = resolved.collective
    return bool(calls_of(given)) and (given.kind is not CollectiveKind.BROADCAST or homes[0] in resolved.devices)


def digest_of(resolved: ResolvedRequest) -> bytes:
    """32 bytes that differ if the nodes were told to compute different things."""
    kind, inputs, *rest = resolved.collective
    described = (str(kind), [meta.plain for meta in inputs], rest, resolved.devices, resolved.request.library)
    return sha256(repr(described).encode()).digest()
