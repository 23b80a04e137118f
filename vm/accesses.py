"""Admitting what crosses the border of the machine: bytes in and out, waits, side effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..interpreter.errors import CancelledError, MetadataError, ProtocolError, TensordError
from ..interpreter.messages import decode_meta
from ..interpreter.meta import Meta
from ..interpreter.opcodes import Opcode
from ..streams.stream import StreamKind
from .ids import check_new, define, describe, lane_of, refuse_cancelled, tensor_of
from .immediate import fetch_immediately, wait_immediately
from .instruction import Instruction
from .lost import refuse_lost
from .pending import await_metas
from .refusal import deny, poison_copy, reject
from .residency import Binding
from .tensor import Tensor

if TYPE_CHECKING:
    from .engine import Engine
    from .session import VmSession


class Accesses:
    """The handlers of UPLOAD, FETCH, WAIT, SYNC, CHAIN and EFFECT messages."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # -- bytes in and out ------------------------------------------------------------------------------------------

    def upload(self, session: VmSession, message: Sequence[Any]) -> None:
        """AccessBlobByCallback, writing: bytes from outside, straight to the tensor's home."""
        _, id_, shape, dtype, device, payload, location = message
        engine = self.engine
        try:
            refuse_cancelled(session)
            check_new(session, (id_,))
            meta, lane = upload_meta(shape, dtype, payload), lane_of(engine, device)
        except TensordError as error:
            reject(self.engine, session, error, (id_,), location, "asarray")
            return
        try:
            refuse_lost(lane)
        except TensordError as error:
            reject(self.engine, session, error, (id_,), location, "asarray", (meta,), lane)
            return
        session.payload += payload.nbytes
        tensor, copy = engine.residency.new_tensor(meta, lane)
        define(session, id_, tensor)
        instruction = engine.new_instruction(session, Opcode.ACCESS, "upload", lane, location)
        instruction.outputs = (Binding(copy, tensor, 0, None),)
        instruction.writes = (copy,)
        instruction.bytes_moved = meta.nbytes
        if lane.device.host:
            instruction.payload = payload
        else:
            instruction.stream = lane.device.copy_stream(StreamKind.H2D)
            instruction.kernel = lambda target: lane.device.copy_in(target, payload)

        def consumed(done: Instruction) -> None:
            session.payload -= payload.nbytes
            if done.error is None and not lane.device.host:
                lane.count_move("h2d", meta.nbytes)

        instruction.on_retire = consumed
        engine.admit(instruction)

    def fetch(self, session: VmSession, message: Sequence[Any]) -> None:
        """AccessBlobByCallback, reading: the value at this place in program order, as a host array."""
        _, id_, request, location = message
        engine = self.engine
        try:
            refuse_cancelled(session)
            tensor = tensor_of(session, id_)
        except TensordError as error:
            deny(engine, session, error, request, location, "fetch")
            return
        source = self.readable(tensor)
        if fetch_immediately(engine, session, source, request, location):
            return
        lane = source.copy.lane
        instruction = engine.new_instruction(session, Opcode.ACCESS, "fetch", lane, location)
        instruction.inputs = (source,)
        instruction.reads = (source.copy,)
        await_metas(instruction)
        if not lane.device.host:
            instruction.stream = lane.device.copy_stream(StreamKind.D2H)

        def read(array: Any) -> Any:
            meta = tensor.meta
            if meta is None:
                raise ProtocolError("a tensor with a pending meta has no bytes yet")
            result = lane.device.host_array(meta)
            lane.device.copy_out(array, result)
            instruction.bytes_moved = meta.nbytes
            return result

        def answer(done: Instruction) -> None:
            if done.error is None and not lane.device.host:
                lane.count_move("d2h", done.bytes_moved)
            session.reply(request, done.results, done.error)
            done.results = None

        instruction.kernel = read
        instruction.on_retire = answer
        instruction.on_doom = lambda doomed: session.reply(request, None, doomed.error)
        engine.admit(instruction)

    def readable(self, tensor: Tensor) -> Binding:
        """The copy to read from without moving it: one that holds its value already, on the host if there is one."""
        storage = tensor.storage
        key = tensor.view_key()
        if key is not None and storage.views:
            for (lane, view), copy in storage.views.items():
                if view == key and lane.device.host and copy.writer is None:
                    return Binding(copy, tensor, 0, None)
        ranked = sorted(storage.copies.values(), key=lambda c: (c.writer is not None, not c.lane.device.host))
        return Binding(ranked[0], tensor, tensor.offset, tensor.strides)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, session: VmSession, message: Sequence[Any]) -> None:
        """Barrier over some tensors: answers with their metas once their values at this place are there."""
        _, ids, request, location = message
        engine = self.engine
        try:
            tensors = [tensor_of(session, id_) for id_ in ids]
        except TensordError as error:
            deny(engine, session, error, request, location, "wait")
            return
        copies = tuple({self.readable(tensor).copy: None for tensor in tensors})
        if wait_immediately(engine, session, copies, location):
            session.reply(request, [describe(tensor) for tensor in tensors], None)
            return
        for tensor in tensors:
            tensor.bound = True  # the answer describes it as it was here
        lane = tensors[0].home
        instruction = engine.new_instruction(session, Opcode.BARRIER, "wait", lane, location)
        instruction.reads = copies
        instruction.on_doom = lambda doomed: session.reply(request, None, doomed.error)

        def answer(done: Instruction) -> None:
            session.reply(request, [describe(tensor) for tensor in tensors], done.error)

        instruction.on_retire = answer
        engine.admit(instruction)

    def sync(self, session: VmSession, message: Sequence[Any]) -> None:
        """Barrier over everything the session sent before. It does not raise, and holds nothing later back."""
        _, request, location = message
        lane = next(iter(self.engine.lanes.values()))
        instruction = self.engine.new_instruction(session, Opcode.BARRIER, "sync", lane, location)
        # Transfers belong to no session, but these it asked for.
        instruction.reads = tuple({copy: None for move in session.moves for copy in move.writes})

        def answer(done: Instruction) -> None:
            if session.barrier is done:
                session.barrier = None
            session.reply(request, None, None)

        instruction.on_retire = answer
        self.engine.admit_barrier(session, instruction)

    # -- side effects ----------------------------------------------------------------------------------------------

    def chain(self, session: VmSession, message: Sequence[Any]) -> None:
        """A new chain: an object without data, that side effects take as `mut`."""
        host = self.engine.residency.host or next(iter(self.engine.lanes.values()))
        copy = self.engine.residency.new_copy(host, 0, 1)
        session.chains[message[1]] = copy

    def effect(self, session: VmSession, message: Sequence[Any]) -> None:
        """AccessBlobByCallback, calling the user's function with host arrays, in the order of its chain."""
        _, ids, chain, callback, request, location = message
        engine = self.engine
        link = session.chains.get(chain)
        try:
            refuse_cancelled(session)
            host = engine.residency.host
            if host is None or link is None:
                raise ProtocolError("a side effect needs a chain and a cpu device")
            tensors = [tensor_of(session, id_) for id_ in ids]
            bound = [engine.residency.operand(tensor, host, session, location) for tensor in tensors]
        except TensordError as error:
            deny(engine, session, error, request, location, "effect")
            if link is not None and not isinstance(error, CancelledError):
                poison_copy(engine, session, link, error)
            return
        instruction = engine.new_instruction(session, Opcode.ACCESS, "effect", host, location)
        instruction.inputs = tuple(bound)
        await_metas(instruction)
        instruction.reads = (*dict.fromkeys(b.copy for b in bound), link)
        instruction.writes = (link,)
        instruction.kernel = lambda *arrays: call_back(callback, arrays)
        instruction.on_control = True
        instruction.on_doom = lambda doomed: session.reply(request, None, doomed.error)
        instruction.on_retire = lambda done: session.reply(request, None, done.error)
        engine.admit(instruction)


def upload_meta(shape: Sequence[int], dtype: str, payload: NDArray[Any]) -> Meta:
    """The meta of an upload; MetadataError if it is none, or not the payload's."""
    try:
        meta = decode_meta((shape, dtype))
    except TypeError as error:
        raise MetadataError(f"asarray: {error}", op="asarray") from None
    if not isinstance(meta, Meta) or (payload.shape, payload.dtype) != (meta.shape, meta.dtype):
        found = f"{payload.dtype.name}{list(payload.shape)}"
        raise MetadataError(f"asarray: the payload is {found}, not {meta}", op="asarray")
    return meta


def call_back(callback: Callable[..., Any], arrays: Sequence[Any]) -> None:
    """The user's function gets the values as arrays of its own: it may keep them."""
    callback(*[array.copy() for array in arrays])
