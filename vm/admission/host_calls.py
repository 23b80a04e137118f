"""Admission of host calls: a function of the client's computes tensors from the values of others.

Theory of operation
    The call is an instruction of its own, which reads the operands in memory of the host, and writes a token, a copy
    without data. Its kernel sends the values to the client, and ends when the client has returned the results, or its
    error, or will not: then the error is the call's. Each result is an upload that reads the token, so it has memory
    only once its bytes are there.

Guarantees
    The call is on a stream whose tasks end in any order, and its edges are hard: it occupies no thread, and holds up
    nothing but what reads its results. It is `remote`: no other session waits for its memory. Whatever ends it without
    a result (a cancellation, the end of its session, a lost device) ends it at once, and tells the client. What the
    client returns is taken once, of its own calls, and only if it has the metas that were asked for; anything else
    that arrives for a call that is over is dropped.

Rejected
    Results as uploads in a batch: the call may be in a run that the batches of the session wait for. Tensors that are
    made at once and written later: they would hold memory for as long as the client likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from ...interpreter.errors import KernelError, ProtocolError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.host_calls import LABEL, metas_of, refusal_of
from ...interpreter.wire.host_memory import is_clients
from ...interpreter.wire.messages import Effect
from ...streams.stream import StreamKind
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.session import Called, Cause, HostCall, VmSession
from ..model.signature import NOTHING
from ..model.tensor import Binding, Copy, Tensor
from ..placement.residency import Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .accesses import INDICES, bytes_of
from .lookup import check_new, define, device_of, note_maker, refuse_cancelled, tensor_of
from .quotas import check_results
from .rejection import Rejection


class HostCalls:
    """Calls functions of clients, and takes what they return."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection

    def call(self, session: VmSession, message: Effect) -> None:
        """Admit a host call, or define its results with the error."""
        cause = Cause(session, message.location)
        try:
            refuse_cancelled(session)
            check_new(session, message.outputs)
            metas = metas_of(message)
            host = host_of(self.residency, "a host call")
            device = device_of(self.scheduler.devices, message.device)
            refuse_lost(device)
            refuse_lost(host)
            check_results(session, metas, 0)
            chain = chain_of(session, message.chain)
            tensors = [tensor_of(session, id_) for id_ in message.ids]
            if device.ceiling:
                self.residency.tiers.require_share(None, device, sum(meta.nbytes for meta in metas), cause)
            operands = self.residency.operands(tensors, host, cause)
        except TensordError as error:
            self.refuse(session, message, error)
            return
        token = self.residency.new_copy(host, 0, 1)
        results = [self.result(cause, meta, device, token) for meta in metas]
        asking = Asking(metas, [take for _, _, take in results], tensors)
        self.ask(cause, message, asking, operands, (token, *chain))
        for id_, (tensor, instruction, _) in zip(message.outputs, results, strict=True):
            define(session, id_, tensor)
            self.scheduler.admit(instruction)

    def ask(
        self, cause: Cause, message: Effect, asking: Asking, operands: Sequence[Binding], tokens: Sequence[Copy]
    ) -> None:
        """Admit the instruction that asks the client. `tokens`: its own, and that of a chain that it reads."""
        session, (token, *chain) = cause.session, tokens
        host = token.device
        asks = self.scheduler.new_instruction(session, Opcode.HOST_CALL, LABEL, host, cause.location)
        asks.inputs = tuple(operands)
        await_metas(asks)
        asks.reads, asks.writes = (*dict.fromkeys(binding.copy for binding in operands), *chain), (token,)
        asks.stream, asks.remote = host.calls, True
        session.answering += asking.nbytes

        def begin(*given: Any) -> None:
            *arrays, ended = given
            host.refuse_vast(sum(array.nbytes for array in arrays), "the values of a host call")
            values = [array.copy() for array in arrays]
            asking.sent(session)
            session.calls[asks.id] = HostCall(asking.metas, asking.takes, ended)
            session.reply(message.request, Called(asks.id, values, message.callback), None)

        def over(done: Instruction) -> None:
            asking.sent(session)
            session.reply(message.request, Called(asks.id, None, None), None)
            call = session.calls.pop(asks.id, None)
            if call is not None:
                call.ended(done.error)

        asks.kernel = begin
        asks.on_retire = asks.on_doom = over
        self.scheduler.admit(asks)

    def result(
        self, cause: Cause, meta: Meta, device: DeviceState, token: Copy
    ) -> tuple[Tensor, Instruction, Callable[[NDArray[Any]], None]]:
        """A tensor, the instruction that makes it, and what gives that its bytes."""
        tensor, copy = self.residency.new_tensor(meta, device)
        note_maker(tensor.storage, (LABEL, NOTHING), cause.location, self.scheduler.now)
        host = device.backend.host
        opcode = Opcode.ACCESS if host else Opcode.UPLOAD
        made = self.scheduler.new_instruction(cause.session, opcode, LABEL, device, cause.location)
        made.outputs, made.reads, made.writes = (Binding(copy, tensor, 0, None),), (token,), (copy,)
        made.bytes_moved = meta.nbytes

        def take(array: NDArray[Any]) -> None:
            if not host:
                made.kernel = lambda target: device.backend.copy_in(target, array)
                return
            shared = is_clients(array)
            made.payload = array.copy() if shared and array.dtype.kind in INDICES else array
            copy.exposed = int(made.payload is array and shared)

        def count(done: Instruction) -> None:
            if done.error is None and not host:
                device.count_move("h2d", meta.nbytes)

        made.on_retire = count
        if host:
            made.on_control = True
        else:
            made.stream = device.backend.copy_stream(StreamKind.H2D)
        return tensor, made, take

    def returned(
        self, session: VmSession, number: int, error: TensordError | None, arrays: Sequence[NDArray[Any]]
    ) -> None:
        """Take what the client returns of a call, or its error. Nothing happens if that call is over, or was none."""
        call = session.calls.pop(number, None)
        if call is None:
            return
        why = "" if error is not None else refusal_of(call.metas, arrays)
        if why:
            error = KernelError(f"{LABEL}: {why}")
        if error is None:
            for take, array in zip(call.takes, arrays, strict=True):
                take(array)
        call.ended(error)

    def refuse(self, session: VmSession, message: Effect, error: TensordError) -> None:
        """Define the results of a refused call with the error; the client may forget it."""
        devices = self.scheduler.devices
        home = devices.get(own_name(message.device, devices))
        try:
            metas: Sequence[Meta] = metas_of(message)
        except TensordError:
            metas = ()
        self.rejection.reject(session, error, message.outputs, message.location, LABEL, metas, home)
        session.reply(message.request, Called(0, None, None), None)


class Asking:
    """A call that is to be sent to the client: what it is to return, and the bytes that it is sent."""

    __slots__ = ("metas", "nbytes", "takes")

    def __init__(
        self, metas: Sequence[Meta], takes: Sequence[Callable[[NDArray[Any]], None]], tensors: Sequence[Tensor]
    ) -> None:
        self.metas = metas
        self.takes = takes
        self.nbytes = sum(map(bytes_of, tensors))

    def sent(self, session: VmSession) -> None:
        """The values were handed over, or will not be."""
        session.answering -= self.nbytes
        self.nbytes = 0


def chain_of(session: VmSession, number: int) -> tuple[Copy, ...]:
    """The link of the chain that a call in a block reads, so that the end of the block comes behind it; or none."""
    link = session.chains.get(number)
    if number and link is None:
        raise ProtocolError(f"chain {number} was never made, or was released")
    return () if link is None else (link,)


def host_of(residency: Residency, what: str) -> DeviceState:
    """The device whose values the client is sent."""
    if residency.host is None:
        raise ProtocolError(f"{what} needs a cpu device, and this machine has none")
    return residency.host
