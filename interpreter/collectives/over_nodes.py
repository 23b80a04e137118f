"""Collectives with devices of several nodes: what each node is told, checked, and the names of its transfers.

Each node makes the same steps of the same request, and takes those that read or write its own memory. A step from one
node's memory to another's is a transfer, whose name is that of the request's first one plus the number of the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import MetadataError
from ..types.meta import Meta
from .request import Asked, asked_for

MOST_RANKS: Final = 64  # the number of steps grows with the square of the ranks


def asked_over_nodes(
    kind: str,
    homes: Sequence[str],
    metas: Sequence[Meta | None],
    devices: Sequence[str],
    attributes: Mapping[Any, Any] | Sequence[Any],
) -> Asked:
    """What is asked for, on tensors with these homes and metas; MetadataError for what does not fit."""
    if max(len(homes), len(devices)) > MOST_RANKS:
        raise MetadataError(f"{kind}: {MOST_RANKS} devices of several nodes are the most", op=kind)
    if not homes or len(homes) != len(metas):
        raise MetadataError(f"{kind}: {len(metas)} tensors on {len(homes)} devices", op=kind)
    return asked_for(kind, homes, metas, devices, attributes, len(devices or homes))


def transfer_of(first: bytes, step: int) -> bytes:
    """The name of the transfer of a step."""
    return ((int.from_bytes(first) + step) % (1 << 8 * len(first))).to_bytes(len(first))
