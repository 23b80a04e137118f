"""Admission of host calls: a function of the client's computes tensors from the values of others.

Theory of operation
    An Access copies the operands on the host. The call is an instruction of its own behind it: its kernel sends the
    copies to the client, and ends when the client has returned the results, or its error, or will not: then the error
    is the call's. Each result is an upload. Tokens, copies without data, stand between them: the call reads that of the
    Access, and the uploads that of the call. So a result has memory only once its bytes are there, and later writes to
    the operands do not wait for the client.

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
        made = zip(message.outputs, metas, strict=True)
        targets = [self.target(cause, id_, meta, device) for id_, meta in made]
        asking = Asking(metas, tensors)
        self.ask(cause, message, asking, operands, (token, *chain))
        for target, meta in zip(targets, metas, strict=True):
            self.result(cause, asking, meta, target, token)

    def ask(
        self, cause: Cause, message: Effect, asking: Asking, operands: Sequence[Binding], tokens: Sequence[Copy]
    ) -> None:
        """Admit the instructions that read the operands, and ask the client. `tokens`: of the call, and of a chain that
        it reads."""
        session, (token, *chain) = cause.session, tokens
        read = self.read(cause, asking, operands, token.device)
        call = self.scheduler.new_instruction(session, Opcode.HOST_CALL, LABEL, token.device, cause.location)
        call.reads, call.writes = (read, *chain), (token,)
        call.stream, call.remote = token.device.calls, True

        def begin(ended: Callable[[TensordError | None], None]) -> None:
            session.calls[call.id] = HostCall(asking.metas, asking.takes, ended)
            session.reply(message.request, Called(call.id, asking.sent(session), message.callback), None)

        def over(done: Instruction) -> None:
            asking.sent(session)
            session.reply(message.request, Called(call.id, None, None), None)
            waiting = session.calls.pop(call.id, None)
            if waiting is not None:
                waiting.ended(done.error)

        call.kernel = begin
        call.on_retire = call.on_doom = over
        self.residency.tiers.admit(call)

    def read(self, cause: Cause, asking: Asking, operands: Sequence[Binding], host: DeviceState) -> Copy:
        """Admit the instruction that copies the operands; its token."""
        session, token = cause.session, self.residency.new_copy(host, 0, 1)
        reads = self.scheduler.new_instruction(session, Opcode.ACCESS, LABEL, host, cause.location)
        reads.inputs = tuple(operands)
        await_metas(reads)
        reads.reads, reads.writes = tuple(dict.fromkeys(binding.copy for binding in operands)), (token,)
        reads.on_control = not operands
        session.answering += asking.nbytes

        def copied(*arrays: Any) -> list[Any]:
            host.refuse_vast(sum(array.nbytes for array in arrays), "the values of a host call")
            return [array.copy() for array in arrays]

        def keep(done: Instruction) -> None:
            asking.values, done.results = done.results, None

        reads.kernel = copied
        reads.on_retire = keep
        self.residency.tiers.admit(reads)
        return token

    def target(self, cause: Cause, id_: int, meta: Meta, device: DeviceState) -> Binding:
        """Define a result."""
        tensor, copy = self.residency.new_tensor(meta, device)
        define(cause.session, id_, tensor)
        self.scheduler.bound.append(copy)
        note_maker(tensor.storage, (LABEL, NOTHING), cause.location, self.scheduler.now)
        return Binding(copy, tensor, 0, None)

    def result(self, cause: Cause, asking: Asking, meta: Meta, target: Binding, token: Copy) -> None:
        """Admit the instruction that makes a result, of bytes that it is given once they are there."""
        copy, device = target.copy, target.copy.device
        host = device.backend.host
        opcode = Opcode.ACCESS if host else Opcode.UPLOAD
        made = self.scheduler.new_instruction(cause.session, opcode, LABEL, device, cause.location)
        made.outputs, made.reads, made.writes = (target,), (token,), (copy,)
        made.bytes_moved = meta.nbytes

        def take(array: NDArray[Any]) -> None:
            if not host:
                made.kernel = lambda memory: device.backend.copy_in(memory, array)
                return
            shared = is_clients(array)
            made.payload = array.copy() if shared and array.dtype.kind in INDICES else array
            copy.client_mappings = int(made.payload is array and shared)

        def count(done: Instruction) -> None:
            if done.error is None and not host:
                device.count_move("h2d", meta.nbytes)

        asking.takes.append(take)
        made.on_retire = count
        if host:
            made.on_control = True
        else:
            made.stream = device.backend.copy_stream(StreamKind.H2D)
        self.residency.tiers.admit(made)

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
    """What a call is about: what it is to return, what takes that, and the values of the operands, with their bytes."""

    __slots__ = ("metas", "nbytes", "takes", "values")

    def __init__(self, metas: Sequence[Meta], tensors: Sequence[Tensor]) -> None:
        self.metas = metas
        self.takes: list[Callable[[NDArray[Any]], None]] = []
        self.nbytes = sum(map(bytes_of, tensors))
        self.values: Any = None

    def sent(self, session: VmSession) -> Any:
        """Hand the values over, or give them up; they count no more."""
        session.answering -= self.nbytes
        values, self.values, self.nbytes = self.values, None, 0
        return values


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
