"""Admission of uploads, fetches and waits: the messages that move bytes into or out of the machine, or wait for them.

The payload of an upload to the host becomes the tensor's memory without a copy, even if the payload lies in memory that
the client shares with the machine (`interpreter.wire.host_memory`). A client that still writes there gets undefined
results. Two rules protect other sessions:

- the machine never writes, forwards, reuses or pools shared memory: the copy counts as client-mapped
  (`memory.overwriting`);
- shared integers and booleans are copied, since kernels check indices once and trust them afterwards.

An uploaded array in the memory of a GPU (`GpuPayload`) becomes the tensor's memory there: the sender, which runs in the
machine's process, has made the array for the tensor alone. The upload stream waits for the sender's event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from numpy.typing import NDArray

from ...interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import DTYPE_NAMES, Meta
from ...interpreter.wire.gpu_payload import GpuPayload
from ...interpreter.wire.host_memory import is_clients
from ...interpreter.wire.messages import Fetch, Sync, Upload, Wait
from ...interpreter.wire.metas import decode_meta
from ...streams.stream import StreamKind
from ..model.charges import has_share
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, InstructionEnd
from ..model.launches import Fence
from ..model.session import Cause, VmSession
from ..model.signature import UPLOAD
from ..model.tensor import Binding, Copy, Moved, VmTensor
from ..model.unfolding import Answer
from ..placement.residency import Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .at_once import ReadsAtOnce, may_read_in_order
from .exports import Exports, ReplyEnd, define_export
from .inline import Inline
from .lookup import check_new, define, describe, device_of, note_maker, refuse_cancelled, tensor_of
from .quotas import check_tensors
from .rejection import Rejection

DIRECT_READ_BYTES: Final = 1 << 20  # bytes

INDEX_KINDS = "iub"  # kinds of dtypes that kernels use as indices, masks and counts
PENDING_BYTES = 1 << 24  # estimated bytes of an answer while its meta is pending


class Accesses:
    """The handlers of UPLOAD, FETCH, WAIT and SYNC messages."""

    def __init__(
        self, scheduler: Scheduler, residency: Residency, inline: Inline, exports: Exports, rejection: Rejection
    ) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.inline = inline
        self.reads = ReadsAtOnce(scheduler)
        self.exports = exports
        self.rejection = rejection

    # -- bytes in and out ------------------------------------------------------------------------------------------

    def upload(self, session: VmSession, message: Upload) -> None:
        """Admit an upload: bytes from the client go straight to the tensor's home device."""
        payload, location = message.payload, message.location
        try:
            refuse_cancelled(session)
            check_new(session, (message.output,))
            meta = upload_meta(message.shape, message.dtype, payload)
            device = device_of(self.scheduler.devices, message.device)
        except TensordError as error:
            self.rejection.reject(session, error, (message.output,), location, "asarray")
            return
        try:
            refuse_lost(device)
        except TensordError as error:
            self.rejection.reject(session, error, (message.output,), location, "asarray", (meta,), device)
            return
        if self.inline.upload(session, device, meta, message):
            return
        try:
            if device.ceiling:
                self.residency.tiers.require_share(None, device, meta.nbytes, Cause(session, location))
        except QuotaError as error:
            self.rejection.reject(session, error, (message.output,), location, "asarray", (meta,), device)
            return
        session.payload += payload.nbytes
        tensor, copy = self.residency.new_tensor(meta, device)
        define(session, message.output, tensor)
        note_maker(tensor.storage, UPLOAD, location, self.scheduler.now)
        opcode = Opcode.ACCESS if device.backend.host else Opcode.UPLOAD
        instruction = self.scheduler.new_instruction(session, opcode, "upload", device, location)
        instruction.outputs = (Binding(copy, tensor, 0, None),)
        instruction.writes = (copy,)
        instruction.bytes_moved = meta.nbytes
        set_payload(instruction, copy, device, payload)
        instruction.on_end = UploadEnd(session, payload.nbytes)
        self.residency.tiers.admit(instruction)

    def fetch(self, session: VmSession, message: Fetch) -> None:
        """Answer with the tensor's value at this point in program order, as a host array.

        With an export, the array may be the tensor's memory itself; this memory then stays unchanged until the export
        is released.
        """
        id_, request, location, export = message
        try:
            refuse_cancelled(session)
            if export:
                check_new(session, (export,))
                check_tensors(session, 1)
            tensor = tensor_of(session, id_)
            if session.moves:
                self.residency.begin_moves(session)
        except TensordError as error:
            if export:
                self.exports.define_refused(session, export, error, location)
            self.rejection.deny(session, error, request, location, "fetch")
            return
        if export:
            device = self.exports.device_to_map(tensor)
            exported = define_export(session, export, tensor)
            if device is not None:
                self.exports.fetch(session, exported, device, request, location)
                return
        self.copy_out(session, tensor, request, location)

    def copy_out(self, session: VmSession, tensor: VmTensor, request: int, location: int) -> None:
        """Answer the request with a copy of the value."""
        source = self.readable_source(session, tensor, location)
        result = self.reads.fetch(session, source, "fetch", location)
        if result is not None:
            session.reply(request, result, None)
            return
        instruction = self.reading(session, tensor, source, "fetch", location)
        instruction.on_end = FetchEnd(session, request, bytes_of(tensor))
        self.begin_reading(instruction, source)

    def begin_reading(self, instruction: Instruction, source: Binding) -> None:
        """Launch the instruction now if it is a fence; admit it otherwise."""
        if isinstance(instruction, Fence):
            self.scheduler.fences.read(instruction, source)
        else:
            self.scheduler.admit(instruction)

    def ask(self, session: VmSession, tensor: VmTensor, label: str, location: int) -> Answer:
        """Read a value that a run of the session needs, by an instruction called `label`."""
        answer = Answer()
        source = self.readable_source(session, tensor, location)
        result = self.reads.fetch(session, source, label, location)
        if result is not None:
            answer.set(result)
            return answer
        instruction = self.reading(session, tensor, source, label, location)
        instruction.on_end = AskEnd(answer)
        self.begin_reading(instruction, source)
        return answer

    def readable_source(self, session: VmSession, tensor: VmTensor, location: int) -> Binding:
        """The copy from which the host reads the value."""
        source, host = self.readable(tensor), self.residency.host
        if may_read_in_order(source):
            return source
        if host is not None and not source.copy.device.backend.host and is_worth_keeping(self.residency, source, host):
            return self.residency.bring(tensor, host, Cause(session, location))  # later reads use the same copy
        return source

    def reading(
        self, session: VmSession, tensor: VmTensor, source: Binding, label: str, location: int, *, at_once: bool = True
    ) -> Instruction:
        """An instruction, not yet admitted, whose result is a copy of the value on the host.

        The instruction is a Fence if `at_once` is set and the read can be launched now.
        """
        device = source.copy.device
        instruction: Instruction
        if at_once and may_read_in_order(source):
            self.scheduler.ids += 1
            instruction = Fence(self.scheduler.ids, session, device, Opcode.ACCESS, label, location)
            instruction.received = self.scheduler.now
        else:
            instruction = self.scheduler.new_instruction(session, Opcode.ACCESS, label, device, location)
            instruction.inputs = (source,)
            instruction.reads = (source.copy,)
            await_metas(instruction)
            if not device.backend.host:
                instruction.stream = device.backend.copy_stream(StreamKind.D2H)

        def read(array: Any) -> Any:
            meta = tensor.meta
            if meta is None:
                raise ProtocolError("a tensor with a pending meta has no bytes yet")
            device.refuse_vast(meta.nbytes, "a value")
            result = device.backend.read(array, meta)
            instruction.bytes_moved = meta.nbytes
            return result

        instruction.kernel = read
        return instruction

    def readable(self, tensor: VmTensor) -> Binding:
        """The copy to read without a transfer: preferably a copy whose write is done, then a copy on the host."""
        storage = tensor.storage
        key = None if tensor.strides is None else tensor.view_key()
        if key is not None and storage.views:
            for (device, view), copy in storage.views.items():
                if view == key and device.backend.host and copy.writer is None:
                    return Binding(copy, tensor, 0, None)
        copies = storage.copies.values()
        if len(copies) == 1:
            (best,) = copies
        else:
            best = min(copies, key=lambda c: (c.writer is not None, not c.device.backend.host))
        return Binding(best, tensor, tensor.offset, tensor.strides)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, session: VmSession, message: Wait) -> None:
        """Answer with the metas of some tensors once their values at this point in program order are computed."""
        ids, request, location = message
        try:
            tensors = [tensor_of(session, id_) for id_ in ids]
            if session.moves:
                self.residency.begin_moves(session)
            copies = tuple({self.awaited(tensor, session, location): None for tensor in tensors})
        except TensordError as error:
            self.rejection.deny(session, error, request, location, "wait")
            return
        if self.inline.wait(session, copies, location):
            session.reply(request, [describe(tensor) for tensor in tensors], None)
            return
        for tensor in tensors:
            tensor.bound = True  # the answer describes the tensor at this point in program order
        device = tensors[0].home
        instruction = self.scheduler.new_instruction(session, Opcode.WAIT, "wait", device, location)
        instruction.reads = copies
        instruction.on_end = WaitEnd(session, request, tensors)
        self.scheduler.admit(instruction)

    def awaited(self, tensor: VmTensor, session: VmSession, location: int) -> Copy:
        """The copy to wait for; for a moved tensor, the copy at its home."""
        if type(tensor) is Moved:
            refuse_lost(tensor.home)
            return self.residency.bring(tensor, tensor.home, Cause(session, location)).copy
        return self.readable(tensor).copy

    def sync(self, session: VmSession, message: Sync) -> None:
        """Answer once all earlier messages of the session have been carried out.

        The answer is the number of failures since the previous sync. The barrier never fails, and delays no later
        instruction.
        """
        request, location = message
        moving = self.residency.begin_moves(session)  # transfers are the system's, so the barrier names them
        device = next(iter(self.scheduler.devices.values()))
        instruction = self.scheduler.new_instruction(session, Opcode.BARRIER, "sync", device, location)
        instruction.reads = tuple(moving)
        instruction.on_end = SyncEnd(session, request)
        self.scheduler.admit_barrier(session, instruction)


class UploadEnd(InstructionEnd):
    """Counts a finished upload as a transfer, and its `nbytes` no longer against the session."""

    __slots__ = ("nbytes", "session")

    def __init__(self, session: VmSession, nbytes: int) -> None:
        self.session = session
        self.nbytes = nbytes

    def retired(self, done: Instruction) -> None:
        self.session.payload -= self.nbytes
        if done.error is None and not done.device.backend.host and done.payload is None:
            done.device.count_move("h2d", done.bytes_moved)


class FetchEnd(ReplyEnd):
    """Answers with a value that was read."""

    __slots__ = ()

    def retired(self, done: Instruction) -> None:
        count_read(done)
        super().retired(done)


class AskEnd(InstructionEnd):
    """Answers a run's request for a value. An error goes to the results of the run."""

    __slots__ = ("answer",)
    at_doom: ClassVar[bool] = True

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def retired(self, done: Instruction) -> None:
        count_read(done)
        if done.error is not None:
            done.error.is_reported = True
        self.answer.set(done.results, done.error)


class WaitEnd(InstructionEnd):
    """Answers a wait with the metas of its tensors."""

    __slots__ = ("request", "session", "tensors")
    at_doom: ClassVar[bool] = True

    def __init__(self, session: VmSession, request: int, tensors: Sequence[VmTensor]) -> None:
        self.session = session
        self.request = request
        self.tensors = tensors

    def retired(self, done: Instruction) -> None:
        metas = None if done.error is not None else [describe(tensor) for tensor in self.tensors]
        self.session.reply(self.request, metas, done.error)


class SyncEnd(InstructionEnd):
    """Answers with the number of failures since the previous sync."""

    __slots__ = ("request", "session")

    def __init__(self, session: VmSession, request: int) -> None:
        self.session = session
        self.request = request

    def retired(self, done: Instruction) -> None:
        session = self.session
        if session.barrier is done:
            session.barrier = None
        session.reply(self.request, session.counts.errors_since_sync(), None)


def count_read(done: Instruction) -> None:
    """Count the bytes that a finished read has moved off its device."""
    if done.error is None and not done.device.backend.host:
        done.device.count_move("d2h", done.bytes_moved)


def is_worth_keeping(residency: Residency, source: Binding, host: DeviceState) -> bool:
    """Whether to keep a value that is read on the host device, so that later reads need no transfer.

    False if the value does not fit there, or if it is large and its device copies faster into the memory of a result.
    """
    if source.copy.device.backend.pins:
        meta = source.tensor.meta
        if meta is not None and meta.nbytes >= DIRECT_READ_BYTES:
            return False
    return has_room(residency, host, source.tensor)


def has_room(residency: Residency, device: DeviceState, tensor: VmTensor) -> bool:
    """Whether a copy of the tensor fits on the device beside everything planned there; False for a lost device.

    While the tensor's meta is pending, the most bytes that its instruction can make must fit.
    """
    backend = device.backend
    if tensor.meta is not None:
        nbytes = residency.bytes_to_bring(tensor)
    else:
        nbytes = max((max_bytes_made(copy) for copy in tensor.storage.copies.values()), default=0) or backend.limit + 1
    account = tensor.storage.account
    return backend.lost is None and device.planned + nbytes <= backend.limit and has_share(account, device, nbytes)


def max_bytes_made(copy: Copy) -> int:
    """The most bytes that the instruction writing the copy can make; 0 if unknown."""
    writer = copy.writer
    return 0 if writer is None or writer.plan is None else writer.plan.max_bytes


def bytes_of(tensor: VmTensor) -> int:
    """Bytes of a packed copy; an estimate while the meta is pending."""
    return PENDING_BYTES if tensor.meta is None else tensor.meta.nbytes


def set_payload(instruction: Instruction, copy: Copy, device: DeviceState, payload: Any) -> None:
    """Let the upload adopt the payload as the copy's memory, or copy the payload there (see the module's docstring)."""
    shared = device.backend.host and is_clients(payload)
    if device.backend.host and not (shared and payload.dtype.kind in INDEX_KINDS):
        instruction.payload = payload
        instruction.on_control = True
        copy.client_mappings = int(shared)
    elif type(payload) is GpuPayload:
        instruction.payload, event = payload
        instruction.stream = device.backend.copy_stream(StreamKind.H2D)
        instruction.kernel = lambda _target: device.backend.await_event(event)
    else:
        instruction.stream = device.backend.copy_stream(StreamKind.H2D)
        instruction.kernel = lambda target: device.backend.copy_in(target, payload)


def upload_meta(shape: Sequence[int], dtype: str, payload: NDArray[Any]) -> Meta:
    """The meta of an upload; MetadataError if it is invalid, or not the payload's."""
    if tuple(shape) == payload.shape and DTYPE_NAMES.get(payload.dtype) == dtype:
        return Meta.of(payload.shape, payload.dtype)
    try:
        meta = decode_meta((shape, dtype))
    except (TypeError, ValueError) as error:
        raise MetadataError(f"asarray: {error}", op="asarray") from None
    found = f"{payload.dtype.name}{list(payload.shape)}"
    raise MetadataError(f"asarray: the payload is {found}, not {meta}", op="asarray")
