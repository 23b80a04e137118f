"""Admission of transfers between nodes: SEND and RECV messages.

A transfer has two halves, one on each node, which a link joins (`streams.links.link`).

- SEND becomes one instruction. It reads the value in host memory: at home on a cpu or sim device, else on the host
  device, where an ordinary transfer brings the value. It is done when the other node has the bytes. For a failed value
  it sends the error.
- RECV becomes two instructions. EXPECT is done when the other node offers the value, and writes a token, a copy without
  data. RECV reads the token, so that it gets memory only then, and makes the tensor: at home, or on the host if home is
  a GPU, from which an ordinary move brings the value home.
- If the memory exists already, as for a chunk in the result of a collective, RECV becomes one instruction, which takes
  the value as soon as it is offered, and merges it piece by piece if necessary (a *landing*).

All these instructions are on the link stream of their device, whose tasks end in any order, and all their edges are
hard. So they block no stream and no other session, and each half ends when the other half does. A half that is
withdrawn (by a cancellation, the end of its session, a lost device, or want of memory) tells the other node, once,
through `Half`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from ...interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import DTYPES, Meta
from ...interpreter.wire.fields import Role, is_name, is_natural, is_transfer
from ...interpreter.wire.forms import name_fields
from ...interpreter.wire.node_messages import Recv, Send
from ...interpreter.wire.roles import messages_of, number_of
from ...streams.links.link import Links, NodeLink, OnEnd
from ..model.device_state import DeviceState, add_to
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Cause, VmSession
from ..model.signature import NOTHING
from ..model.tensor import Binding, Copy, VmTensor
from ..placement.residency import Residency
from ..placement.views import moved
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.scheduler import Scheduler
from ..tracing.link_labels import OFFER, RECV, SEND, LinkLabel
from .lookup import check_new, define, device_of, note_maker, refuse_cancelled, tensor_of
from .packing import drop_packed, packed
from .quotas import check_offers, check_results
from .rejection import Rejection, located

Withdraw: TypeAlias = Callable[[bytes, TensordError], None]  # `fail` or `refuse` of a link

NO_NODE: Final = "this machine has no node name, so it cannot exchange values with other nodes: start it with one"


def whole_of(array: Any) -> Any:
    """The whole array: the default of `TransferPiece.take`."""
    return array


class Half:
    """This node's half of a transfer. `ended`: the link has reported the end, or was told of it."""

    def __init__(self, transfer: bytes, withdraw: Withdraw) -> None:
        self.transfer = transfer
        self.ended = False
        self._withdraw = withdraw

    def until(self, ended: OnEnd) -> OnEnd:
        """The callback `ended`, preceded by the end of this half."""

        def told(error: TensordError | None) -> None:
            self.ended = True
            ended(error)

        return told

    def on_error(self, ended: OnEnd) -> OnEnd:
        """The callback `ended`, preceded by the end of this half if there is an error."""

        def told(error: TensordError | None) -> None:
            self.ended = error is not None
            ended(error)

        return told

    def withdraw(self, error: TensordError) -> None:
        """Tell the other node the error, unless the half has ended."""
        if not self.ended:
            self.ended = True
            self._withdraw(self.transfer, error)


class HalfEnd(InstructionEnd):
    """Ends a half of a transfer. `counted`: the statistics for the bytes that it has moved, to or from a `node`."""

    __slots__ = ("counted", "half", "node")
    at_doom: ClassVar[bool] = True

    def __init__(self, half: Half, counted: dict[str, list[int]] | None, node: str) -> None:
        self.half = half
        self.counted = counted
        self.node = node

    def retired(self, done: Instruction) -> None:
        if self.counted is None:
            return
        done.session.offered.discard(done.id)
        if done.error is None:
            add_to(self.counted.setdefault(self.node, [0, 0]), done.bytes_moved)
            add_to(done.author.counts.moved, done.bytes_moved)

    def doomed(self, doomed: Instruction) -> None:
        doomed.session.offered.discard(doomed.id)
        if doomed.error is not None and not self.half.ended:
            self.half.withdraw(doomed.describe(doomed.error))


class TransferPiece(NamedTuple):
    """A value, or a part of a value, that is sent or received.

    `take`: from the value's array to the part's; `tokens`: the tokens of the part (`collectives`).
    """

    binding: Binding
    meta: Meta
    take: Callable[[Any], Any] = whole_of
    tokens: Sequence[Copy] = ()


class Landing(NamedTuple):
    """A chunk that is received into a collective's result.

    `bindings`: the result, and the base of a merge, if any; `meta`: of the chunk; `into`: from the arrays of the
    bindings to the chunk's target, an array or a `Merge`; `reads`, `writes`: tokens.
    """

    bindings: tuple[Binding, ...]
    meta: Meta
    into: Callable[..., Any]
    reads: Sequence[Copy]
    writes: tuple[Copy, ...]


class NodeTransferHandlers:
    """The handlers of SEND and RECV messages. `links`: None on a machine without a node name."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection
        self.links: Links | None = None
        self.sent: dict[str, list[int]] = {}  # node -> [count, bytes]
        self.received: dict[str, list[int]] = {}

    def own_node(self) -> str:
        """The name of this node; MetadataError on a machine without one."""
        if self.links is None:
            raise MetadataError(NO_NODE)
        return self.links.node

    def link_to(self, node: str, incarnation: int = 0) -> NodeLink:
        """The link to a node's daemon with this incarnation; 0 means any."""
        if self.links is None:
            raise MetadataError(NO_NODE)
        return self.links.to(node, incarnation)

    def refused(self, session: VmSession, array: Any, error: TensordError) -> None:
        """Tell other nodes the error of the halves in a message, or in a group, that was refused as damaged."""
        for raw in messages_of(array):
            send: Any = name_fields(raw, Send)  # Any: its fields are not checked
            message: Any = send or name_fields(raw, Recv)
            if message is None or not is_transfer(message.transfer) or not is_name(message.node):
                continue
            with suppress(TensordError):
                link = self.link_to(message.node, message.incarnation if is_natural(message.incarnation) else 0)
                half = Half(message.transfer, link.refuse if send is None else link.fail)
                half.withdraw(
                    located(session, error, number_of(raw, Role.LOCATION), "recv" if send is None else "send")
                )

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, session: VmSession, message: Send) -> None:
        """Admit a SEND; if it is refused, the other node gets the error."""
        id_, node, transfer, location, incarnation = message
        half: Half | None = None
        cause = Cause(session, location)
        try:
            link = self.link_to(node, incarnation)
            half = Half(transfer, link.fail)
            refuse_cancelled(session)
            tensor = tensor_of(session, id_)
            if session.moves:
                self.residency.begin_moves(session)
            source = packed(self.residency, self.readable(tensor, cause), cause)
        except TensordError as error:
            if half is not None:
                half.withdraw(located(session, error, location, "send"))
            self.rejection.deny(session, error, 0, location, "send")
            return
        self.admit_send(cause, link, half, TransferPiece(source, known(source.tensor)), node)
        drop_packed(source)

    def admit_send(
        self, cause: Cause, link: NodeLink, half: Half, piece: TransferPiece, node: str, limit: int = 0
    ) -> None:
        """Admit the instruction that sends a piece. `limit`: nanoseconds; 0 for none."""
        source, meta, take, _ = piece
        label = str(LinkLabel.of(SEND, node, half.transfer))
        instruction = self.new_instruction(cause, Opcode.SEND, label, source.copy.device)
        instruction.inputs, instruction.reads = (source,), (source.copy, *piece.tokens)
        instruction.bytes_moved, instruction.limit = meta.nbytes, limit

        def offer(array: Any, ended: OnEnd) -> None:
            error = instruction.poisoned_operand() or refused_offer(cause.session)
            if error is None:
                cause.session.offered.add(instruction.id)
                link.offer(half.transfer, meta, take(array), half.until(ended))
            else:
                half.withdraw(instruction.describe(error))
                ended(error)

        self.admit(instruction, half, offer, self.sent, node)

    def readable(self, tensor: VmTensor, cause: Cause) -> Binding:
        """The copy to send from, in host memory: preferably a finished copy, then the copy at home."""
        known(tensor)
        here = [copy for copy in tensor.storage.copies.values() if copy.device.backend.linked]
        if here:
            best = min(here, key=lambda copy: (copy.writer is not None, copy.device is not tensor.home))
            return self.residency.operand(tensor, best.device, cause)
        if self.residency.host is None:
            raise MetadataError(f"a value of {tensor.home.name} is sent from a cpu device, and this machine has none")
        return self.residency.bring(tensor, self.residency.host, cause)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def recv(self, session: VmSession, message: Recv) -> None:
        """Admit a RECV; if it is refused, define the tensor, poisoned, and tell the other node."""
        half: Half | None = None
        cause = Cause(session, message.location)
        try:
            link = self.link_to(message.node, message.incarnation)
            half = Half(message.transfer, link.refuse)
            refuse_cancelled(session)
            check_new(session, (message.output,))
            meta, home = received_meta(message), device_of(self.scheduler.devices, message.device)
            device = self.receiving_device(cause, meta, home)
        except TensordError as error:
            if half is not None:
                half.withdraw(located(session, error, message.location, "recv"))
            self.refuse(session, message, error)
            return
        label = LinkLabel.of(RECV, message.node, message.transfer)
        target = self.make_tensor(cause, message.output, meta, home, device, label)
        self.admit_recv(cause, link, half, TransferPiece(target, meta), message.node)

    def receiving_device(self, cause: Cause, meta: Meta, home: DeviceState) -> DeviceState:
        """The device that receives the value, after the checks of devices, quotas and shares."""
        device = home if home.backend.linked else self.residency.host
        if device is None:
            raise MetadataError(f"a value for {home.name} is received on a cpu device, and this machine has none")
        refuse_lost(home)
        refuse_lost(device)
        check_results(cause.session, (meta,), 0)
        if device.ceiling:
            self.residency.tiers.require_share(None, device, meta.nbytes, cause)
        return device

    def make_tensor(
        self, cause: Cause, id_: int, meta: Meta, home: DeviceState, device: DeviceState, label: LinkLabel
    ) -> Binding:
        """Define the tensor, whose first copy is on `device`."""
        tensor, copy = self.residency.new_tensor(meta, device)
        made = tensor
        if home is not device:
            made = moved(tensor, home, cause.session, cause.location)
            cause.session.moves[made] = None
            self.residency.releasing.unshare(tensor)
        define(cause.session, id_, made)
        note_maker(tensor.storage, (str(label), NOTHING), cause.location, self.scheduler.now)
        self.scheduler.bound.append(copy)
        return Binding(copy, tensor, 0, None)

    def admit_recv(
        self,
        cause: Cause,
        link: NodeLink,
        half: Half,
        piece: TransferPiece,
        node: str,
        limits: tuple[int, int] = (0, 0),
    ) -> None:
        """Admit the EXPECT and the RECV of a piece. `limits`: nanoseconds for each; 0 for none."""
        target, meta = piece.binding, piece.meta
        device, label = target.copy.device, LinkLabel.of(RECV, node, half.transfer)
        offered = self.residency.new_copy(device, 0, 1)
        first = self.new_instruction(cause, Opcode.EXPECT, str(label._replace(doing=OFFER)), device)
        first.writes, first.remote, first.limit = (offered,), True, limits[0]
        self.admit(first, half, lambda ended: link.expect(half.transfer, meta, half.on_error(ended)))
        second = self.new_instruction(cause, Opcode.RECV, str(label), device)
        second.reads, second.outputs, second.writes = (offered,), (target,), (target.copy,)
        second.bytes_moved, second.limit = meta.nbytes, limits[1]

        def receive(array: Any, ended: OnEnd) -> None:
            link.receive(half.transfer, array, half.until(ended))

        self.admit(second, half, receive, self.received, node)

    def admit_landing(self, cause: Cause, link: NodeLink, half: Half, landing: Landing, node: str, limit: int) -> None:
        """Admit the single instruction of a RECV into existing memory. `limit`: nanoseconds; 0 for none."""
        bindings, meta, into, tokens, writes = landing
        device, label = bindings[0].copy.device, str(LinkLabel.of(RECV, node, half.transfer))
        instruction = self.new_instruction(cause, Opcode.RECV, label, device)
        copies = dict.fromkeys([binding.copy for binding in bindings])
        instruction.inputs, instruction.reads, instruction.writes = bindings, (*copies, *tokens), writes
        instruction.bytes_moved, instruction.limit, instruction.remote = meta.nbytes, limit, True

        def take(*arguments: Any) -> None:
            *arrays, ended = arguments
            link.take(half.transfer, meta, into(*arrays), half.until(ended))

        self.admit(instruction, half, take, self.received, node)

    def refuse(self, session: VmSession, message: Recv, error: TensordError) -> None:
        """Define the tensor of a refused RECV, poisoned."""
        devices, metas = self.scheduler.devices, (meta_of(message),)
        home = devices.get(own_name(message.device, devices))
        self.rejection.reject(session, error, (message.output,), message.location, "recv", metas, home)

    # -- both ----------------------------------------------------------------------------------------------------------

    def new_instruction(self, cause: Cause, opcode: Opcode, label: str, device: DeviceState) -> Instruction:
        return self.scheduler.new_instruction(cause.session, opcode, label, device, cause.location)

    def admit(
        self,
        instruction: Instruction,
        half: Half,
        kernel: Callable[..., None],
        counted: dict[str, list[int]] | None = None,
        node: str = "",
    ) -> None:
        """Admit an instruction of a half. `counted`: the statistics that count the moved bytes for `node`."""
        instruction.stream = instruction.device.link
        instruction.kernel = kernel
        instruction.on_end = HalfEnd(half, counted, node)
        self.residency.tiers.admit(instruction)


def refused_offer(session: VmSession) -> TensordError | None:
    """The QuotaError of a session that has offered as many values as it may; None for any other session."""
    try:
        check_offers(session)
    except QuotaError as error:
        return error
    return None


def known(tensor: VmTensor) -> Meta:
    """The meta of a tensor to be sent. Raises the tensor's error if it will have no meta, ProtocolError if pending."""
    if tensor.meta_error is not None:
        raise tensor.meta_error.reraisable()
    if tensor.meta is None:
        raise ProtocolError("a tensor whose meta is not known yet cannot be sent: wait for the tensor first")
    return tensor.meta


def received_meta(message: Recv) -> Meta:
    """The meta in a RECV message; MetadataError if it is invalid."""
    if message.dtype not in DTYPES:
        raise MetadataError(f"{message.dtype!r} is not the name of a dtype")
    try:
        return Meta.of(tuple(message.shape), DTYPES[message.dtype])
    except ValueError as error:
        raise MetadataError(str(error)) from None


def meta_of(message: Recv) -> Meta | None:
    """The meta in a RECV message; None if it is invalid."""
    try:
        return received_meta(message)
    except TensordError:
        return None
