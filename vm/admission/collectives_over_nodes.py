"""Collectives with devices of several nodes: each node admits the steps that read or write memory of its own.

All nodes get the same request and compute the same steps (`interpreter.collectives.over_nodes`). A step from this
node's memory to another node's is a SEND of the chunk. A step from another node is a RECV, which writes the chunk into
the result, or merges it there while pieces of it arrive. If the target region is not packed, or links cannot reach its
memory (a GPU), the chunk is received into a temporary value on the host, which the step then reads. Everything else is
as on one machine (`collectives`).

There is no deadlock between transfers: they match by name, not by order, and a temporary value gets memory only when
its chunk is offered. Results have memory from the beginning, so two clients whose collectives do not fit side by side
wait for each other until their `timeout`.

A node that refuses its part tells the other nodes for each of its transfers, so that their results carry the same
error.

If the client names a library of collectives, which all devices share, each node admits one LAUNCH instead
(`collective_gang`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...interpreter.collectives.choice import Schedule
from ...interpreter.collectives.collective import CollectiveSpec as Given
from ...interpreter.collectives.over_nodes import (
    NodeStep,
    digest_of,
    is_launchable,
    launching_nodes,
    nodes_of,
    part_of,
    part_to_do,
    resolve_over_nodes,
    transfer_of,
)
from ...interpreter.collectives.regions import Region, whole
from ...interpreter.collectives.request import ResolvedRequest
from ...interpreter.collectives.steps import CollectiveStep
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.types.device_names import node_of
from ...interpreter.types.meta import Meta
from ...interpreter.wire.metas import decode_meta
from ...interpreter.wire.node_messages import Collective
from ...streams.gangs.gang import Rendezvous
from ...streams.gangs.turns import Turns
from ...streams.links.link import Merge, NodeLink
from ...streams.stream import Stream, StreamKind
from ..model.device_state import DeviceState
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, VmTensor
from .collective_gang import GangGroup, library_of
from .collective_group import CollectiveGroup, Origin, part
from .collectives import CollectiveHandler, known_tensor
from .lookup import check_new, device_of, refuse_cancelled, tensor_of
from .node_transfers import Half, Landing, NodeTransferHandlers, TransferPiece
from .rejection import located


class Participation(NamedTuple):
    """This node's part in a collective over nodes.

    `homes`: the homes of all inputs; `first`: the name of the first transfer; `incarnations`: the incarnation of each
    node that the client means; `inputs`, `ranks`: the numbers of the inputs and results on this node.
    """

    resolved: ResolvedRequest
    homes: tuple[str, ...]
    node: str
    first: bytes
    incarnations: Mapping[str, int]
    inputs: Sequence[int]
    ranks: Sequence[int]

    @property
    def whole(self) -> tuple[Given, tuple[str, ...], tuple[str, ...], str]:
        """The arguments of `part_of` and `part_to_do`, which compute this node's part."""
        return self.resolved.collective, self.homes, tuple(self.resolved.devices), self.node


class CollectivesOverNodes:
    """The handler of COLLECTIVE messages. A collective on this machine alone goes to `here`."""

    def __init__(self, here: CollectiveHandler, transfers: NodeTransferHandlers) -> None:
        self.here = here
        self.transfers = transfers
        self.turns = Turns()

    def collective(self, session: VmSession, message: Collective) -> None:
        """Admit this node's part; if it is refused, define the results, poisoned, and tell the other nodes."""
        if not message.homes:
            self.here.collective(session, message)
            return
        cause = Cause(session, message.location)
        mine: Participation | None = None
        devices: dict[int, DeviceState] = {}
        metas: Sequence[Meta] = ()
        try:
            mine = self.participation_of(message)
            refuse_cancelled(session)
            check_new(session, message.outputs)
            metas = mine.resolved.collective.outputs()
            devices = self.devices_of(message, mine)
            library = library_of(mine.resolved, mine.homes, devices)
            bound = self.bind(cause, message, mine, devices, launched=library is not None)
            group: CollectiveGroup
            if library is None:
                group = GroupOverNodes(self, cause, mine, devices, bound)
            else:
                engine, rendezvous = (self.here.scheduler, self.here.residency), self.rendezvous(mine, self.link_to)
                group = GangGroup(*engine, cause, mine.resolved, devices, bound, library, rendezvous, self.turns)
        except TensordError as error:
            self.here.refuse(cause, message, error, [metas[rank] for rank in devices], list(devices.values()))
            if mine is not None:
                self.withdraw(mine, located(session, error, cause.location, message.kind))
            return
        group.admit(message.outputs, metas)

    def participation_of(self, message: Collective) -> Participation:
        """This node's part of the message's collective; MetadataError for an inconsistent message."""
        node = self.transfers.own_node()
        if not message.transfer:
            raise MetadataError(f"{message.kind} over several nodes needs the name of a transfer", op=message.kind)
        try:
            metas = [as_meta(one) for one in message.metas]
        except (TypeError, ValueError, KeyError, TensordError):
            raise MetadataError(f"{message.kind}: an input's meta is malformed", op=message.kind) from None
        resolved = resolve_over_nodes(message.kind, message.homes, metas, message.devices, message.attributes)
        homes, meant = tuple(message.homes), incarnations_of(message, resolved)
        inputs, ranks = own_of(homes, node), own_of(resolved.devices, node)
        return Participation(resolved, homes, node, message.transfer, meant, inputs, ranks)

    def devices_of(self, message: Collective, mine: Participation) -> dict[int, DeviceState]:
        """The devices of this node's ranks; MetadataError if the message has other inputs or outputs than the part."""
        if len(mine.ranks) != len(message.outputs) or len(mine.inputs) != len(message.inputs):
            raise MetadataError(
                f"{message.kind}: {mine.node} got {len(message.inputs)} tensors for {len(message.outputs)} results, "
                f"and {len(mine.inputs)} for {len(mine.ranks)} are named",
                op=message.kind,
            )
        return {rank: device_of(self.here.scheduler.devices, mine.resolved.devices[rank]) for rank in mine.ranks}

    def bind(
        self,
        cause: Cause,
        message: Collective,
        mine: Participation,
        devices: Mapping[int, DeviceState],
        *,
        launched: bool = False,
    ) -> dict[int, Binding]:
        """This node's inputs, on their homes; MetadataError if a home or meta is not the one in the request."""
        given, tensors = mine.resolved.collective, []
        for number, id_ in zip(mine.inputs, message.inputs, strict=True):
            tensor = known_tensor(tensor_of(cause.session, id_))
            check_named(tensor, mine.homes[number], given.inputs[number])
            tensors.append(tensor)
        outputs = given.outputs()
        metas = [outputs[rank] for rank in devices]
        bound = self.here.bind(cause, given, tensors, list(devices.values()), metas, launched=launched)
        return dict(zip(mine.inputs, bound, strict=True))

    def withdraw(self, mine: Participation, error: TensordError) -> None:
        """Tell the other nodes that this node does not take part."""
        if mine.resolved.request.library:
            if mine.ranks and is_launchable(mine.resolved, mine.homes):  # otherwise each node refuses by itself
                self.rendezvous(mine, self.existing_link).withdraw(error)
            return
        for task in part_to_do(*mine.whole).tasks:
            if task.source != task.target:
                self.withdraw_task(mine, task, error)

    def link_to(self, mine: Participation, node: str) -> NodeLink:
        """The link to another node that takes part."""
        return self.transfers.link_to(node, mine.incarnations.get(node, 0))

    def existing_link(self, mine: Participation, node: str) -> NodeLink | None:
        """The link to another node; None if it is gone."""
        try:
            return self.link_to(mine, node)
        except TensordError:
            return None

    def rendezvous(self, mine: Participation, link_to: Callable[[Participation, str], NodeLink | None]) -> Rendezvous:
        """The rendezvous in which this node and the others agree to launch."""
        rendezvous = Rendezvous(launching_nodes(mine.resolved), mine.node, mine.first, digest_of(mine.resolved), {})
        links = {other: link for other in rendezvous.others if (link := link_to(mine, other)) is not None}
        return rendezvous._replace(links=links)

    def withdraw_task(self, mine: Participation, task: NodeStep, error: TensordError) -> None:
        sends = task.source == mine.node
        link = self.existing_link(mine, task.target if sends else task.source)
        if link is not None:  # a lost node cannot be told
            (link.fail if sends else link.refuse)(transfer_of(mine.first, task.number), error)


class GroupOverNodes(CollectiveGroup):
    """This node's instructions of one collective over nodes. NodeLost if another node is lost."""

    def __init__(
        self,
        admission: CollectivesOverNodes,
        cause: Cause,
        mine: Participation,
        devices: Mapping[int, DeviceState],
        inputs: Mapping[int, Binding],
    ) -> None:
        here, part = admission.here, part_of(*mine.whole)
        schedule = Schedule(part.algorithm, part.steps)
        super().__init__(here.scheduler, here.residency, cause, mine.resolved, devices, inputs, schedule)
        self.transfers = admission.transfers
        self.first, self.node, self.tasks = mine.first, mine.node, part.tasks
        self.received = 0  # chunks so far; each may wait for the earlier ones, so its time limit grows
        others = {node for task in part.tasks for node in (task.source, task.target)} - {mine.node}
        self.links = {node: admission.link_to(mine, node) for node in others}

    def filling_stream(self, device: DeviceState) -> Stream | None:
        """The stream that fills a result; None for memory into which links write chunks."""
        return None if device.backend.linked else super().filling_stream(device)

    def admit_steps(self, name: str) -> None:
        """Admit this node's share of the steps."""
        for index, task in enumerate(self.tasks):
            label = f"{name}, {task.text}"
            if task.source == task.target:
                self.admit_step(index, label)
            elif task.source == self.node:
                self.send_chunk(task, label, transfer_of(self.first, task.number))
            else:
                self.receive_chunk(task, label, transfer_of(self.first, task.number))

    def send_chunk(self, task: NodeStep, label: str, transfer: bytes) -> None:
        """Send a chunk in place, or from a packed copy on the host."""
        source, meta, node = task.step.source, task.meta, task.target
        binding, region, link = self.binding(source), source.region, self.links[node]
        half = Half(transfer, link.fail)
        if self.is_in_reach(binding, region):
            piece = TransferPiece(binding, meta, self.taking(region), self.tokens_read(source))
            self.transfers.admit_send(self.cause, link, half, piece, node, self.limit)
            return
        host = self.host_of(binding.copy.device)
        staged = self.staged(source, f"{label}, packed on {host.name}", host, meta.nbytes)
        self.transfers.admit_send(self.cause, link, half, TransferPiece(staged, meta), node, self.limit)
        self.drop(staged)

    def receive_chunk(self, task: NodeStep, label: str, transfer: bytes) -> None:
        """Receive a chunk into the result, or into a temporary value that the step then copies or merges."""
        step, meta = task.step, task.meta
        device = self.devices[step.rank]
        if self.lands_in_place(step):
            self.land_chunk(step, meta, transfer, task.source)
            return
        host, chunk = self.host_of(device), whole(step.source.region.shape)
        scratch = self.scratch(chunk, host)
        self.admit_recv(TransferPiece(scratch, meta), transfer, task.source)
        if host is device:
            origin = Origin(scratch, chunk, [], StreamKind.P2P, device.backend.copy, 0, True)
        else:
            origin = Origin(scratch, chunk, [], StreamKind.H2D, device.backend.copy_in, meta.nbytes, False)
        self.receive(step, label, origin)
        self.drop(scratch)

    def lands_in_place(self, step: CollectiveStep) -> bool:
        """Whether the link can write the chunk into the result, and read the base of its merge."""
        base, result = step.base, self.results[step.rank]
        if base is not None:
            own = self.binding(base)
            if own.copy.device is not result.copy.device or not self.is_in_reach(own, base.region):
                return False
        return self.is_in_reach(result, step.target.region)

    def land_chunk(self, step: CollectiveStep, meta: Meta, transfer: bytes, node: str) -> None:
        """Receive a chunk into the result, or merge the chunk there.

        The time limit includes the limits of the chunks before.
        """
        base, link = step.base, self.links[node]
        own = () if base is None else (self.binding(base),)
        bindings, into = (self.results[step.rank], *own), self.landing(step)
        landing = Landing(bindings, meta, into, self.tokens_read(base), (self.token(step.target),))
        self.received += 1
        limit = self.limit * (self.received + 1)
        self.transfers.admit_landing(self.cause, link, Half(transfer, link.refuse), landing, node, limit)

    def landing(self, step: CollectiveStep) -> Callable[..., Any]:
        """The function from the result's array, and the base's, to the chunk's target: an array, or a `Merge`."""
        region, base, flat = step.target.region, step.base, self.flat
        if base is None:
            return self.taking(region)
        device, function, own = self.devices[step.rank].backend, self.given.merge, base.region

        def into(result: Any, given: Any) -> Merge:
            target, source = part(result, region, flat).reshape(-1), part(given, own, flat).reshape(-1)

            def merge(first: int, piece: Any) -> None:
                some = slice(first, first + len(piece))
                device.merge(target[some], source[some], piece, function)

            return merge

        return into

    def admit_recv(self, piece: TransferPiece, transfer: bytes, node: str) -> None:
        """Admit the EXPECT and RECV of a chunk. The time limit of its offer includes those of the chunks before."""
        link = self.links[node]
        self.received += 1
        limits = self.limit * self.received, self.limit
        self.transfers.admit_recv(self.cause, link, Half(transfer, link.refuse), piece, node, limits)

    def is_in_reach(self, binding: Binding, region: Region) -> bool:
        """Whether the region is packed, and in memory that links can read and write."""
        meta = binding.tensor.meta
        if not binding.copy.device.backend.linked or meta is None:
            return False
        packed = binding.strides is None or binding.strides == meta.strides
        return packed and (self.flat or region.is_packed_in(meta.shape))

    def taking(self, region: Region) -> Callable[[Any], Any]:
        """The function from a value's array to the region of it."""
        flat = self.flat
        return lambda array: part(array, region, flat)

    def host_of(self, device: DeviceState) -> DeviceState:
        """The device itself if links can read its memory, else the host device."""
        host = device if device.backend.linked else self.residency.host
        if host is None:
            raise MetadataError(f"chunks of {device.name} are exchanged on a cpu device, and this machine has none")
        return host


def own_of(names: Sequence[str], node: str) -> list[int]:
    """The positions of the device names that belong to this node."""
    return [number for number, name in enumerate(names) if node_of(name) == node]


def incarnations_of(message: Collective, resolved: ResolvedRequest) -> dict[str, int]:
    """The incarnation of each node that the client means; empty if the message has none.

    MetadataError if there are more or fewer incarnations than nodes.
    """
    nodes = nodes_of(tuple(message.homes), tuple(resolved.devices))
    if message.incarnations and len(message.incarnations) != len(nodes):
        raise MetadataError(
            f"{message.kind}: {len(message.incarnations)} incarnations for {len(nodes)} nodes", op=message.kind
        )
    return dict(zip(nodes, message.incarnations, strict=False))


def as_meta(wire: Any) -> Meta | None:
    """Decode the meta of a tensor; TypeError if it is the type of a scalar."""
    meta = decode_meta(wire)
    if isinstance(meta, type):
        raise TypeError("a scalar is not a tensor")
    return meta


def check_named(tensor: VmTensor, home: str, meta: Meta) -> None:
    """MetadataError if a tensor's home or meta differs from the request that all nodes got."""
    if tensor.home.name != home or tensor.meta != meta:
        found = f"{tensor.meta} on {tensor.home.name}"
        raise MetadataError(f"the request names a tensor {meta} on {home}, but the tensor is {found}")
