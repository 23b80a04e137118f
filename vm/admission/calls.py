"""Admission of a call of an op (CALL) that `inline` could not run: a view takes effect at once; any other op becomes an
instruction.

For an instruction, operands are checked against the signature, quotas are checked, transfers of the operands to the
device are planned, targets are made, and `Tiers.admit` makes room and admits it. All of this follows program order and
never waits. A refused call still has results: their handles are defined, poisoned with the error. In either case the
operands that the message releases are released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.schema.infer import InferCache, check_distinct
from ...interpreter.types.meta import OperandMeta
from ...interpreter.wire.messages import Call
from ..memory.overwriting import dies_with_call
from ..model.instruction import Instruction
from ..model.plan import Plan
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, Copy, Storage, VmTensor
from ..placement.residency import Residency
from ..placement.views import view_of
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .lookup import check_new, define, enter, label_of, note_maker, plan_of, refuse_cancelled, tensor_of
from .names import NameHandlers
from .quotas import bytes_written, check_results, check_targets, check_tensors
from .rejection import Rejection


class CallHandler:
    """The handler of CALL messages."""

    def __init__(
        self, scheduler: Scheduler, residency: Residency, infer: InferCache, names: NameHandlers, rejection: Rejection
    ) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.infer = infer
        self.names = names
        self.rejection = rejection

    def call(self, session: VmSession, message: Call) -> None:
        """Admit a call, and release the operands that the message releases, whether or not the call is refused."""
        number, inputs, outputs, released, location = message
        try:
            plan = plan_of(session, number)
            refuse_cancelled(session)
            if plan.certain and not plan.immediate:
                launch_from_now_on(session, number, plan)
            self.admit_call(session, plan, inputs, outputs, released, location)
        except TensordError as error:
            known = session.plans.get(number)
            metas, home = (known.outputs, known.device) if isinstance(known, Plan) else ((), None)
            self.rejection.reject(session, error, outputs, location, label_of(session, number), metas, home)
        if self.residency.releasing.orphans:
            self.residency.releasing.drop_orphans()
        if released:
            known = session.plans.get(number)
            plan_known = known if isinstance(known, Plan) else None
            self.names.release_operands(session, plan_known, inputs, outputs, released)

    def admit_call(
        self,
        session: VmSession,
        plan: Plan,
        inputs: Sequence[Any],
        outputs: Sequence[int],
        released: int,
        location: int,
    ) -> None:
        """Check the operands, plan transfers, and admit the instruction; raise if the call must be refused."""
        check_counts(plan, inputs, outputs)
        operands = [
            value if scalar else tensor_of(session, value) for value, scalar in zip(inputs, plan.scalars, strict=True)
        ]
        targets = [tensor_of(session, id_) for id_ in outputs] if plan.in_place else []
        if len(targets) > 1:
            check_distinct(plan.label, targets)
        pending = check_metas(plan, operands, targets)
        if not plan.in_place:
            check_new(session, outputs)
        # If the client did not know all metas, the machine may know them by now; this depends on timing, so such a call
        # always becomes an instruction.
        known_to_client = not plan.pending
        if plan.pending or (plan.in_place and None in plan.outputs):
            plan = self.resolve(plan, operands, targets)
        handles_gone = released and handles_released(plan, inputs, released)
        if known_to_client and self.take_view(session, plan, operands, outputs, handles_gone):
            return
        if plan.in_place:
            check_targets(session, targets, plan.device, self.scheduler.snapshots)
        else:
            check_results(session, plan.outputs, handles_gone)
        residency, device, cause = self.residency, plan.device, Cause(session, location)
        if device.backend.lost is not None:
            refuse_lost(device)
        bound = residency.operands(operands, device, cause)
        reused = donated_inputs(session, plan, inputs, released, self.scheduler.snapshots)
        if device.ceiling:
            self.scheduler.bound += [copy for target in targets if (copy := target.storage.copies.get(device))]
            need = bytes_made(session, plan, targets, self.scheduler.snapshots)
            need -= sum(copy.nbytes for copy in reused if copy.counted is session.account)
            residency.tiers.require_share(None, device, need, cause)
        instruction = self.scheduler.new_instruction(session, Opcode.CALL, plan.label, device, location)
        instruction.plan = plan
        instruction.kernel = plan.kernel
        instruction.inputs = tuple(bound)
        if pending:
            await_metas(instruction, targets)
        instruction.outputs = tuple(self.targets(session, plan, outputs, instruction))
        set_accesses(instruction)
        instruction.donated = reused
        self.residency.tiers.admit(instruction)

    def resolve(self, plan: Plan, operands: Sequence[Any], targets: Sequence[VmTensor]) -> Plan:
        """Resolve metas that were pending when the client called and are known now."""
        metas = tuple(v.meta if isinstance(v, VmTensor) else type(v) for v in operands)
        wanted = tuple(target.meta for target in targets) if plan.in_place else None
        if None in metas or (wanted is not None and None in wanted):
            return plan
        return plan.with_metas(operands, metas, self.infer, wanted)

    def take_view(
        self, session: VmSession, plan: Plan, operands: list[Any], outputs: Sequence[int], handles_gone: int
    ) -> bool:
        """Carry out a view op without an instruction; False if strides cannot express the view."""
        if plan.op.view is None or plan.in_place:
            return False
        check_tensors(session, 1 - handles_gone)
        view = view_of(plan, operands[0])
        if view is None:
            return False
        enter(session, outputs[0], view)
        return True

    def targets(
        self, session: VmSession, plan: Plan, outputs: Sequence[int], instruction: Instruction
    ) -> list[Binding]:
        """The targets of the results: new tensors, or the tensors given as `out=`."""
        residency, device = self.residency, plan.device
        beside = bytes_beside(plan) if self.scheduler.snapshots else 0
        bindings = []
        for id_, meta in zip(outputs, plan.outputs, strict=True):
            if plan.in_place:
                tensor = tensor_of(session, id_)
                partial = updates(plan, instruction, tensor)
                bindings.append(residency.target(tensor, device, partial, Cause(session, instruction.location), beside))
            else:
                tensor, copy = residency.new_tensor(meta, device)
                define(session, id_, tensor)
                bindings.append(Binding(copy, tensor, 0, None))
            note_maker(bindings[-1].tensor.storage, plan.maker, instruction.location, self.scheduler.now)
        if plan.in_place and updates(plan, instruction, bindings[0].tensor):  # a partial write reads its target
            instruction.inputs = (bindings[0], *instruction.inputs[1:])
        return bindings


def launch_from_now_on(session: VmSession, number: int, plan: Plan) -> None:
    """Let later calls be launched at admission, if their kernels are compiled and loaded by now."""
    launches = plan.device.launches
    if launches is not None and plan.key in launches.seen:
        plan.immediate = True
        session.immediate[number] = plan


def donated_inputs(
    session: VmSession, plan: Plan, inputs: Sequence[Any], released: int, snapshots: Mapping[Storage, int]
) -> tuple[Copy, ...]:
    """The input copies whose memory the result may take over at dispatch."""
    if not released or plan.in_place or not plan.donatable_inputs:
        return ()
    donated = []
    for position in plan.donatable_inputs:
        if released >> position & 1:
            tensor = session.tensors[inputs[position]]
            storage = tensor.storage
            copy = storage.copies.get(plan.device)
            if copy is not None and dies_with_call(tensor, snapshots.get(storage, 0)):
                donated.append(copy)
    return tuple(donated)


def handles_released(plan: Plan, inputs: Sequence[Any], released: int) -> int:
    """The number of the session's handles that a call releases."""
    bits = enumerate(zip(inputs, plan.scalars, strict=True))
    return len({id_ for position, (id_, scalar) in bits if released >> position & 1 and not scalar})


def bytes_made(session: VmSession, plan: Plan, targets: Sequence[VmTensor], snapshots: Mapping[Storage, int]) -> int:
    """The most bytes that the results add to the session's share of the device."""
    if not plan.in_place:
        return plan.max_bytes + sum(meta.nbytes for meta in plan.outputs if meta is not None)
    return sum(bytes_written(session, target, plan.device, snapshots) for target in targets)


def check_counts(plan: Plan, inputs: Sequence[Any], outputs: Sequence[int]) -> None:
    """Check that a call has as many operands and results as its signature."""
    given, wanted = (len(inputs), len(outputs)), (len(plan.metas), len(plan.outputs))
    if given != wanted:
        raise ProtocolError(f"{plan.label}: {given} operands and results, but its signature has {wanted}")


def check_metas(plan: Plan, operands: Sequence[Any], targets: Sequence[VmTensor]) -> bool:
    """Check a call's operands against its signature. Return whether metas are pending, to be checked once they are
    known."""
    metas = [(value.meta if isinstance(value, VmTensor) else type(value)) for value in operands]
    metas += [target.meta for target in targets]
    for meta, wanted in zip(metas, (*plan.metas, *plan.outputs), strict=False):
        if meta is not wanted and meta is not None and wanted is not None:
            raise ProtocolError(
                f"{plan.label}: an operand is {show_meta(meta)}, but the signature's {show_meta(wanted)}"
            )
    return None in metas


def show_meta(meta: OperandMeta) -> str:
    """The text of a meta or of a scalar's type in an error."""
    return meta.__name__ if isinstance(meta, type) else repr(meta)


def bytes_beside(plan: Plan) -> int:
    """The bytes that a call needs besides its operands and its first result."""
    return plan.scratch + plan.max_bytes + sum([meta.nbytes for meta in plan.outputs[1:] if meta is not None])


def updates(plan: Plan, instruction: Instruction, target: VmTensor) -> bool:
    """Whether the write keeps a part of the target's value; a write from another tensor replaces the whole value."""
    first = instruction.inputs[0] if plan.op.writes_part else None
    return type(first) is Binding and first.tensor is target


def set_accesses(instruction: Instruction) -> None:
    """Set the copies that the instruction reads and writes, each once, and their versions."""
    reads = {value.copy: None for value in instruction.inputs if type(value) is Binding}
    instruction.reads = tuple(reads)
    instruction.writes = tuple({binding.copy: None for binding in instruction.outputs})
    instruction.versions = tuple([c.version for c in instruction.reads] + [c.version for c in instruction.writes])
