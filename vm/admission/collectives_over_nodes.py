"""Collectives with devices of several nodes: each node admits the steps that read or write memory of its own.

All nodes get the same request and make the same steps (`interpreter.collectives.over_nodes`). A step from this node's
memory to another's is a Send of the chunk; one from there is a Recv, which puts the chunk into its place in the result,
or merges it there while its pieces arrive. Where the place does not lie packed, or links do not reach it (a GPU), the
chunk is expected and received as a value of its own on the host, which goes with the step that reads it. All else is as
on one machine (`collectives`).

No deadlock: transfers match by name, not by order, and a chunk of its own has memory once it is offered. Results have
theirs from the beginning, so two clients whose collectives do not fit side by side wait for each other until their
`timeout`.

A node that refuses its part tells the other nodes, for each of its transfers: their results carry the same error.

Where the client has found that all devices have one library of collectives, it names that in the message, and each node
admits one LAUNCH instead (`collective_gang`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...interpreter.collectives.choice import Schedule
from ...interpreter.collectives.collective import Collective as Given
from ...interpreter.collectives.over_nodes import (
    Task,
    asked_over_nodes,
    digest_of,
    is_launchable,
    launching_nodes,
    nodes_of,
    part_of,
    part_to_do,
    transfer_of,
)
from ...interpreter.collectives.regions import Region, whole
from ...interpreter.collectives.request import ResolvedRequest
from ...interpreter.collectives.steps import CollectiveStep
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.types.device_names import node_of
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Collective, decode_meta
from ...streams.gangs.gang import Meeting
from ...streams.gangs.turns import Turns
from ...streams.links.link import Link, Merge
from ...streams.stream import Stream, StreamKind
from ..model.device_state import DeviceState
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, Tensor
from .collective_gang import GangGroup, library_of
from .collective_group import Group, Origin, part
from .collectives import Collectives, known
from .lookup import check_new, device_of, refuse_cancelled, tensor_of
from .node_transfers import Half, Landing, NodeTransfers, Piece
from .rejection import located


class Participation(NamedTuple):
    """What the nodes do together, as this one sees it. `homes`: of all tensors; `first`: the name of the first
    transfer; `incarnations`: of the nodes' daemons that are meant; `inputs`, `ranks`: the numbers of this node's."""

    asked: ResolvedRequest
    homes: tuple[str, ...]
    node: str
    first: bytes
    incarnations: Mapping[str, int]
    inputs: Sequence[int]
    ranks: Sequence[int]

    @property
    def whole(self) -> tuple[Given, tuple[str, ...], tuple[str, ...], str]:
        """What says which part this node has."""
        return self.asked.collective, self.homes, tuple(self.asked.devices), self.node


class CollectivesOverNodes:
    """The handler of COLLECTIVE messages: those about this machine alone are for `here`."""

    def __init__(self, here: Collectives, transfers: NodeTransfers) -> None:
        self.here = here
        self.transfers = transfers
        self.turns = Turns()

    def collective(self, session: VmSession, message: Collective) -> None:
        """Admit this node's part, or define its results poisoned and tell the other nodes."""
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
            metas = mine.asked.collective.outputs()
            devices = self.devices_of(message, mine)
            library = library_of(mine.asked, mine.homes, devices)
            bound = self.bind(cause, message, mine, devices, launched=library is not None)
            group: Group
            if library is None:
                group = GroupOverNodes(self, cause, mine, devices, bound)
            else:
                engine, meeting = (self.here.scheduler, self.here.residency), self.meeting(mine, self.link_to)
                group = GangGroup(*engine, cause, mine.asked, devices, bound, library, meeting, self.turns)
        except TensordError as error:
            self.here.refuse(cause, message, error, [metas[rank] for rank in devices], list(devices.values()))
            if mine is not None:
                self.withdraw(mine, located(session, error, cause.location, message.kind))
            return
        group.admit(message.outputs, metas)

    def participation_of(self, message: Collective) -> Participation:
        """What this node has to do; MetadataError for what does not fit."""
        node = self.transfers.own_node()
        if not message.transfer:
            raise MetadataError(f"{message.kind} over several nodes needs the name of a transfer", op=message.kind)
        try:
            metas = [as_meta(one) for one in message.metas]
        except (TypeError, ValueError, KeyError, TensordError):
            raise MetadataError(f"{message.kind}: what is no meta was given as one", op=message.kind) from None
        asked = asked_over_nodes(message.kind, message.homes, metas, message.devices, message.attributes)
        homes, meant = tuple(message.homes), incarnations_of(message, asked)
        inputs, ranks = own_of(homes, node), own_of(asked.devices, node)
        return Participation(asked, homes, node, message.transfer, meant, inputs, ranks)

    def devices_of(self, message: Collective, mine: Participation) -> dict[int, DeviceState]:
        """The devices of this node's ranks."""
        if len(mine.ranks) != len(message.outputs) or len(mine.inputs) != len(message.inputs):
            raise MetadataError(
                f"{message.kind}: {mine.node} got {len(message.inputs)} tensors for {len(message.outputs)} results, "
                f"and {len(mine.inputs)} for {len(mine.ranks)} are named",
                op=message.kind,
            )
        return {rank: device_of(self.here.scheduler.devices, mine.asked.devices[rank]) for rank in mine.ranks}

    def bind(
        self,
        cause: Cause,
        message: Collective,
        mine: Participation,
        devices: Mapping[int, DeviceState],
        *,
        launched: bool = False,
    ) -> dict[int, Binding]:
        """The tensors of this node, on their homes, which have to be those that were named."""
        given, tensors = mine.asked.collective, []
        for number, id_ in zip(mine.inputs, message.inputs, strict=True):
            tensor = known(tensor_of(cause.session, id_))
            check_named(tensor, mine.homes[number], given.inputs[number])
            tensors.append(tensor)
        outputs = given.outputs()
        metas = [outputs[rank] for rank in devices]
        bound = self.here.bind(cause, given, tensors, list(devices.values()), metas, launched=launched)
        return dict(zip(mine.inputs, bound, strict=True))

    def withdraw(self, mine: Participation, error: TensordError) -> None:
        """Tell the other nodes that nothing comes of this node's part."""
        if mine.asked.request.library:
            if mine.ranks and is_launchable(mine.asked, mine.homes):  # else they find the same
                self.meeting(mine, self.link_if_there).withdraw(error)
            return
        for task in part_to_do(*mine.whole).tasks:
            if task.source != task.target:
                self.withdraw_task(mine, task, error)

    def link_to(self, mine: Participation, node: str) -> Link:
        """The link to another node that takes part."""
        return self.transfers.link_to(node, mine.incarnations.get(node, 0))

    def link_if_there(self, mine: Participation, node: str) -> Link | None:
        """The link to another node; None if it is gone."""
        try:
            return self.link_to(mine, node)
        except TensordError:
            return None

    def meeting(self, mine: Participation, link_to: Callable[[Participation, str], Link | None]) -> Meeting:
        """What this node needs in order to launch together with the others."""
        meeting = Meeting(launching_nodes(mine.asked), mine.node, mine.first, digest_of(mine.asked), {})
        links = {other: link for other in meeting.others if (link := link_to(mine, other)) is not None}
        return meeting._replace(links=links)

    def withdraw_task(self, mine: Participation, task: Task, error: TensordError) -> None:
        sends = task.source == mine.node
        link = self.link_if_there(mine, task.target if sends else task.source)
        if link is not None:  # a node that is gone is not told
            (link.fail if sends else link.refuse)(transfer_of(mine.first, task.number), error)


class GroupOverNodes(Group):
    """This node's instructions of one collective. NodeLost if another node is."""

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
        super().__init__(here.scheduler, here.residency, cause, mine.asked, devices, inputs, schedule)
        self.transfers = admission.transfers
        self.first, self.node, self.tasks = mine.first, mine.node, part.tasks
        self.received = 0  # chunks, each of which waits for those before
        others = {node for task in part.tasks for node in (task.source, task.target)} - {mine.node}
        self.links = {node: admission.link_to(mine, node) for node in others}

    def filling_stream(self, device: DeviceState) -> Stream | None:
        """None where links put chunks into the result."""
        return None if device.backend.linked else super().filling_stream(device)

    def admit_steps(self, name: str) -> None:
        """Admit what this node does of the steps."""
        for index, task in enumerate(self.tasks):
            label = f"{name}, {task.text}"
            if task.source == task.target:
                self.admit_step(index, label)
            elif task.source == self.node:
                self.send_chunk(task, label, transfer_of(self.first, task.number))
            else:
                self.receive_chunk(task, label, transfer_of(self.first, task.number))

    def send_chunk(self, task: Task, label: str, transfer: bytes) -> None:
        """Send a chunk: from where it lies, or from a packed copy of it on the host."""
        source, meta, node = task.step.source, task.meta, task.target
        binding, region, link = self.binding(source), source.region, self.links[node]
        half = Half(transfer, link.fail)
        if self.is_in_reach(binding, region):
            piece = Piece(binding, meta, self.taking(region), self.tokens_read(source))
            self.transfers.admit_send(self.cause, link, half, piece, node, self.limit)
            return
        host = self.host_of(binding.copy.device)
        staged = self.staged(source, f"{label}, packed on {host.name}", host, meta.nbytes)
        self.transfers.admit_send(self.cause, link, half, Piece(staged, meta), node, self.limit)
        self.drop(staged)

    def receive_chunk(self, task: Task, label: str, transfer: bytes) -> None:
        """Receive a chunk into its place, or into a value of its own that the step then copies or merges."""
        step, meta = task.step, task.meta
        device = self.devices[step.rank]
        if self.lands(step):
            self.land_chunk(step, meta, transfer, task.source)
            return
        host, chunk = self.host_of(device), whole(step.source.region.shape)
        scratch = self.scratch(chunk, host)
        self.admit_recv(Piece(scratch, meta), transfer, task.source)
        if host is device:
            origin = Origin(scratch, chunk, [], StreamKind.P2P, device.backend.copy, 0, True)
        else:
            origin = Origin(scratch, chunk, [], StreamKind.H2D, device.backend.copy_in, meta.nbytes, False)
        self.receive(step, label, origin)
        self.drop(scratch)

    def lands(self, step: CollectiveStep) -> bool:
        """Can the link put the chunk into its place, and read what it is merged with?"""
        base, result = step.base, self.results[step.rank]
        if base is not None:
            own = self.binding(base)
            if own.copy.device is not result.copy.device or not self.is_in_reach(own, base.region):
                return False
        return self.is_in_reach(result, step.target.region)

    def land_chunk(self, step: CollectiveStep, meta: Meta, transfer: bytes, node: str) -> None:
        """Receive a chunk into its place, or merge it there. It may take as long as the chunks before it may."""
        base, link = step.base, self.links[node]
        own = () if base is None else (self.binding(base),)
        bindings, into = (self.results[step.rank], *own), self.landing(step)
        landing = Landing(bindings, meta, into, self.tokens_read(base), (self.token(step.target),))
        self.received += 1
        limit = self.limit * (self.received + 1)
        self.transfers.admit_landing(self.cause, link, Half(transfer, link.refuse), landing, node, limit)

    def landing(self, step: CollectiveStep) -> Callable[..., Any]:
        """What takes the place of the chunk in the result's array, or makes what merges pieces with the base's."""
        place, base, flat = step.target.region, step.base, self.given.flat
        if base is None:
            return self.taking(place)
        device, function, own = self.devices[step.rank].backend, self.given.merge, base.region

        def into(result: Any, given: Any) -> Merge:
            target, source = part(result, place, flat).reshape(-1), part(given, own, flat).reshape(-1)

            def merge(first: int, piece: Any) -> None:
                some = slice(first, first + len(piece))
                device.merge(target[some], source[some], piece, function)

            return merge

        return into

    def admit_recv(self, piece: Piece, transfer: bytes, node: str) -> None:
        """Admit the Expect and the Recv of a chunk. Its offer may take as long as the chunks before it may."""
        link = self.links[node]
        self.received += 1
        limits = self.limit * self.received, self.limit
        self.transfers.admit_recv(self.cause, link, Half(transfer, link.refuse), piece, node, limits)

    def is_in_reach(self, binding: Binding, region: Region) -> bool:
        """Does the region lie packed, in memory that links read and fill?"""
        meta = binding.tensor.meta
        if not binding.copy.device.backend.linked or meta is None:
            return False
        packed = binding.strides is None or binding.strides == meta.strides
        return packed and (self.given.flat or region.is_packed_in(meta.shape))

    def taking(self, region: Region) -> Callable[[Any], Any]:
        """What takes the region of a value's array."""
        flat = self.given.flat
        return lambda array: part(array, region, flat)

    def host_of(self, device: DeviceState) -> DeviceState:
        """The device itself where links read its memory, else the host."""
        host = device if device.backend.linked else self.residency.host
        if host is None:
            raise MetadataError(f"chunks of {device.name} are exchanged on a cpu device, and this machine has none")
        return host


def own_of(names: Sequence[str], node: str) -> list[int]:
    """The numbers of the devices that are this node's."""
    return [number for number, name in enumerate(names) if node_of(name) == node]


def incarnations_of(message: Collective, asked: ResolvedRequest) -> dict[str, int]:
    """The incarnations of the nodes' daemons that are meant, if they were named; MetadataError for too few."""
    nodes = nodes_of(tuple(message.homes), tuple(asked.devices))
    if message.incarnations and len(message.incarnations) != len(nodes):
        raise MetadataError(
            f"{message.kind}: {len(message.incarnations)} incarnations for {len(nodes)} nodes", op=message.kind
        )
    return dict(zip(nodes, message.incarnations, strict=False))


def as_meta(wire: Any) -> Meta | None:
    """The meta of a tensor from outside; TypeError for that of a number."""
    meta = decode_meta(wire)
    if isinstance(meta, type):
        raise TypeError("a number is no tensor")
    return meta


def check_named(tensor: Tensor, home: str, meta: Meta) -> None:
    """MetadataError if a tensor is another one than the other nodes were told of."""
    if tensor.home.name != home or tensor.meta != meta:
        found = f"{tensor.meta} on {tensor.home.name}"
        raise MetadataError(f"all nodes were told of a {meta} on {home}, and the tensor is {found}")
