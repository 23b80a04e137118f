"""Admission of side effects: calls of the client's functions with values of tensors, in the order of a chain.

A side effect takes its chain as `mut`, which orders it after the earlier effects of the chain. In an embedded machine
the function runs on the driving thread, and may neither send nor wait. A client of a daemon gets the values, and
calls the function itself. A message with outputs is a host call (`host_calls`), which needs no chain and runs on the
client's threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CancelledError, ProtocolError, QuotaError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.wire.messages import Chain, Effect
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Cause, VmSession
from ..model.tensor import Copy, VmTensor
from ..scheduler.pending_metas import await_metas
from .accesses import Accesses, bytes_of, count_read
from .exports import ReplyEnd
from .host_calls import HostCalls, host_of
from .lookup import refuse_cancelled, tensor_of
from .quotas import check_chains, may_refuse_chain
from .rejection import Rejection, located, stored_error


class EffectHandlers:
    """The handlers of CHAIN and EFFECT messages."""

    def __init__(self, accesses: Accesses, rejection: Rejection) -> None:
        self.accesses = accesses
        self.scheduler = accesses.scheduler
        self.residency = accesses.residency
        self.rejection = rejection
        self.host_calls = HostCalls(accesses.scheduler, accesses.residency, rejection)

    def chain(self, session: VmSession, message: Chain) -> None:
        """Make a chain: a copy without data, which side effects take as `mut`.

        If the quota forbids the chain, its side effects get the error.
        """
        try:
            check_chains(session)
        except QuotaError as error:
            if may_refuse_chain(session):
                session.refused_chains[message.chain] = stored_error(error, "chain")
            raise
        host = self.residency.host or next(iter(self.scheduler.devices.values()))
        copy = self.residency.new_copy(host, 0, 1)
        session.chains[message.chain] = copy

    def effect(self, session: VmSession, message: Effect) -> None:
        """Admit a side effect: the user's function is called with host arrays, in the order of its chain.

        Without a function the arrays are the answer, and the client calls the function itself.
        """
        ids, chain, callback, request, location, tolerant, again, outputs, metas, _ = message
        if outputs or metas:
            self.host_calls.call(session, message)
            return
        link = session.chains.get(chain)
        try:
            refuse_cancelled(session)
            if link is None and chain in session.refused_chains:
                raise session.refused_chains[chain].reraisable()
            if link is None:
                raise ProtocolError(f"chain {chain} was never made, or was released")
            host = host_of(self.residency, "a side effect")
            tensors = [tensor_of(session, id_) for id_ in ids]
            if tolerant:
                self.tolerant_effect(session, tensors, host, link, message)
                return
            bound = self.residency.operands(tensors, host, Cause(session, location))
        except TensordError as error:
            self.refuse_effect(session, error, chain, request, location)
            return
        instruction = self.scheduler.new_instruction(session, Opcode.HOST_CALL, "effect", host, location)
        instruction.inputs = tuple(bound)
        await_metas(instruction)
        instruction.reads = (*dict.fromkeys(b.copy for b in bound), link)
        instruction.writes = (link,)

        def call(*arrays: Any) -> Any:
            host.refuse_vast(sum(array.nbytes for array in arrays), "a side effect's values")
            return call_back(callback, arrays)

        instruction.kernel = call
        instruction.on_control = callback is not None
        instruction.on_end = ReplyEnd(session, request, sum(map(bytes_of, tensors)), again=again)
        self.scheduler.admit(instruction)

    def refuse_effect(self, session: VmSession, error: TensordError, chain: int, request: int, location: int) -> None:
        """Refuse a side effect; unless the session was cancelled, the error stops the chain."""
        error = located(session, error, location, "effect")
        self.rejection.deny(session, error, request, location, "effect")
        link = session.chains.get(chain)
        if link is not None and not isinstance(error, CancelledError):
            self.rejection.poison_copy(session, link, error)

    def tolerant_effect(
        self, session: VmSession, tensors: Sequence[VmTensor], host: DeviceState, link: Copy, message: Effect
    ) -> None:
        """Admit a side effect whose function gets the error in place of a value that failed.

        One instruction for each value reads it and writes a signal, a copy without data. The side effect also writes
        the signals. So it waits for the reads by WAW edges, and their errors do not doom it: errors follow RAW edges.
        """
        _, _, callback, request, location, _, again, *_ = message
        values: list[Any] = [None] * len(tensors)
        cause = Cause(session, location)
        signals = tuple(self.look(cause, tensor, host, values, n) for n, tensor in enumerate(tensors))
        instruction = self.scheduler.new_instruction(session, Opcode.HOST_CALL, "effect", host, location)
        instruction.reads, instruction.writes = (link,), (link, *signals)
        instruction.on_control = True
        if callback is not None:
            instruction.kernel = lambda: call_back(callback, values)
        nbytes = sum(map(bytes_of, tensors))
        instruction.on_end = TolerantEnd(session, request, None if callback else values, nbytes, again=again)
        self.scheduler.admit(instruction)

    def look(self, cause: Cause, tensor: VmTensor, host: DeviceState, values: list[Any], n: int) -> Copy:
        """Read a value, or its error, into `values[n]`, and return the signal that is written afterwards."""
        instruction = self.accesses.reading(
            cause.session, tensor, self.accesses.readable(tensor), "fetch", cause.location, at_once=False
        )
        signal = self.residency.new_copy(host, 0, 1)
        instruction.writes = (signal,)
        instruction.on_end = SignalEnd(values, n)
        self.scheduler.admit(instruction)
        return signal


class TolerantEnd(ReplyEnd):
    """Answers with the values, and the errors of failed ones. A kernel that returned an error would have failed."""

    __slots__ = ("values",)

    def __init__(self, session: VmSession, request: int, values: list[Any] | None, nbytes: int, *, again: bool) -> None:
        super().__init__(session, request, nbytes, again=again)
        self.values = values

    def retired(self, done: Instruction) -> None:
        done.results = self.values
        super().retired(done)


class SignalEnd(InstructionEnd):
    """Stores a value, or its error, at an index of `values`, for a side effect."""

    __slots__ = ("index", "values")
    at_doom: ClassVar[bool] = True

    def __init__(self, values: list[Any], index: int) -> None:
        self.values = values
        self.index = index

    def retired(self, done: Instruction) -> None:
        count_read(done)
        results, done.results = done.results, None
        self.values[self.index] = results if done.error is None else done.error
        if done.error is not None:
            done.error.is_reported = True


def call_back(callback: Callable[..., Any] | None, arrays: Sequence[Any]) -> list[Any] | None:
    """Call the user's function with copies of the arrays, which it may keep. Without a function, return the copies."""
    own = [one if isinstance(one, TensordError) else one.copy() for one in arrays]
    if callback is None:
        return own
    with SHIELD.calling:
        callback(*own)
    return None
