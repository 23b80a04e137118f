"""Chooses the node of a call: that of its tensors, else that of its device, else the default one.

If the tensors are on one node and `device` is on another, the call runs where the tensors are, and its result moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from ...interpreter.layouts.placement import Placement
from ..calls.checks import refuse_other_nodes
from ..core.core import Core
from ..locations.tracebacks import PUBLIC_ERRORS, hide, hides
from ..outbox.current import CURRENT
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .cluster import Cluster

MAX_NESTING: Final = 16  # levels of containers in which a tensor is looked for
DEVICE_PARAMETERS: Final[tuple[str, ...]] = (
    "device",
    "placement",
    "devices",
)  # names of parameters that give the devices of a result

P = ParamSpec("P")
R = TypeVar("R")
Part = TypeVar("Part")


class OnNodes(Protocol):
    """An object whose methods are called on one node."""

    _cluster: Cluster


def core_of(cluster: Cluster, values: Any, where: Any = None) -> Core:
    """The core for a call with these values, which may be nested in containers."""
    tensor = first_tensor(values, MAX_NESTING)
    if tensor is not None:
        return checked(tensor._core)
    return checked(cluster.default() if where is None else cluster.core(cluster.node_of(first_name(where))))


def checked(core: Core) -> Core:
    """The core; CaptureError if this thread captures a routine on another node."""
    if CURRENT.capture is not None:
        refuse_other_nodes(CURRENT.capture.core, core)
    return core


def first_name(where: Any) -> str:
    """The first named device; "" for none, and for an invalid name, which the node refuses."""
    if isinstance(where, Placement):
        where = where.names
    if isinstance(where, Mapping):
        where = tuple(where.values())
    if isinstance(where, tuple | list):
        return first_name(where[0]) if where else ""
    return where if type(where) is str else ""


def first_tensor(values: Any, depth: int) -> Tensor | None:
    """The first tensor in containers; None if there is none."""
    if isinstance(values, Tensor):
        return values
    inside: Iterable[Any] = ()
    if isinstance(values, list | tuple):
        inside = values
    elif isinstance(values, Mapping):
        inside = values.values()
    for member in inside if depth else ():
        tensor = first_tensor(member, depth - 1)
        if tensor is not None:
            return tensor
    return None


def routed(
    function: Callable[Concatenate[Part, P], R], part: Callable[[Any, Core], Part]
) -> Callable[Concatenate[OnNodes, P], R]:
    """The method, called on the node of its arguments. `part`: the object of one node that has the method.

    If tensors are on one node and `device` on another, the result is made on the first node, and moved.
    """
    names = list(signature(function).parameters)[1:]
    positions = {name: names.index(name) for name in DEVICE_PARAMETERS if name in names}

    @hides
    @wraps(function)
    def call(self: OnNodes, /, *args: Any, **kwargs: Any) -> Any:
        try:
            name, where = device_argument(positions, args, kwargs)
            core = core_of(self._cluster, (args, kwargs), where)
            if name != "device" or not self._cluster.is_elsewhere(core, where):
                return function(part(self, core), *args, **kwargs)
            index = positions[name]
            if index < len(args):
                args = (*args[:index], None, *args[index + 1 :])
            else:
                kwargs[name] = None
            made: Any = function(part(self, core), *args, **kwargs)
            return made.to_device(where)
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    return call


def device_argument(positions: Mapping[str, int], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Any]:
    """The argument that gives the devices, if there is one: its parameter, and its value."""
    for name, index in positions.items():
        where = kwargs.get(name, args[index] if index < len(args) else None)
        if where is not None:
            return name, where
    return "", None
