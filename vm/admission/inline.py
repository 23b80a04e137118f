"""Running a small op where it is admitted.

Most ops of a loop over small tensors find all their sources done. For such an op an instruction object with its edges
would be made only to be dropped in the same pass, at several times the cost of the kernel. So the op runs at once on
the driving thread, if all of this holds:

- the plan says it is small and bounded, and its device lets small ops run on the driving thread;
- every operand has a healthy, finished copy on the device, and no unfinished access that an edge would have to wait
  for: these are exactly the ops for which `edges.consume` would find nothing to do;
- the op's result fits at once, in addition to all memory that earlier instructions still have to reserve;
- the session's quota allows the result.

Busy streams of the device are no reason to wait: no edge would order the op after the work there, so the op may as
well run before or beside that work (docs/decisions/0007).

Small uploads, fetches and waits run at admission, too, if no unfinished access is in their way.

Otherwise nothing is changed and the op takes the long way. The record in the trace is the same, with no edges and two
adjacent ticks, and `verify` holds it to that. This is the hottest code of the machine, and written for it: few calls,
few objects. The form of a CALL is checked here field by field, before the field is used and before anything changes;
a malformed CALL takes the long way, which reports the fault (tests/vm/admission/test_inline.py sends all that a client
may send both ways). If an input dies with the op and the result can take its memory, the result gets the input's copy
as it is, under a new id. If no instruction was ever bound to the input, the result gets its tensor and storage as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Upload
from ...streams.device import Buffer
from ..memory.binding import bind
from ..memory.ledger import has_spare
from ..memory.release import release
from ..memory.replicas import touch
from ..model.account import charge, credit
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, Status
from ..model.operand import Binding
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.signature import NOTHING, UPLOAD, Maker
from ..model.tensor import Copy, Storage, Tensor
from ..placement.residency import Residency
from ..scheduler.dispatch import INLINE_BYTES
from ..scheduler.scheduler import Scheduler
from .names import Names

COPIED_BYTES = 1 << 14  # uploads up to this size are copied rather than adopted
# Texts of opcodes as records keep them: Python reads a plain text much faster than the value of an enum's member.
ACCESS, WAIT = Opcode.ACCESS.value, Opcode.WAIT.value

# The arrays of a call's operands, and what the trace keeps of them: (copy, version) of each tensor, flat.
Bound: TypeAlias = tuple[Sequence[Any], Sequence[int]]


class Inline:
    """Runs messages at admission. A method that cannot run its message returns False, and has changed nothing."""

    def __init__(self, scheduler: Scheduler, residency: Residency, names: Names) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.names = names

    # -- ops -------------------------------------------------------------------------------------------------------

    def call(self, session: VmSession, message: Sequence[Any]) -> bool:
        """Run a CALL message now."""
        _, number, inputs, outputs, released, location = message
        plan = session.immediate.get(number)
        if plan is None or session.cancelled is not None:
            return False
        device = plan.device
        if not device.compute[0].inline or type(inputs) is not tuple or type(outputs) is not tuple:
            return False  # lists take the long way; a dict has a length and keys, too, and bytes hold numbers
        if len(inputs) != plan.count or len(outputs) != 1:
            return False
        (output,) = outputs
        if type(number) is not int or type(output) is not int or type(released) is not int or type(location) is not int:
            return False  # a bool or a float may equal one
        if (output | released | location) >> 63:
            return False  # negative, or too large
        tensors = session.tensors
        metas = plan.metas
        bound = bind_two(device, tensors, inputs, metas) if plan.two else bind_operands(device, tensors, inputs, metas)
        if bound is None:
            return False
        arguments, traced = bound
        if device.replicas:
            for value, meta in zip(inputs, plan.metas, strict=True):
                if type(meta) is Meta:
                    touch(tensors[value].storage.copies[device])
        meta = plan.outputs[0]
        inherited = 0
        if plan.in_place:
            copy = find_target(plan, session, output)
        else:
            copy, inherited = self.new_result(plan, session, inputs, output, released, location)
        if copy is None:
            return False
        buffer: Any = copy.buffer
        target = buffer.array if buffer.meta is meta else device.backend.bind(buffer, meta)  # type: ignore[arg-type]
        scheduler = self.scheduler
        clock = scheduler.clock
        scheduler.ids = id_ = scheduler.ids + 1
        scheduler.tick = tick = scheduler.tick + 2
        scheduler.retired += 1
        started = clock()
        try:
            plan.kernel(*arguments, target)
        except BaseException as error:
            self.keep_failure(plan, session, message, id_, error, started)
        else:
            scheduler.latest = finished = clock()
            ring = scheduler.ring
            if ring.enabled:
                copies = (*traced, copy.id, copy.version)
                used = device.backend.allocated
                ring.append((id_, plan.traits, copies, tick, scheduler.now, started, finished, location, used))
        if released != inherited:
            self.names.release_operands(session, plan, inputs, outputs, released & ~inherited)
        return True

    def new_result(
        self, plan: Plan, session: VmSession, inputs: Sequence[Any], output: int, released: int, location: int
    ) -> tuple[Copy | None, int]:
        """The copy of the result, which has an input's memory or its own; and the release bit of that input, or 0."""
        meta, device = plan.outputs[0], plan.device
        if meta is None or output <= session.newest:
            return None, 0
        dying = released & plan.heirs
        if dying:
            for position, value in enumerate(inputs):
                if dying >> position & 1 and inputs.count(value) == 1:
                    copy = self.inherit(session, device, meta, value, output, plan.maker, location)
                    if copy is not None:
                        return copy, 1 << position
        return self.make_result(session, device, meta, output, plan.maker, location), 0

    def inherit(
        self,
        session: VmSession,
        device: DeviceState,
        meta: Meta,
        input_: int,
        output: int,
        maker: Maker,
        location: int,
    ) -> Copy | None:
        """Forwarding: give the result the copy of an input that dies here, if the input has it for itself."""
        tensors, account = session.tensors, session.account
        tensor = tensors[input_]
        storage = tensor.storage
        copy = storage.copies[device]
        if (
            tensor.holders != 1  # `dies_with_call` and `is_free_for`, without their calls
            or storage.sharers != 1
            or tensor.strides is not None
            or copy.uses
            or copy.exposed
            or copy.readers
            or copy.buffer.nbytes != meta.nbytes  # type: ignore[union-attr]  # it was bound
            or len(storage.copies) != 1  # the copy is handed on as it is, so it must be all that there is
            or storage.views
            or (device.replicas and copy in device.replicas)
            or (storage.account is not account and account.bytes + storage.nbytes > account.limit)
        ):
            return None
        del tensors[input_]
        residency = self.residency
        residency.copies = copy.id = residency.copies + 1
        copy.version = storage.version = 1
        if storage.account is not account:
            credit(storage)
            charge(session, storage)
        if tensor.bound:  # an instruction may still read an older copy, by this tensor's meta
            residency.let_go(tensor)
            storage.copies = {}
            storage = Storage(meta.nbytes, device, copy, storage.account)
            tensor = Tensor(meta, storage, device)
        storage.maker = maker
        storage.location = location
        tensor.meta = meta
        tensor.home = device
        tensors[output] = tensor
        session.newest = output
        return copy

    def make_result(
        self, session: VmSession, device: DeviceState, meta: Meta, output: int, maker: Maker, location: int
    ) -> Copy | None:
        """A new tensor with fresh memory; its copy."""
        nbytes, backend, account = meta.nbytes, device.backend, session.account
        if account.bytes + nbytes > account.limit or len(session.tensors) >= account.tensors:
            return None
        if device.unreserved and not has_spare(device, nbytes):
            return None
        buffer = backend.allocate(nbytes)
        if buffer is None:
            return None
        residency = self.residency
        residency.copies = number = residency.copies + 1
        copy = Copy(number, device, nbytes, 1)
        copy.buffer = buffer
        device.planned += nbytes
        account.bytes += nbytes
        session.tensors[output] = Tensor(meta, Storage(nbytes, device, copy, account, maker, location), device)
        session.newest = output
        return copy

    def keep_failure(
        self,
        plan: Plan,
        session: VmSession,
        message: Sequence[Any],
        id_: int,
        failure: BaseException,
        started: int,
    ) -> None:
        """The kernel raised: poison its outputs and keep its record, as the long way would have done."""
        _, _, inputs, outputs, _, location = message
        scheduler = self.scheduler
        instruction = Instruction(id_, session, Opcode.CALL, plan.label, plan.device, location)
        instruction.plan = plan
        read = [session.tensors.get(v) for v, scalar in zip(inputs, plan.scalars, strict=True) if not scalar]
        instruction.reads = tuple({t.storage.copies[plan.device]: None for t in read if t is not None})
        instruction.writes = tuple({session.tensors[v].storage.copies[plan.device]: None for v in outputs})
        instruction.versions = tuple([copy.version for copy in instruction.reads + instruction.writes])
        instruction.admitted = scheduler.tick - 1
        instruction.received = instruction.ready = instruction.dispatched = scheduler.now
        instruction.started = started
        instruction.fail(failure)
        for copy in instruction.writes:
            release(copy)
        instruction.finished = scheduler.latest = scheduler.clock()
        instruction.move(Status.FAILED)
        scheduler.ring.add(instruction, scheduler.tick)
        scheduler.tell(session, instruction.error)

    # -- bytes in and out, waiting ---------------------------------------------------------------------------------

    def upload(self, session: VmSession, device: DeviceState, meta: Meta, message: Upload) -> bool:
        """Take a small upload now: a copy into memory that is bound already is quicker than adopting the payload's."""
        if meta.nbytes > COPIED_BYTES or not device.backend.host or not device.inline():
            return False
        if message.output <= session.newest:
            return False
        copy = self.make_result(session, device, meta, message.output, UPLOAD, message.location)
        if copy is None:
            return False
        started = self.scheduler.clock()
        buffer: Any = copy.buffer
        device.backend.bind(buffer, meta)[...] = message.payload
        traits = (session.id, ACCESS, "upload", device.name, "w", meta.plain)
        self.scheduler.keep_record(traits, (copy.id, copy.version), started, message.location, meta.nbytes)
        return True

    def fetch(self, session: VmSession, source: Binding, request: int, location: int) -> bool:
        """Answer a fetch now, if the value is there, on the host, and small."""
        copy, tensor, _, _ = source
        device = copy.device
        if copy.writer is not None or copy.poison is not None or copy.buffer is None or tensor.meta is None:
            return False
        if not device.backend.host or not device.inline() or tensor.meta.nbytes > INLINE_BYTES:
            return False
        started = self.scheduler.clock()
        try:
            result = device.backend.host_array(tensor.meta)
            device.backend.copy_out(bind(source), result)
        except Exception:
            return False  # the long way tells what is wrong
        traits = (session.id, ACCESS, "fetch", device.name, "r", tensor.meta.plain)
        self.scheduler.keep_record(traits, (copy.id, copy.version), started, location, tensor.meta.nbytes)
        session.reply(request, result, None)
        return True

    def wait(self, session: VmSession, copies: Sequence[Copy], location: int) -> bool:
        """Is a wait for these copies over at once?"""
        if any(copy.writer is not None or copy.poison is not None for copy in copies):
            return False
        traits = (session.id, WAIT, "wait", copies[0].device.name, "r" * len(copies), NOTHING)
        flat = tuple([part for copy in copies for part in (copy.id, copy.version)])
        self.scheduler.keep_record(traits, flat, self.scheduler.clock(), location, 0)
        return True


def bind_operands(
    device: DeviceState, tensors: dict[int, Tensor], inputs: Sequence[Any], metas: Sequence[Any]
) -> Bound | None:
    """The operands, if each of them is there, healthy and finished; else None."""
    arguments: list[Any] = []
    traced: list[int] = []
    for value, meta in zip(inputs, metas, strict=True):
        if type(meta) is not Meta:
            if type(value) is not meta:
                return None  # the long way tells what is wrong
            arguments.append(value)
            continue
        tensor = tensors.get(value) if type(value) is int else None
        if tensor is None or tensor.meta is not meta:
            return None
        copy = tensor.storage.copies.get(device)
        if copy is None or copy.writer is not None or copy.poison is not None:
            return None
        buffer = copy.buffer
        if buffer is None:
            return None
        plain = buffer.meta is meta and tensor.strides is None
        arguments.append(buffer.array if plain else bind_operand(device, buffer, tensor, meta))
        traced += (copy.id, copy.version)
    return arguments, traced


def bind_two(
    device: DeviceState, tensors: dict[int, Tensor], inputs: Sequence[Any], metas: Sequence[Any]
) -> Bound | None:
    """`bind_operands` for two tensors, which most calls have: without loop and lists."""
    first, second = inputs
    if type(first) is not int or type(second) is not int:
        return None
    m, n = metas
    x, y = tensors.get(first), tensors.get(second)
    if x is None or y is None or x.meta is not m or y.meta is not n:
        return None
    a, b = x.storage.copies.get(device), y.storage.copies.get(device)
    if a is None or b is None or a.writer is not None or b.writer is not None:
        return None
    p, q = a.buffer, b.buffer
    if p is None or q is None or a.poison is not None or b.poison is not None:
        return None
    left = p.array if p.meta is m and x.strides is None else bind_operand(device, p, x, m)
    right = q.array if q.meta is n and y.strides is None else bind_operand(device, q, y, n)
    return (left, right), (a.id, a.version, b.id, b.version)


def bind_operand(device: DeviceState, buffer: Buffer, tensor: Tensor, meta: Any) -> Any:
    """The array of an operand that is bound differently than last time."""
    if tensor.strides is not None:
        return device.backend.bind_view(buffer, meta, tensor.offset, tensor.strides)
    return device.backend.bind(buffer, meta)


def find_target(plan: Plan, session: VmSession, output: int) -> Copy | None:
    """The copy of the `out=` tensor, with its next version, if the tensor's memory is its own, all here, and unused."""
    tensor = session.tensors.get(output)
    if tensor is None or tensor.meta is None or tensor.meta is not plan.outputs[0]:
        return None
    storage = tensor.storage
    copy = storage.copies.get(plan.device)
    if copy is None or len(storage.copies) != 1 or storage.views:
        return None
    if storage.sharers != 1 or tensor.strides is not None or copy.exposed:  # `may_overwrite`, without its call
        return None
    if copy.uses or copy.readers or copy.poison is not None or copy.buffer is None:
        return None
    storage.version = copy.version = storage.version + 1
    return copy
