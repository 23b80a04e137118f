"""Running a small op where it is admitted.

Most ops of a loop over small tensors find everything done that they depend on. For them an instruction object with
its edges would be made only to be dropped in the same pass, at several times the cost of the kernel. So the op runs
at once on the driving thread, if all of this holds:

- the plan says it is small and bounded, and a compute stream of its device that allows inline execution is drained;
- every operand has a healthy, finished copy on the device, and no unfinished access that an edge would have to wait
  for: what this leaves out is exactly what `edges.consume` would have found nothing to do for;
- no instruction in front of it still has to reserve memory on that device, and its own result fits at once.

Otherwise nothing is changed and the op takes the long way. The record in the trace is the same, with no edges and two
adjacent ticks, and `verify` holds it to that.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..interpreter.opcodes import Opcode
from .instruction import Instruction
from .plan import Plan
from .tensor import Copy, Storage, Tensor

if TYPE_CHECKING:
    from ..interpreter.meta import Meta
    from .engine import Engine
    from .lane import Lane
    from .session import VmSession


def run_immediately(engine: Engine, session: VmSession, message: Sequence[Any]) -> bool:
    """Run a CALL message now; False, and nothing changed, if it has to take the long way."""
    _, number, inputs, outputs, released, location = message
    plan = session.plans.get(number)
    if type(plan) is not Plan or not plan.immediate or session.cancelled is not None:
        return False
    lane = plan.lane
    if lane.unreserved or not lane.idle or not lane.compute[0].inline:
        return False
    tensors = session.tensors
    arguments: list[Any] = []
    traced: list[int] = []
    position = 0
    for value in inputs:
        if plan.scalars[position]:
            arguments.append(value)
        else:
            tensor = tensors.get(value)
            if tensor is None or tensor.meta is not plan.metas[position]:
                return False
            copy = tensor.storage.copies.get(lane)
            if copy is None or copy.writer is not None or copy.poison is not None:
                return False
            buffer = copy.buffer
            if tensor.strides is not None:
                arguments.append(lane.device.bind_view(buffer, tensor.meta, tensor.offset, tensor.strides))
            elif buffer.meta is tensor.meta:
                arguments.append(buffer.array)
            else:
                arguments.append(lane.device.bind(buffer, tensor.meta))
            traced.append(copy.id)
            traced.append(copy.version)
        position += 1
    made: list[Any] = []
    if plan.in_place:
        if not bind_targets(plan, session, outputs, arguments, traced):
            return False
    elif not make_results(engine, plan, session, inputs, outputs, released, arguments, traced, made):
        return False
    return finish(engine, plan, session, message, arguments, traced, made)


def bind_targets(
    plan: Plan, session: VmSession, outputs: Sequence[int], arguments: list[Any], traced: list[int]
) -> bool:
    """`out=`: each target the only tensor of its storage, with its only copy here and nobody using it."""
    lane = plan.lane
    targets = []
    for id_, meta in zip(outputs, plan.outputs, strict=True):
        tensor = session.tensors.get(id_)
        if tensor is None or tensor.meta is not meta or tensor.strides is not None:
            return False
        storage = tensor.storage
        copy = storage.copies.get(lane)
        if copy is None or storage.sharers != 1 or len(storage.copies) != 1 or storage.views:
            return False
        if copy.uses or copy.poison is not None or copy.buffer is None:
            return False
        targets.append((storage, copy, tensor.meta))
    for storage, copy, meta in targets:
        storage.version = copy.version = storage.version + 1
        buffer = copy.buffer
        arguments.append(buffer.array if buffer.meta is meta else lane.device.bind(buffer, meta))
        traced.append(copy.id)
        traced.append(copy.version)
    return True


def make_results(
    engine: Engine,
    plan: Plan,
    session: VmSession,
    inputs: Sequence[Any],
    outputs: Sequence[int],
    released: int,
    arguments: list[Any],
    traced: list[int],
    made: list[Any],
) -> bool:
    """New tensors with memory: that of an input whose last use this is, else fresh."""
    lane = plan.lane
    device = lane.device
    metas = plan.outputs
    if len(outputs) != len(metas) or outputs[0] <= session.newest or (len(outputs) > 1 and not rising(outputs)):
        return False
    heir = take_over(plan, session, inputs, released) if released and plan.forward else None
    for meta in metas:
        if heir is not None:
            buffer, heir.buffer = heir.buffer, None
        else:
            buffer = device.allocate(meta.nbytes)
            if buffer is None:
                for _, copy in made:
                    lane.drop(copy)
                return False
        engine.copies += 1
        copy = Copy(engine.copies, lane, meta.nbytes, 1)
        copy.buffer = buffer
        lane.planned += meta.nbytes
        made.append((meta, copy))
        arguments.append(buffer.array if buffer.meta is meta else device.bind(buffer, meta))
        traced.append(copy.id)
        traced.append(1)
    return True


def take_over(plan: Plan, session: VmSession, inputs: Sequence[Any], released: int) -> Copy | None:
    """The copy of an input that dies with this instruction and that nobody else shares."""
    for position in plan.forward:
        if released >> position & 1:
            tensor = session.tensors[inputs[position]]
            storage = tensor.storage
            if tensor.holders == 1 and storage.sharers == 1 and tensor.strides is None:
                copy = storage.copies[plan.lane]
                if not copy.uses and copy.buffer is not None and copy.buffer.nbytes == plan.outputs[0].nbytes:
                    return copy
    return None


def finish(
    engine: Engine,
    plan: Plan,
    session: VmSession,
    message: Sequence[Any],
    arguments: list[Any],
    traced: list[int],
    made: list[tuple[Meta, Copy]],
) -> bool:
    """Run the kernel, define the results, keep the record, let go of what was released with it."""
    _, number, inputs, outputs, released, location = message
    lane = plan.lane
    clock = engine.clock
    engine.ids = id_ = engine.ids + 1
    started = clock()
    failure = None
    try:
        plan.kernel(*arguments)
    except BaseException as error:  # noqa: B036 - a kernel may raise anything; its owner is told
        failure = error
    tick = engine.tick + 1
    engine.tick = tick + 1
    engine.retired += 1
    if made:
        tensors = session.tensors
        for out, (meta, copy) in zip(outputs, made, strict=True):
            tensors[out] = Tensor(meta, Storage(meta.nbytes, lane, copy), lane)
        session.newest = outputs[-1]
    if failure is not None:
        keep_failure(engine, plan, session, message, id_, failure, started)
    else:
        ring = engine.ring
        if ring.enabled:
            ring.total += 1
            ring.append(
                (
                    id_,
                    session.id,
                    plan.label,
                    lane.name,
                    plan.kinds,
                    tuple(traced),
                    tick,
                    engine.now,
                    started,
                    clock(),
                    location,
                )
            )
    if released:
        engine.admission.release_operands(session, inputs, outputs, released, number)
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
    instruction = Instruction(id_, session, Opcode.CALL, plan.label, plan.lane, location)
    instruction.plan = plan
    read = [session.tensors[v] for v, scalar in zip(inputs, plan.scalars, strict=True) if not scalar]
    instruction.reads = tuple({t.storage.copies[plan.lane]: None for t in read})
    instruction.writes = tuple({session.tensors[v].storage.copies[plan.lane]: None for v in outputs})
    instruction.versions = tuple([copy.version for copy in instruction.reads + instruction.writes])
    instruction.admitted = engine.tick - 1
    instruction.received = instruction.ready = instruction.dispatched = engine.now
    instruction.started, instruction.finished = started, engine.clock()
    engine.fail_immediately(instruction, failure)


def rising(ids: Sequence[int]) -> bool:
    """Each id is greater than the one before."""
    return all(a < b for a, b in itertools.pairwise(ids))
