"""The functions of `tensord.collectives`: collectives on tensors, one message for each.

Invalid arguments raise MetadataError here, at the user's line, by the same checks as the machine's. The results of a
call are ready together, or carry the same error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ...interpreter.collectives.collective import CollectiveKind
from ...interpreter.collectives.over_nodes import is_launchable
from ...interpreter.collectives.request import ResolvedRequest, resolve_request
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.layouts.placement import Placement
from ...interpreter.types.device_names import node_of
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import encode_message
from ...interpreter.wire.node_messages import Collective
from ..calls.checks import core_of_tensor, full_name, own
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import capture_of
from ..tensor.operators import GLOBALS
from ..tensor.tensor import Tensor

Merge: TypeAlias = Literal["copy", "stream"]


class CollectiveNotes(threading.local):
    """A function that this thread calls with each collective, the homes of its tensors, and the library that would
    carry it out; None: no function is called."""

    note: Callable[[ResolvedRequest, Sequence[str], str], None] | None = None


COLLECTIVE_NOTES: Final = CollectiveNotes()


def all_reduce(
    tensors: Iterable[Tensor], reduction: str = "sum", *, merge: Merge = "copy", timeout: float | None = None
) -> list[Tensor]:
    """Compute the sum, maximum or minimum of tensors on each of their devices. All results have the same bits.

    :param tensors: Tensors of one shape and dtype, each on a different device of one kind.
    :param reduction: "sum", "max" or "min".
    :param merge: "copy" copies pieces to a small buffer and adds them there; "stream" reads the other device's memory
        in place, if there is direct access.
    :param timeout: The seconds that one step may take; after that the results fail, and the error names the device.
    :returns: One tensor for each device, in the order of `tensors`.
    :raises MetadataError: The tensors do not fit together.
    """
    given = {"reduction": reduction, "merge": merge, "timeout": seconds(timeout)}
    return compute(CollectiveKind.ALL_REDUCE, listed(tensors), (), given)


def all_gather(tensors: Iterable[Tensor], axis: int = 0, *, timeout: float | None = None) -> list[Tensor]:
    """Concatenate tensors along an axis, on each of their devices.

    :param tensors: Tensors, each on a different device of one kind. Their sizes along the axis may differ.
    :param axis: The axis.
    :param timeout: See `all_reduce`.
    :returns: One tensor for each device, in the order of `tensors`.
    :raises MetadataError: The tensors do not fit together.
    """
    return compute(CollectiveKind.ALL_GATHER, listed(tensors), (), {"axis": axis, "timeout": seconds(timeout)})


def reduce_scatter(
    tensors: Iterable[Tensor],
    reduction: str = "sum",
    axis: int = 0,
    *,
    merge: Merge = "copy",
    timeout: float | None = None,
) -> list[Tensor]:
    """Compute the sum, maximum or minimum of tensors; each of their devices gets one part of the result.

    :param tensors: Tensors of one shape and dtype, each on a different device of one kind.
    :param reduction: "sum", "max" or "min".
    :param axis: The axis along which the result is split, as by `numpy.array_split`.
    :param merge: See `all_reduce`.
    :param timeout: See `all_reduce`.
    :returns: One tensor for each device, in the order of `tensors`.
    :raises MetadataError: The tensors do not fit together.
    """
    given = {"reduction": reduction, "axis": axis, "merge": merge, "timeout": seconds(timeout)}
    return compute(CollectiveKind.REDUCE_SCATTER, listed(tensors), (), given)


def broadcast(tensor: Tensor, devices: Iterable[str] | Placement, *, timeout: float | None = None) -> list[Tensor]:
    """Copy a tensor to several devices. All results are new tensors.

    :param tensor: The tensor.
    :param devices: Devices of the same kind as the tensor's own, or a placement.
    :param timeout: See `all_reduce`.
    :returns: One tensor for each device, in the order of `devices`.
    :raises MetadataError: A device does not exist, or is of another kind.
    """
    (own_one,) = listed((tensor,))
    names = [full_name(own_one._core, name) for name in names_of(devices)]
    return compute(CollectiveKind.BROADCAST, [own_one], names, {"timeout": seconds(timeout)})


def all_to_all(
    tensors: Iterable[Tensor], split_axis: int, concat_axis: int, *, timeout: float | None = None
) -> list[Tensor]:
    """Split each tensor into a part for each device; each device concatenates its parts.

    :param tensors: Tensors, each on a different device of one kind. Their sizes along `concat_axis` may differ.
    :param split_axis: The axis along which each tensor is split, as by `numpy.array_split`.
    :param concat_axis: The axis along which the parts are concatenated.
    :param timeout: See `all_reduce`.
    :returns: One tensor for each device, in the order of `tensors`.
    :raises MetadataError: The tensors do not fit together.
    """
    given = {"axis": split_axis, "concat_axis": concat_axis, "timeout": seconds(timeout)}
    return compute(CollectiveKind.ALL_TO_ALL, listed(tensors), (), given)


def listed(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors; MetadataError unless they are plain, of one session (perhaps on several nodes), and not released."""
    if isinstance(tensors, Tensor | np.ndarray) or not isinstance(tensors, Iterable):
        message = f"a collective takes a list of tensors, one on each device, not {type(tensors).__name__}"
        raise located(MetadataTypeError(message))
    operands = list(tensors)
    if not operands:
        raise located(MetadataError("a collective needs at least one tensor"))
    first = operands[0]
    if not isinstance(first, Tensor):
        raise located(MetadataTypeError(f"expected a tensor, got {first.__class__.__name__}; use asarray"))
    for operand in operands:
        if type(operand) in GLOBALS:
            message = (
                "a collective takes tensors of one device each; for a global tensor use to_global(), or its .parts()"
            )
            raise located(MetadataTypeError(message))
    return [own(core_of_tensor(first._core, tensor), tensor, first) for tensor in operands]


def names_of(devices: Any) -> Iterable[Any]:
    """The names of devices; MetadataTypeError unless they are a list of names."""
    if isinstance(devices, Placement):
        return devices.names
    if isinstance(devices, str | np.ndarray) or not isinstance(devices, Iterable):
        message = f"broadcast: devices must be a list of names, or a placement, not {type(devices).__name__}"
        raise located(MetadataTypeError(message))
    return devices


def seconds(timeout: float | None) -> float:
    """A timeout as messages carry it: 0 for none."""
    return 0.0 if timeout is None else timeout


def compute(
    kind: CollectiveKind, tensors: Sequence[Tensor], devices: Sequence[str], attributes: dict[str, Any]
) -> list[Tensor]:
    """Send one collective of tensors of one session, or record it; returns its results."""
    attributes = {name: each.item() if isinstance(each, np.generic) else each for name, each in attributes.items()}
    core = tensors[0]._core
    if core.cluster is not None and over_nodes(core, tensors, devices):
        return core.cluster.collective(kind, tensors, devices, attributes)
    metas = [tensor._known_meta() for tensor in tensors]
    homes = [tensor.device for tensor in tensors]
    try:
        resolved = resolve_request(kind, homes, metas, devices, attributes, len(devices or tensors))
    except MetadataError as error:
        raise located(error) from None
    if COLLECTIVE_NOTES.note is not None:
        COLLECTIVE_NOTES.note(resolved, homes, library_of(resolved, homes, core.transport.libraries))
    capture = capture_of(core.outbox)
    if capture is None:
        return issue(core, resolved, tensors, devices, attributes)
    if kind is CollectiveKind.BROADCAST:  # recorded as moves, since the routine has these devices already
        return [capture.move(tensors[0], device) for device in devices]
    return list(capture.collective(str(kind), tensors, attributes))


def library_of(resolved: ResolvedRequest, homes: Sequence[str], libraries: Mapping[str, str]) -> str:
    """The library that can carry out the collective: all of its devices have the same version of it; "" if there is
    none."""
    names = {libraries.get(name, "") for name in resolved.devices} if is_launchable(resolved, homes) else set()
    return names.pop() if len(names) == 1 else ""


def over_nodes(core: Core, tensors: Sequence[Tensor], devices: Sequence[str]) -> bool:
    """Return whether any tensor or device is on another node than the core's."""
    return any(tensor._core is not core for tensor in tensors) or any(node_of(name) != core.node for name in devices)


def issue(
    core: Core, resolved: ResolvedRequest, tensors: Sequence[Tensor], devices: Sequence[str], attributes: dict[str, Any]
) -> list[Tensor]:
    """Append the message, and make the handles of its results."""
    outbox, ids = core.outbox, tuple([tensor._id for tensor in tensors])
    metas: Sequence[Meta] = resolved.collective.outputs()
    with outbox.lock, SHIELD:
        made = [Tensor(core, outbox.new_id(), meta, home) for meta, home in zip(metas, resolved.devices, strict=True)]
        outputs, location = tuple([tensor._id for tensor in made]), outbox.locations.issued()
        message = Collective(str(resolved.collective.kind), ids, outputs, tuple(devices), attributes, location)
        outbox.messages.append(encode_message(message))
    outbox.appended()
    return made
