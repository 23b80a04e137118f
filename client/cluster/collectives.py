"""Collectives on tensors of several nodes: each node gets its part of one request.

All parts are sent before any node is asked to wait for another one. Not within a routine or an atomic block.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...interpreter.collectives.over_nodes import resolve_over_nodes, transfers
from ...interpreter.collectives.request import ResolvedRequest
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError
from ...interpreter.types.device_names import node_of
from ...interpreter.wire.messages import encode_message
from ...interpreter.wire.metas import encode_meta
from ...interpreter.wire.node_messages import Collective
from ..collectives.collectives import library_of
from ..core.core import Core
from ..locations.locations import located
from ..tensor.tensor import Tensor
from .losses import telling_losses
from .moving import refuse_in_blocks

if TYPE_CHECKING:
    from .cluster import Cluster


def resolved_request(
    kind: str, tensors: Sequence[Tensor], devices: Sequence[str], attributes: dict[str, Any]
) -> ResolvedRequest:
    """The request; MetadataError at the user's line if it is invalid."""
    homes, metas = [tensor._home for tensor in tensors], [tensor._known_meta() for tensor in tensors]
    try:
        return resolve_over_nodes(kind, homes, metas, devices, attributes)
    except MetadataError as error:
        raise located(error) from None


def issue(
    cluster: Cluster,
    resolved: ResolvedRequest,
    tensors: Sequence[Tensor],
    devices: Sequence[str],
    attributes: dict[str, Any],
) -> list[Tensor]:
    """Send each node its part; returns the results, one for each device."""
    names = resolved.devices
    homes = [tensor._home for tensor in tensors]
    nodes = dict.fromkeys(node_of(name) for name in (*homes, *names))
    cores = {node: cluster.core(node) for node in nodes}
    if library := library_of(resolved, homes, ChainMap(*(dict(core.transport.libraries) for core in cores.values()))):
        attributes = attributes | {"library": library}
    first, *others = cores.values()
    for core in others:
        refuse_in_blocks(first, core, f"a collective of {first.node} and {core.node}")
    with telling_losses(cluster, cores.values()):
        made = send_parts(cluster, resolved, cores, tensors, devices, attributes)
    return [made[rank] for rank in range(len(names))]


def send_parts(
    cluster: Cluster,
    resolved: ResolvedRequest,
    cores: Mapping[str, Core],
    tensors: Sequence[Tensor],
    devices: Sequence[str],
    attributes: dict[str, Any],
) -> dict[int, Tensor]:
    """Send each node its part; returns the results, by rank."""
    kind, homes = str(resolved.collective.kind), tuple([tensor._home for tensor in tensors])
    transfer = cluster.transfer(transfers(resolved))
    metas = tuple([encode_meta(meta) for meta in resolved.collective.inputs])
    incarnations = tuple([core.transport.incarnation for core in cores.values()])
    made: dict[int, Tensor] = {}
    for node, core in cores.items():
        ids = [tensor._id for tensor in tensors if node_of(tensor._home) == node]
        with core.outbox.lock, SHIELD:
            mine = handles(core, resolved, node)
            outputs, location = [tensor._id for tensor in mine.values()], core.outbox.locations.issued()
            message = Collective(
                kind, ids, outputs, tuple(devices), attributes, location, homes, metas, transfer, incarnations
            )
            core.outbox.messages.append(encode_message(message))
        made |= mine
    for core in cores.values():  # before any of them is asked to wait for another one
        core.outbox.flush()
    return made


def handles(core: Core, resolved: ResolvedRequest, node: str) -> dict[int, Tensor]:
    """Handles of a node's results, by rank."""
    metas = resolved.collective.outputs()
    return {
        rank: Tensor(core, core.outbox.new_id(), metas[rank], name)
        for rank, name in enumerate(resolved.devices)
        if node_of(name) == node
    }
