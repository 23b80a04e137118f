"""Running a small op where it is admitted.

Most ops of a loop over small tensors find everything done that they depend on. For them an instruction object with
its edges would be made only to be dropped in the same pass, at several times the cost of the kernel. So the op runs
at once on the driving thread, if all of this holds:

- the plan says it is small and bounded, and its device lets small ops run on the driving thread;
- every operand has a healthy, finished copy on the device, and no unfinished access that an edge would have to wait
  for: what this leaves out is exactly what `edges.consume` would have found nothing to do for;
- its own result fits at once, and beside all that instructions in front of it still have to reserve;
- its session may have the result.

That the device's streams are busy is no reason to wait: whoever runs there has no access in common with it that an edge
would have ordered, so it may as well run before them or beside them (docs/decisions/0007).

Small uploads, fetches and waits go the same way where nothing stands in theirs.

Otherwise nothing is changed and the op takes the long way. The record in the trace is the same, with no edges and two
adjacent ticks, and `verify` holds it to that. This is the hottest code of the machine, and written for it: few calls,
few objects. An input that dies with the op and whose memory the result can take hands down its copy as it is, under a
new id; and, if no instruction was ever bound to it, the tensor and the storage as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...interpreter.opcodes import ACCESS_TEXT, BARRIER_TEXT, Opcode
from ...interpreter.types.meta import Meta
from ..memory.binding import bind
from ..model.account import charge, let_off
from ..model.instruction import Instruction
from ..model.plan import Plan
from ..model.tensor import Copy, Storage, Tensor

if TYPE_CHECKING:
    from ...interpreter.wire.messages import Upload
    from ...streams.device import Buffer
    from ..engine import Engine
    from ..model.device_state import DeviceState
    from ..model.operand import Binding
    from ..model.session import VmSession

COPIED_BYTES = 1 << 14  # uploads up to this size are copied rather than adopted
INLINE_BYTES = 1 << 18  # copies up to this size may run on the driving thread


def run_immediately(engine: Engine, session: VmSession, message: Sequence[Any]) -> bool:
    """Run a CALL message now; False, and nothing changed, if it has to take the long way."""
    _, number, inputs, outputs, released, location = message
    plan = session.plans.get(number)
    if type(plan) is not Plan or not plan.immediate or session.cancelled is not None or len(inputs) != len(plan.metas):
        return False
    device = plan.device
    if not device.compute[0].inline or len(outputs) != 1 or type(location) is not int:
        return False
    if (outputs[0] | location) >> 63 or released >> 64:  # negative or too large; a TypeError if one is no number
        return False
    tensors = session.tensors
    bound = (bind_two if plan.two else bind_operands)(device, tensors, inputs, plan.metas)
    if bound is None:
        return False
    arguments, traced = bound
    if device.replicas:
        for value, meta in zip(inputs, plan.metas, strict=True):
            if type(meta) is Meta:
                device.used(tensors[value].storage.copies[device])
    inherited = 0
    if plan.in_place:
        if not bind_target(plan, session, outputs, arguments, traced):
            return False
    else:
        if released and plan.forward:
            inherited = inherit(engine, plan, session, message, arguments, traced)
        if not inherited and not make_result(engine, session, device, plan.outputs[0], outputs, arguments, traced):
            return False
    clock = engine.clock
    engine.ids = id_ = engine.ids + 1
    engine.tick = tick = engine.tick + 2
    engine.retired += 1
    started = clock()
    try:
        plan.kernel(*arguments)
    except BaseException as error:
        keep_failure(engine, plan, session, message, id_, error, started)
    else:
        ring = engine.ring
        if ring.enabled:
            ring.append((id_, plan.traits, tuple(traced), tick, engine.now, started, clock(), location, 0))
    if released != inherited:
        engine.admission.calls.release_operands(session, inputs, outputs, released & ~inherited, number)
    return True


# The arrays of a call's operands, and what the trace keeps of them: (copy, version) of each tensor, flat.
Bound: TypeAlias = tuple[list[Any], list[int]]


def bind_operands(
    device: DeviceState, tensors: Mapping[int, Tensor], inputs: Sequence[Any], metas: Sequence[Any]
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
        tensor = tensors.get(value)
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
    device: DeviceState, tensors: Mapping[int, Tensor], inputs: Sequence[Any], metas: Sequence[Any]
) -> Bound | None:
    """`bind_operands` for two tensors, which most calls have: without loop and growing lists."""
    first, second = inputs
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
    return [left, right], [a.id, a.version, b.id, b.version]


def bind_operand(device: DeviceState, buffer: Buffer, tensor: Tensor, meta: Any) -> Any:
    """The array of an operand that is not bound as it was last time."""
    if tensor.strides is not None:
        return device.backend.bind_view(buffer, meta, tensor.offset, tensor.strides)
    return device.backend.bind(buffer, meta)


def bind_target(
    plan: Plan, session: VmSession, outputs: Sequence[int], arguments: list[Any], traced: list[int]
) -> bool:
    """`out=`: the only tensor of its storage, with its only copy here and nobody using it."""
    device, meta = plan.device, plan.outputs[0]
    tensor = session.tensors.get(outputs[0])
    if tensor is None or meta is None or tensor.meta is not meta or tensor.strides is not None or len(outputs) != 1:
        return False
    storage = tensor.storage
    copy = storage.copies.get(device)
    if copy is None or storage.sharers != 1 or len(storage.copies) != 1 or storage.views:
        return False
    buffer = copy.buffer
    if copy.uses or copy.readers or copy.poison is not None or buffer is None:
        return False
    storage.version = copy.version = storage.version + 1
    arguments.append(buffer.array if buffer.meta is meta else device.backend.bind(buffer, meta))
    traced += (copy.id, copy.version)
    return True


def inherit(
    engine: Engine,
    plan: Plan,
    session: VmSession,
    message: Sequence[Any],
    arguments: list[Any],
    traced: list[int],
) -> int:
    """Forwarding: let the result have an input that dies here. Returns that input's release bit, 0 for none."""
    _, _, inputs, outputs, released, _ = message
    tensors, account = session.tensors, session.account
    device = plan.device
    meta = plan.outputs[0]
    for position in plan.forward:
        if not released >> position & 1:
            continue
        tensor = tensors[inputs[position]]
        storage = tensor.storage
        copy = storage.copies[device]
        buffer = copy.buffer
        if (
            tensor.holders != 1
            or storage.sharers != 1
            or tensor.strides is not None
            or len(storage.copies) != 1
            or storage.views
            or copy.uses
            or copy.readers
            or copy in device.replicas
            or buffer is None
            or buffer.exposed
            or meta is None
            or inputs.count(inputs[position]) != 1
            or outputs[0] <= session.newest
            or len(outputs) != 1
            or (storage.account is not account and account.bytes + storage.nbytes > account.limit)
        ):
            continue
        del tensors[inputs[position]]
        engine.copies += 1
        copy.id = engine.copies
        copy.version = storage.version = 1
        if storage.account is not account:
            let_off(storage)
            charge(session, storage)
        if tensor.bound:  # somebody may still read an older copy, by this tensor's meta
            storage.copies = {}
            tensor = Tensor(meta, Storage(meta.nbytes, device, copy, storage.account), device)
        tensor.meta = meta
        tensor.home = device
        tensors[outputs[0]] = tensor
        session.newest = outputs[0]
        arguments.append(buffer.array if buffer.meta is meta else device.backend.bind(buffer, meta))
        traced += (copy.id, 1)
        return 1 << position
    return 0


def make_result(
    engine: Engine,
    session: VmSession,
    device: DeviceState,
    meta: Meta | None,
    outputs: Sequence[int],
    arguments: list[Any],
    traced: list[int],
) -> bool:
    """A new tensor with fresh memory."""
    if meta is None or len(outputs) != 1 or outputs[0] <= session.newest:
        return False
    nbytes, backend, account = meta.nbytes, device.backend, session.account
    if account.bytes + nbytes > account.limit or len(session.tensors) >= account.tensors:
        return False
    if device.unreserved and not device.has_spare(nbytes):
        return False
    buffer = backend.allocate(nbytes)
    if buffer is None:
        return False
    engine.copies += 1
    copy = Copy(engine.copies, device, nbytes, 1)
    copy.buffer = buffer
    device.planned += nbytes
    account.bytes += nbytes
    session.tensors[outputs[0]] = Tensor(meta, Storage(nbytes, device, copy, account), device)
    session.newest = outputs[0]
    arguments.append(buffer.array if buffer.meta is meta else backend.bind(buffer, meta))
    traced += (copy.id, 1)
    return True


def keep_failure(
    engine: Engine,
    plan: Plan,
    session: VmSession,
    message: Sequence[Any],
    id_: int,
    failure: BaseException,
    started: int,
) -> None:
    """The kernel raised: what the long way would have left behind."""
    _, _, inputs, outputs, _, location = message
    instruction = Instruction(id_, session, Opcode.CALL, plan.label, plan.device, location)
    instruction.plan = plan
    read = [session.tensors.get(v) for v, scalar in zip(inputs, plan.scalars, strict=True) if not scalar]
    instruction.reads = tuple({t.storage.copies[plan.device]: None for t in read if t is not None})
    instruction.writes = tuple({session.tensors[v].storage.copies[plan.device]: None for v in outputs})
    instruction.versions = tuple([copy.version for copy in instruction.reads + instruction.writes])
    instruction.admitted = engine.tick - 1
    instruction.received = instruction.ready = instruction.dispatched = engine.now
    instruction.started = started
    engine.fail_immediately(instruction, failure)


def upload_immediately(engine: Engine, session: VmSession, device: DeviceState, meta: Meta, message: Upload) -> bool:
    """Take a small upload now: copied into memory that is bound already, which is quicker than to adopt its own."""
    id_, payload, location = message.output, message.payload, message.location
    if meta.nbytes > COPIED_BYTES or not device.backend.host or not device.inline():
        return False
    target: list[Any] = []
    traced: list[int] = []
    if not make_result(engine, session, device, meta, (id_,), target, traced):
        return False
    started = engine.clock()
    target[0][...] = payload
    traits = (session.id, ACCESS_TEXT, "upload", device.name, "w")
    leave_record(engine, traits, tuple(traced), started, location, meta.nbytes)
    return True


def fetch_immediately(engine: Engine, session: VmSession, source: Binding, request: int, location: int) -> bool:
    """Answer a fetch now, if the value is there, on the host, and small."""
    copy, tensor, _, _ = source
    device = copy.device
    if copy.writer is not None or copy.poison is not None or copy.buffer is None or tensor.meta is None:
        return False
    if not device.backend.host or not device.inline() or tensor.meta.nbytes > INLINE_BYTES:
        return False
    started = engine.clock()
    try:
        result = device.backend.host_array(tensor.meta)
        device.backend.copy_out(bind(source), result)
    except Exception:
        return False  # the long way tells what is wrong
    traits = (session.id, ACCESS_TEXT, "fetch", device.name, "r")
    leave_record(engine, traits, (copy.id, copy.version), started, location, tensor.meta.nbytes)
    session.reply(request, result, None)
    return True


def wait_immediately(engine: Engine, session: VmSession, copies: Sequence[Copy], location: int) -> bool:
    """Is a wait over these copies over before it began?"""
    if any(copy.writer is not None or copy.poison is not None for copy in copies):
        return False
    traits = (session.id, BARRIER_TEXT, "wait", copies[0].device.name, "r" * len(copies))
    flat = tuple([part for copy in copies for part in (copy.id, copy.version)])
    leave_record(engine, traits, flat, engine.clock(), location, 0)
    return True


def leave_record(
    engine: Engine, traits: tuple[Any, ...], copies: tuple[int, ...], started: int, location: int, nbytes: int
) -> None:
    """Count an instruction that came and went at admission, and keep its record."""
    engine.ids += 1
    engine.tick += 2
    engine.retired += 1
    if engine.ring.enabled:
        entry = (engine.ids, traits, copies, engine.tick, engine.now, started, engine.clock(), location, nbytes)
        engine.ring.append(entry)
