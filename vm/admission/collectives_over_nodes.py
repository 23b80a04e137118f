"""Collectives with devices of several nodes: each node admits the steps that read or write memory of its own.

All nodes get the same request and make the same steps (`interpreter.collectives.over_nodes`). A step from this node's
memory to another's is a Send of the chunk; one from there is an Expect and a Recv. A chunk that is merged, or does not
lie packed in the result, is received into a value of its own, which goes with the step that reads it; any other one
into its place in the result. All else is as on one machine (`collectives`).

No deadlock: transfers match by name, not by order, and a chunk has memory once it is offered. Results have theirs from
the beginning, so two clients whose collectives do not fit side by side wait for each other until their `timeout`.

Whoever refuses its part tells the other nodes for each of its transfers: their results carry the same error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...interpreter.collectives.choice import schedule_of
from ...interpreter.collectives.over_nodes import asked_over_nodes, transfer_of
from ...interpreter.collectives.regions import Region, whole
from ...interpreter.collectives.request import Asked
from ...interpreter.collectives.steps import Place, Step
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.device_names import node_of
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Collective, decode_meta
from ...streams.links.link import Told
from ...streams.stream import StreamKind
from ..model.device_state import DeviceState
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, Copy, Tensor
from ..tracing.link_labels import OFFER, RECV, SEND, LinkLabel
from .collective_group import Group, Origin, part
from .collectives import Collectives, known
from .lookup import check_new, device_of, refuse_cancelled, tensor_of
from .node_transfers import Half, NodeTransfers
from .rejection import located


class Request(NamedTuple):
    """What the nodes are to do together, as this one sees it. `homes`: of all tensors; `first`: the name of the first
    transfer."""

    asked: Asked
    homes: Sequence[str]
    node: str
    first: bytes

    @property
    def ranks(self) -> list[int]:
        """The ranks of this node."""
        return [rank for rank, name in enumerate(self.asked.devices) if node_of(name) == self.node]

    @property
    def inputs(self) -> list[int]:
        """The tensors of this node."""
        return [number for number, name in enumerate(self.homes) if node_of(name) == self.node]

    def nodes(self, step: Step) -> tuple[str, str]:
        """The node that has the chunk of a step, and the one that receives it."""
        return node_of(self.home(step.source)), node_of(self.asked.devices[step.rank])

    def home(self, place: Place) -> str:
        """The device that has a place. The one tensor of a broadcast has the number 0."""
        return (self.homes if place.is_input else self.asked.devices)[place.rank]


class CollectivesOverNodes:
    """The handler of COLLECTIVE messages: those about this machine alone are for `here`."""

    def __init__(self, here: Collectives, transfers: NodeTransfers) -> None:
        self.here = here
        self.transfers = transfers

    def collective(self, session: VmSession, message: Collective) -> None:
        """Admit this node's part, or define its results poisoned and tell the other nodes."""
        if not message.homes:
            self.here.collective(session, message)
            return
        cause = Cause(session, message.location)
        request: Request | None = None
        devices: dict[int, DeviceState] = {}
        metas: Sequence[Meta] = ()
        try:
            request = self.request_of(message)
            refuse_cancelled(session)
            check_new(session, message.outputs)
            metas = request.asked.collective.outputs()
            devices = self.devices_of(message, request)
            bound = self.bind(cause, message, request, devices)
            group = GroupOverNodes(self, cause, request, devices, bound)
        except TensordError as error:
            mine = [metas[rank] for rank in devices]
            self.here.refuse(cause, message, error, mine, list(devices.values()))
            if request is not None:
                self.withdraw(request, located(session, error, cause.location, message.kind))
            return
        group.admit(message.outputs, metas)

    def request_of(self, message: Collective) -> Request:
        """The request; MetadataError for one that does not fit."""
        node = self.transfers.own_node()
        if not message.transfer:
            raise MetadataError(f"{message.kind} over several nodes needs the name of a transfer", op=message.kind)
        try:
            metas = [as_meta(one) for one in message.metas]
        except (TypeError, ValueError, KeyError, TensordError):
            raise MetadataError(f"{message.kind}: what is no meta was given as one", op=message.kind) from None
        asked = asked_over_nodes(message.kind, message.homes, metas, message.devices, message.attributes)
        return Request(asked, message.homes, node, message.transfer)

    def devices_of(self, message: Collective, request: Request) -> dict[int, DeviceState]:
        """The devices of this node's ranks."""
        if len(request.ranks) != len(message.outputs) or len(request.inputs) != len(message.inputs):
            raise MetadataError(
                f"{message.kind}: {request.node} got {len(message.inputs)} tensors for {len(message.outputs)} results, "
                f"and {len(request.inputs)} for {len(request.ranks)} are named",
                op=message.kind,
            )
        return {rank: device_of(self.here.scheduler.devices, request.asked.devices[rank]) for rank in request.ranks}

    def bind(
        self, cause: Cause, message: Collective, request: Request, devices: Mapping[int, DeviceState]
    ) -> dict[int, Binding]:
        """The tensors of this node, on their homes, which have to be those that were named."""
        given, tensors = request.asked.collective, []
        for number, id_ in zip(request.inputs, message.inputs, strict=True):
            tensor = known(tensor_of(cause.session, id_))
            check_named(tensor, request.homes[number], given.inputs[number])
            tensors.append(tensor)
        outputs = given.outputs()
        metas = [outputs[rank] for rank in devices]
        bound = self.here.bind(cause, given, tensors, list(devices.values()), metas)
        return dict(zip(request.inputs, bound, strict=True))

    def withdraw(self, request: Request, error: TensordError) -> None:
        """Tell the other nodes that nothing comes of this node's part."""
        for number, step in enumerate(schedule_of(request.asked.collective).steps):
            source, target = request.nodes(step)
            if request.node in {source, target} and source != target:
                self.withdraw_step(request, number, source, target, error)

    def withdraw_step(self, request: Request, number: int, source: str, target: str, error: TensordError) -> None:
        name = transfer_of(request.first, number)
        try:
            link = self.transfers.link_to(target if source == request.node else source)
        except TensordError:
            return  # a node that is gone is not told
        (link.fail if source == request.node else link.refuse)(name, error)


class GroupOverNodes(Group):
    """This node's instructions of one collective. NodeLost if another node is."""

    def __init__(
        self,
        admission: CollectivesOverNodes,
        cause: Cause,
        request: Request,
        devices: Mapping[int, DeviceState],
        inputs: Mapping[int, Binding],
    ) -> None:
        here = admission.here
        super().__init__(here.scheduler, here.residency, cause, request.asked, devices, inputs)
        self.transfers = admission.transfers
        self.over_nodes = request
        self.received = 0  # chunks, each of which waits for those before
        others = {node for step in self.steps for node in request.nodes(step)} - {request.node}
        self.links = {node: self.transfers.link_to(node) for node in others}

    def admit_step(self, number: int, label: str) -> None:
        """Admit what this node does of a step."""
        step, node = self.steps[number], self.over_nodes.node
        source, target = self.over_nodes.nodes(step)
        if source == target == node:
            super().admit_step(number, label)
        elif source == node:
            self.send_chunk(step.source, label, transfer_of(self.over_nodes.first, number), target)
        elif target == node:
            self.receive_chunk(step, label, transfer_of(self.over_nodes.first, number), source)

    # -- to another node -----------------------------------------------------------------------------------------------

    def send_chunk(self, source: Place, label: str, transfer: bytes, node: str) -> None:
        """Send a chunk: from where it lies, or from a packed copy of it on the host."""
        binding, region = self.binding(source), source.region
        if self.is_sendable(binding, region):
            self.admit_send(binding, region, self.tokens_read(source), transfer, node)
            return
        host = self.host_of(binding.copy.device)
        nbytes = region.size * self.given.inputs[0].dtype.itemsize
        staged = self.staged(source, f"{label}, packed on {host.name}", host, nbytes)
        self.admit_send(staged, None, [], transfer, node)
        self.drop(staged)

    def is_sendable(self, binding: Binding, region: Region) -> bool:
        """Does the chunk lie packed, in memory that links read?"""
        meta = binding.tensor.meta
        if not binding.copy.device.backend.linked or meta is None:
            return False
        packed = binding.strides is None or binding.strides == meta.strides
        return packed and (self.given.flat or region.is_packed_in(meta.shape))

    def admit_send(
        self, binding: Binding, region: Region | None, tokens: Sequence[Any], transfer: bytes, node: str
    ) -> None:
        """Admit the Send of a value, or of a region of it. Of a value that has failed it sends the error."""
        link, flat = self.links[node], self.given.flat
        half = Half(transfer, link.fail)
        meta = self.meta_of(binding, region)
        instruction = self.new_instruction(Opcode.SEND, str(LinkLabel.of(SEND, node, transfer)), binding.copy.device)
        instruction.inputs, instruction.reads = (binding,), (binding.copy, *tokens)
        instruction.bytes_moved, instruction.limit = meta.nbytes, self.limit

        def offer(array: Any, ended: Told) -> None:
            poison = instruction.poisoned_operand()
            if poison is None:
                link.offer(transfer, meta, array if region is None else part(array, region, flat), half.until(ended))
            else:
                half.withdraw(poison)
                ended(poison)

        self.transfers.admit(instruction, half, offer, self.transfers.sent, node)

    # -- from another node ---------------------------------------------------------------------------------------------

    def receive_chunk(self, step: Step, label: str, transfer: bytes, node: str) -> None:
        """Receive a chunk into its place, or into a value of its own that the step then copies or merges."""
        device, result, backend = self.devices[step.rank], self.results[step.rank], self.devices[step.rank].backend
        if step.base is None and self.is_sendable(result, step.target.region):
            self.admit_recv(result, step.target.region, transfer, node, (self.token(step.target),))
            return
        host, region = self.host_of(device), whole(step.source.region.shape)
        scratch = self.scratch(region, host)
        self.admit_recv(scratch, None, transfer, node, (scratch.copy,))
        if host is device:
            origin = Origin(scratch, region, [], StreamKind.P2P, backend.copy, 0, True)
        else:
            nbytes = self.meta_of(scratch, None).nbytes
            origin = Origin(scratch, region, [], StreamKind.H2D, backend.copy_in, nbytes, False)
        self.receive(step, label, origin)
        self.drop(scratch)

    def admit_recv(
        self, target: Binding, region: Region | None, transfer: bytes, node: str, writes: tuple[Copy, ...]
    ) -> None:
        """Admit the Expect and the Recv of a value, or of a region of a result."""
        link, flat, device, meta = self.links[node], self.given.flat, target.copy.device, self.meta_of(target, region)
        half, label = Half(transfer, link.refuse), LinkLabel.of(OFFER, node, transfer)
        token = self.residency.new_copy(device, 0, 1)
        first = self.new_instruction(Opcode.EXPECT, str(label), device)
        self.received += 1
        first.writes, first.remote, first.limit = (token,), True, self.limit * self.received
        self.transfers.admit(first, half, lambda ended: link.expect(transfer, meta, half.on_error(ended)))
        second = self.new_instruction(Opcode.RECV, str(label._replace(doing=RECV)), device)
        second.reads, second.writes, second.limit = (token,), writes, self.limit
        if region is None:
            second.outputs = (target,)
        else:
            second.inputs, second.reads = (target,), (token, target.copy)
        second.bytes_moved = meta.nbytes

        def receive(array: Any, ended: Told) -> None:
            link.receive(transfer, array if region is None else part(array, region, flat), half.until(ended))

        self.transfers.admit(second, half, receive, self.transfers.received, node)

    def meta_of(self, binding: Binding, region: Region | None) -> Meta:
        """The meta of a region, or of all, of a value."""
        shape = self.given.inputs[0].shape if binding.tensor.meta is None else binding.tensor.meta.shape
        return Meta.of(shape if region is None else region.shape, self.given.inputs[0].dtype)

    def host_of(self, device: DeviceState) -> DeviceState:
        """The device itself where links read its memory, else the host."""
        host = device if device.backend.linked else self.residency.host
        if host is None:
            raise MetadataError(f"chunks of {device.name} are exchanged on a cpu device, and this machine has none")
        return host


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
