"""Moves a tensor from one node to another: one daemon sends the value, and the other one receives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CaptureError, ProtocolError
from ...interpreter.types.device_names import kind_of
from ...interpreter.types.meta import Meta
from ...interpreter.wire.arrays import name_of
from ...interpreter.wire.messages import encode_message
from ...interpreter.wire.node_messages import Recv, Send
from ..calls.checks import device_of, on_one_device, own
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import CURRENT
from ..tensor.tensor import Tensor
from .losses import telling_losses

if TYPE_CHECKING:
    from .cluster import Cluster


def moved(cluster: Cluster, tensor: Tensor, device: str) -> Tensor:
    """A new tensor with this value, at home on a device of another node. Waits only if the shape depends on data."""
    source, target = tensor._core, cluster.core(cluster.node_of(device))
    own(source, tensor)
    home = device_of(target, device)
    refuse_in_blocks(source, target, f"from {tensor._home} to {home}")
    meta = tensor._known_meta()
    with telling_losses(cluster, (source, target)):
        return issue(source, tensor, target, home, meta, cluster.transfer())


def issue(source: Core, tensor: Tensor, target: Core, home: str, meta: Meta, transfer: bytes) -> Tensor:
    """Send each node its half of a transfer."""
    with source.outbox.lock, SHIELD:
        location = source.outbox.locations.issued()
        sent = Send(tensor._id, target.node, transfer, location, target.transport.incarnation)
        source.outbox.messages.append(encode_message(sent))
    with target.outbox.lock, SHIELD:
        id_, location = target.outbox.new_id(), target.outbox.locations.issued()
        said = (id_, meta.shape, name_of(meta.dtype), home, source.node, transfer, location)
        received = Recv(*said, source.transport.incarnation)
        target.outbox.messages.append(encode_message(received))
        made = Tensor(target, id_, meta, home)
    source.outbox.flush()  # a program that waits for the new tensor flushes only the other node
    target.outbox.appended()
    return made


def brought(cluster: Cluster, core: Core, value: Any) -> Any:
    """A tensor of another node, moved to this node's first cpu device, or else first device; other values unchanged."""
    if not isinstance(value, Tensor) or value._core is core or value._core.cluster is not cluster:
        return value
    devices = core.devices
    return on_one_device(value).to_device(next((name for name in devices if kind_of(name) == "cpu"), devices[0]))


def refuse_in_blocks(source: Core, target: Core, way: str) -> None:
    """Raise an error in a routine's capture and in an atomic block, which belong to one node."""
    if CURRENT.capture is not None and CURRENT.capture.core in {source, target}:
        message = f"{way}: a routine runs on one node; do that outside, and pass the tensor"
        raise located(CaptureError(message))
    if source.outbox.is_inside() or target.outbox.is_inside():
        raise located(ProtocolError(f"{way}: an atomic block runs on one node; move the call outside of the block"))
