"""A session on several machines: the facade. Most methods are those of a session, on the node of their arguments."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Final, Never

from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.opdef import OpDef
from ...interpreter.types.meta import Scalar
from ..calls.by_name import call
from ..calls.checks import Device
from ..core.core import Core
from ..global_tensors.checks import checked as checked_placement
from ..locations.tracebacks import hides, make_public, signed
from ..outbox.current import refuse_captured
from ..outbox.outbox import PART_OF_ROUTINE
from ..session.handlers import Handler, Invocation
from ..session.parts import Parts
from ..session.session import Session
from ..tensor.tensor import Tensor
from ..waiting.helper import in_helper
from .atomic import ClusterBlock
from .checkpoints import ClusterCheckpoints
from .facet import on_node
from .moving import brought
from .names import ClusterNames
from .namespace import ClusterNamespace, ClusterNn, ClusterRandom
from .nodes import ClusterNodes
from .order import ClusterOrder
from .reports import ClusterReports
from .routing import core_of, first_name, routed
from .spans import ClusterSpan

if TYPE_CHECKING:
    from .cluster import Cluster

# Methods of one node: that of their tensors, else that of their device.
ON_ONE_NODE: Final = ("asarray", "global_tensor", "link", "explain", "cond", "case", "while_loop")


class ClusterSession(ClusterNodes, ClusterNames, ClusterCheckpoints, ClusterOrder, ClusterReports, Session):
    """A session on all nodes of a cluster. Made by `tensord.connect_cluster`.

    Devices are named `node0/cpu:0`. The default device of new tensors is the first of `devices`, on the node that was
    connected first. A tensor is on one node, and all operands of an op are on the same node; only `to_device` and
    collectives move values to another node.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open_cores = {core.node: core for core in cluster.adopt(weakref.ref(self))}
        self._namespace: Callable[[], ClusterNamespace | None] = lambda: None

    def keep(self, core: Parts) -> None:
        """Keep the session of a node open.

        :param core: The core of that session.
        """
        self._open_cores[core.node] = core

    @property
    def _core(self) -> Parts:  # type: ignore[override]
        """The core of the first node, where side effects are, and files are written."""
        return self._cluster.first()

    # -- ops ----------------------------------------------------------------------------------------------------------

    @hides
    @signed
    def call(
        self,
        name: str,
        inputs: Sequence[Tensor | Scalar] = (),
        attributes: Mapping[str, Any] | None = None,
        *more: Never,
        out: Sequence[Tensor] | None = None,
        device: Device | None = None,
    ) -> list[Tensor]:
        """Issue one op by name, on the node of its operands; see `Session.call`."""
        first: Any = inputs[0] if type(inputs) in {list, tuple} and inputs else None
        core = first._core if type(first) is Tensor else core_of(self._cluster, (out, inputs), device)
        return call(core, name, inputs, attributes, *more, out=out, device=device)

    @property
    def xp(self) -> ClusterNamespace:
        """The namespace of the Python array API standard: each function runs on the node of its tensors."""
        namespace = self._namespace()
        if namespace is None:
            namespace = ClusterNamespace(self._cluster)
            self._namespace = weakref.ref(namespace)
        return namespace

    @property
    def nn(self) -> Any:
        """Neural network functions and their gradients, on the node of their tensors."""
        return ClusterNn(self._cluster)

    @property
    def random(self) -> Any:
        """Random tensors. All nodes draw from one seed, so a program draws the same numbers as on one machine."""
        return ClusterRandom(self._cluster)

    def supports(self, op: OpDef, device: str) -> bool:
        """Say whether a device has a kernel for an op. For handlers; see `Session.supports`."""
        return on_node(self._cluster.core(self._cluster.node_of(device))).supports(op, device)

    def place(self, invocation: Invocation) -> str:
        """Choose the device on which an invocation will run. For handlers; see `Session.place`."""
        return on_node(core_for(self._cluster, invocation)).place(invocation)

    def execute(self, invocation: Invocation) -> list[Tensor]:
        """Send an op as it is to its device, as the innermost handler does; see `Session.execute`."""
        return on_node(core_for(self._cluster, invocation)).execute(invocation)

    def repeat(self, count: Any, body: Callable[..., Any], /, *state: Any) -> Any:
        """Run ``for _ in range(count): state = body(*state)`` on the node of the state; see `Session.repeat`."""
        return on_node(core_of(self._cluster, (state, count))).repeat(count, body, *state)

    # -- shared by all nodes ------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The address of the daemon that was connected first."""
        return self._cluster.address

    @property
    def devices(self) -> list[str]:
        """Names of the devices of all nodes that are up; the first is the default."""
        return self._cluster.devices()

    @property
    def placement(self) -> Placement | None:
        """The placement of new tensors without a device; see `Session.placement`."""
        return self._cluster.placement

    @placement.setter
    def placement(self, placement: Placement | None) -> None:
        cluster = self._cluster
        core = cluster.first() if placement is None else cluster.core(cluster.node_of(first_name(placement)))
        refuse_captured(core.outbox, "the session's placement cannot be set")
        cluster.place(core, None if placement is None else checked_placement(core, placement))

    @property
    def handler(self) -> Handler:
        """The chain of handlers that every op passes, on all nodes; see `tensord.handlers`."""
        return self._cluster.handler

    @handler.setter
    def handler(self, handler: Handler) -> None:
        self._core.use(handler)
        self._cluster.handler = handler
        for core in self._cluster.cores():
            core.use(handler)

    def atomic(self) -> AbstractContextManager[None]:
        """`with session.atomic():` as on one machine, for ops on one node: the first op inside decides on the node.

        An op on another node raises MetadataError.
        """
        for core in self._cluster.cores():
            refuse_captured(core.outbox, PART_OF_ROUTINE)
        return ClusterBlock(self._cluster)

    def span(self, name: str) -> AbstractContextManager[None]:
        """`with session.span("step 37"):` as on one machine, on all nodes; see `Session.span`."""
        Session.span(self, name)
        return ClusterSpan(self._cluster, name)

    # -- side effects, which have one order: that of the first node ---------------------------------------------------

    def effect(self, callback: Callable[..., None], *tensors: Tensor, chain: int | None = None) -> None:
        """Call a function with the values of tensors, after the side effects issued before; see `Session.effect`.

        Values of other nodes are moved to the first node, to which the chain belongs.
        """
        core = self._core
        on_node(core).effect(callback, *(brought(self._cluster, core, each) for each in tensors), chain=chain)

    def host_call(
        self, function: Callable[..., Any], *tensors: Tensor, result: Any, device: Device | None = None
    ) -> Any:
        """Make tensors that a function of this program computes; see `Session.host_call`.

        The machine of the first tensor calls the function; tensors of other nodes are moved there.
        """
        cluster = self._cluster
        core = core_of(cluster, tensors, device)
        core.loop = core.loop or self._core.loop
        given = [brought(cluster, core, each) for each in tensors]
        away = device is not None and cluster.is_elsewhere(core, device)
        made = on_node(core).host_call(function, *given, result=result, device=None if away else device)
        if not away:
            return made
        return [each.to_device(device) for each in made] if isinstance(made, list) else made.to_device(device)

    def print(self, *values: Tensor | object, sep: str = " ", chain: int | None = None) -> None:
        """Print tensors' values and other objects in program order; see `Session.print`, and `effect`."""
        core = self._core
        on_node(core).print(*(brought(self._cluster, core, each) for each in values), sep=sep, chain=chain)

    # -- the end ------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._cluster.ended.is_set()

    def close(self) -> None:
        """End the session on all nodes; see `Session.close`."""
        cores = self._cluster.all_cores()
        for core in cores:
            refuse_captured(core.outbox, "the session cannot be closed")
        self._cluster.ended.set()
        with ExitStack() as ends:  # all end, even if one raises
            for core in cores:
                ends.callback(on_node(core).close)

    async def close_async(self) -> None:
        """`await session.close_async()`: see `close`."""
        await in_helper(self.close)

    def __repr__(self) -> str:
        state = "closed" if self.closed else ", ".join(self.devices)
        return f"<tensord.ClusterSession at {self.address}: {state}>"


def part_of(_session: ClusterSession, core: Core) -> Session:
    """The session of one node."""
    return on_node(core)


def core_for(cluster: Cluster, invocation: Invocation) -> Core:
    """The core for an invocation."""
    return core_of(cluster, (invocation.out, invocation.inputs), invocation.device)


for _name in ON_ONE_NODE:
    setattr(ClusterSession, _name, routed(getattr(Session, _name), part_of))
make_public(ClusterSession)
