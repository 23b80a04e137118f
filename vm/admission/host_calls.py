"""Admission of host calls: a function of the client computes tensors from the values of other tensors.

Theory of operation
    An ACCESS copies the operands on the host. The HOST_CALL after it sends the copies to the client, and ends when the
    client has returned the results or an error, or when the client is gone. Each result is an upload. Tokens, copies
    without data, connect these instructions: the HOST_CALL reads the token of the ACCESS, and the uploads read the
    token of the HOST_CALL. So a result gets memory only when its bytes have arrived, and later writes to the operands
    do not wait for the client.

Guarantees
    The HOST_CALL is on a stream whose tasks end in any order, and its edges are hard: it occupies no thread, and delays
    only the readers of its results. It is `remote`: no other session waits for its memory. A cancellation, the end of
    the session or a lost device ends the call at once, and the client is told. The client's results are accepted once,
    only for a call of its own session, and only with the metas that the message declares; results for a call that has
    ended are dropped.

Rejected
    Results as uploads in the session's batches: the call may be in a run for which these batches wait. Tensors that
    are made at admission and written later: they would occupy memory for as long as the client takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

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
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Cause, HostCall, HostCallAnswer, VmSession
from ..model.signature import NOTHING
from ..model.tensor import Binding, Copy, VmTensor
from ..placement.residency import Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .accesses import INDEX_KINDS, UploadEnd, bytes_of
from .lookup import check_new, define, device_of, note_maker, refuse_cancelled, tensor_of
from .quotas import check_results
from .rejection import Rejection


class HostCalls:
    """The handler of host calls: asks clients to call functions, and accepts the results."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection

    def call(self, session: VmSession, message: Effect) -> None:
        """Admit a host call; if it is refused, define the results, poisoned."""
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
        asking = RunningHostCall(metas, tensors)
        self.ask(cause, message, asking, operands, (token, *chain))
        for target, meta in zip(targets, metas, strict=True):
            self.result(cause, asking, meta, target, token)

    def ask(
        self,
        cause: Cause,
        message: Effect,
        asking: RunningHostCall,
        operands: Sequence[Binding],
        tokens: Sequence[Copy],
    ) -> None:
        """Admit the instruction that copies the operands, and the one that asks the client.

        `tokens`: the token of the call, and the chain that the call reads, if any.
        """
        session, (token, *chain) = cause.session, tokens
        read = self.read(cause, asking, operands, token.device)
        call = self.scheduler.new_instruction(session, Opcode.HOST_CALL, LABEL, token.device, cause.location)
        call.reads, call.writes = (read, *chain), (token,)
        call.stream, call.remote = token.device.calls, True

        def begin(ended: Callable[[TensordError | None], None]) -> None:
            session.calls[call.id] = HostCall(asking.metas, asking.takes, ended)
            session.ask_client(message.request, HostCallAnswer(call.id, asking.sent(session), message.callback), None)

        call.kernel = begin
        call.on_end = HostCallEnd(session, message.request, asking)
        self.residency.tiers.admit(call)

    def read(self, cause: Cause, asking: RunningHostCall, operands: Sequence[Binding], host: DeviceState) -> Copy:
        """Admit the instruction that copies the operands, and return its token."""
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

        reads.kernel = copied
        reads.on_end = OperandsEnd(asking)
        self.residency.tiers.admit(reads)
        return token

    def target(self, cause: Cause, id_: int, meta: Meta, device: DeviceState) -> Binding:
        """Define a result."""
        tensor, copy = self.residency.new_tensor(meta, device)
        define(cause.session, id_, tensor)
        self.scheduler.bound.append(copy)
        note_maker(tensor.storage, (LABEL, NOTHING), cause.location, self.scheduler.now)
        return Binding(copy, tensor, 0, None)

    def result(self, cause: Cause, asking: RunningHostCall, meta: Meta, target: Binding, token: Copy) -> None:
        """Admit the upload of a result, whose bytes the client returns later."""
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
            made.payload = array.copy() if shared and array.dtype.kind in INDEX_KINDS else array
            copy.client_mappings = int(made.payload is array and shared)

        asking.takes.append(take)
        made.on_end = UploadEnd(cause.session, 0)
        if host:
            made.on_control = True
        else:
            made.stream = device.backend.copy_stream(StreamKind.H2D)
        self.residency.tiers.admit(made)

    def returned(
        self, session: VmSession, number: int, error: TensordError | None, arrays: Sequence[NDArray[Any]]
    ) -> None:
        """Accept the results, or the error, of a client's call; ignore an unknown call, or one that has ended."""
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
        """Define the results of a refused call, poisoned, and tell the client that the call will not come."""
        devices = self.scheduler.devices
        home = devices.get(own_name(message.device, devices))
        try:
            metas: Sequence[Meta] = metas_of(message)
        except TensordError:
            metas = ()
        self.rejection.reject(session, error, message.outputs, message.location, LABEL, metas, home)
        session.ask_client(message.request, HostCallAnswer(0, None, None), None)


class RunningHostCall:
    """One call: the metas of its results, the functions that take the results, the operands' values and their bytes."""

    __slots__ = ("metas", "nbytes", "takes", "values")

    def __init__(self, metas: Sequence[Meta], tensors: Sequence[VmTensor]) -> None:
        self.metas = metas
        self.takes: list[Callable[[NDArray[Any]], None]] = []
        self.nbytes = sum(map(bytes_of, tensors))
        self.values: Any = None

    def sent(self, session: VmSession) -> Any:
        """Return the operands' values once, and stop counting their bytes."""
        session.answering -= self.nbytes
        values, self.values, self.nbytes = self.values, None, 0
        return values


class OperandsEnd(InstructionEnd):
    """Stores the copied operands of a host call."""

    __slots__ = ("asking",)

    def __init__(self, asking: RunningHostCall) -> None:
        self.asking = asking

    def retired(self, done: Instruction) -> None:
        self.asking.values, done.results = done.results, None


class HostCallEnd(InstructionEnd):
    """Ends a host call, and notifies the client, which may be running the call or may not have received it yet."""

    __slots__ = ("asking", "request", "session")
    at_doom: ClassVar[bool] = True

    def __init__(self, session: VmSession, request: int, asking: RunningHostCall) -> None:
        self.session = session
        self.request = request
        self.asking = asking

    def retired(self, done: Instruction) -> None:
        session = self.session
        self.asking.sent(session)
        session.ask_client(self.request, HostCallAnswer(done.id, None, None), None)
        waiting = session.calls.pop(done.id, None)
        if waiting is not None:
            waiting.ended(done.error)


def chain_of(session: VmSession, number: int) -> tuple[Copy, ...]:
    """The chain that the call reads, so that the end of its block comes after the call; empty without a chain."""
    link = session.chains.get(number)
    if number and link is None:
        raise ProtocolError(f"chain {number} was never made, or was released")
    return () if link is None else (link,)


def host_of(residency: Residency, what: str) -> DeviceState:
    """The host device, on which the client's values are read; ProtocolError if there is none."""
    if residency.host is None:
        raise ProtocolError(f"{what} needs a cpu device, and this machine has none")
    return residency.host
