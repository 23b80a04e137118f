"""Checks of arguments for all parts of a session: a tensor belongs to the session, a device exists.

Each error carries the user's line.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ...interpreter.errors import (
    CaptureError,
    ConnectionLost,
    MetadataError,
    MetadataTypeError,
    TensordError,
    node_lost,
)
from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.opdef import no_kernel
from ...interpreter.types.device_names import kind_of, own_name
from ...interpreter.wire.forms import shown
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import plain_of
from ..tensor.operators import GLOBALS
from ..tensor.tensor import Tensor

Device: TypeAlias = str | Placement  # of a new tensor


def own(core: Core, tensor: Any, beside: Any = None) -> Tensor:
    """The tensor, if it belongs to the session and was not released. `beside`: another operand, for the error."""
    if not isinstance(tensor, Tensor):
        raise located(MetadataTypeError(f"expected a tensor, got {tensor.__class__.__name__}; use asarray"))
    if tensor._core is not core:
        raise located(foreign(tensor, core, beside))
    if tensor._id <= 0:  # released, or symbolic
        tensor._check_living()
    return tensor


def foreign(tensor: Tensor, core: Core | None = None, beside: Any = None) -> TensordError:
    other = tensor._core
    if core is not None and core.cluster is not None and core.cluster is other.cluster:
        return on_two_nodes(tensor, core, beside)
    if other.closed:
        return ConnectionLost("the tensor's session has ended, and the tensor with it")
    return MetadataError("the tensor belongs to another session; publish it and look it up")


def on_two_nodes(tensor: Tensor, core: Core, beside: Any) -> TensordError:
    """The error for a tensor that is used with a tensor of another node."""
    if tensor._core.closed:
        return node_lost(tensor._core.node, "the tensor was on that node, and is lost")
    here = beside.device if isinstance(beside, Tensor) else core.node
    where = here if isinstance(here, str) else here.names[0]
    there = tensor.device
    move = f'x.to_device("{where}")' if "/" in where else "x.to_device(...)"
    return MetadataError(f"a tensor is on {there}, and the call is on {where}: move one of them, {move}")


def refuse_other_nodes(captured: Core, core: Core) -> None:
    """CaptureError if an op is on another node of the cluster than the routine that is captured."""
    if captured is not core and core.cluster is not None and captured.cluster is core.cluster:
        message = f"a routine runs on one node, here {captured.node}: run the ops for {core.node} outside of it"
        raise located(CaptureError(message))


def on_one_device(tensor: Tensor) -> Tensor:
    """A plain tensor with the value: the tensor itself, or a global tensor's parts joined on its first device."""
    return tensor.to_device(tensor.device.names[0]) if type(tensor) in GLOBALS else tensor  # type: ignore[attr-defined]


def device_of(core: Core, name: Any) -> str:
    """The full name of a device, whose node may be left out; the machine's first device if `name` is None."""
    devices = core.outbox.transport.devices
    if name is None:
        return str(next(iter(devices)))
    if isinstance(name, Placement):
        raise located(MetadataTypeError(f"expected the name of one device, got {name}"))
    device = own_name(name, devices) if type(name) is str else ""
    if core.cluster is not None and device not in devices and core.cluster.is_elsewhere(core, name):
        why = f"{shown(name)} is not on {core.node}; a call, a routine or a placement uses devices of one node"
        raise located(MetadataError(f"{why}: move the value there (to_device)"))
    if device not in devices:
        known, hint = ", ".join(devices), f"; {core.hint}" if core.hint else ""
        raise located(MetadataError(f"unknown device {shown(plain_of(name))}; devices: {known}{hint}"))
    return device


def full_name(core: Core, name: Any) -> str:
    """The full name of a device of the machine, or of any node of its cluster."""
    cluster = core.cluster
    return device_of(core, name) if cluster is None or not cluster.is_elsewhere(core, name) else cluster.named(name)


def core_of_tensor(core: Core, tensor: Any) -> Core:
    """The tensor's own core if both belong to one cluster; else this core, which refuses tensors of others."""
    other: Core = tensor._core if isinstance(tensor, Tensor) else core
    return other if core.cluster is not None and other.cluster is core.cluster else core


def placement_of(core: Core, given: Placement) -> Placement:
    """The placement, with full names of devices of the machine or its cluster; MetadataError for other devices."""
    names = tuple([full_name(core, name) for name in given.names])
    return given if names == given.names else Placement(names, given.grid)


def home_of(core: Core, given: Any) -> Any:
    """The home of a new tensor: a device or a placement. By default the session's placement, or its first device."""
    if given is None and core.placement is not None:
        return core.placement
    if isinstance(given, Placement):
        return placement_of(core, given)
    return device_of(core, given)


def core_of(core: Core, device: str) -> Core:
    """The core of the session of a device: this core, unless the device is on another node of its cluster."""
    return core if core.cluster is None else core.cluster.core(core.cluster.node_of(device))


def without_kernel(core: Core, op: str, device: str) -> MetadataError:
    transport = core.outbox.transport
    return no_kernel(op, device, transport.devices[device], "the daemon" if transport.eager else "this process")


def check_host(core: Core) -> None:
    """MetadataError if the machine has no cpu device, from which the host reads values."""
    devices = core.outbox.transport.devices
    if not any(kind_of(name) == "cpu" for name in devices):
        known, hint = ", ".join(devices), f"; {core.hint}" if core.hint else ""
        raise located(MetadataError(f"the machine has no cpu device to bring values to; devices: {known}{hint}"))
