"""Segments of routines: cutting and compiling them, and admitting a run of one as a RunRoutine instruction.

A run whose operands, memory or quotas do not fit the compiled form is turned away; its steps are then admitted op by
op.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from ...interpreter.errors import MetadataError, QuotaError
from ...interpreter.programs.fusion import Fusion, FusionPolicy, finding_fusions
from ...interpreter.programs.passes.table import FUSION, TRANSFERS
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import Meta, Scalar
from ..memory.overwriting import may_overwrite
from ..model.charges import check_bytes
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, InstructionEnd
from ..model.linked import SessionProgram
from ..model.plan import Plan
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, VmTensor
from ..placement.residency import Residency
from ..placement.views import share
from ..routines.compiling.compiled import Compiled, CompiledPrograms
from ..routines.compiling.inside import segment_record
from ..routines.compiling.passes import Improved, ImprovedPrograms, crowds, lacks
from ..routines.compiling.recipe import Recipe, compile_segment
from ..routines.compiling.segments import (
    MAX_SEGMENT_STEPS,
    MAX_SEGMENT_WORK,
    Piece,
    cutting,
    is_view,
    why_outside,
    work_of_time,
)
from ..routines.op_by_op.run import RunIds
from ..routines.running.instruction import RunInstruction
from ..routines.running.replay import Stamps
from ..routines.running.segment import CompiledSegment
from ..routines.running.segment_plan import SegmentPlan
from ..scheduler.scheduler import Scheduler
from ..tracing.ring import RecordRing
from .lookup import define, enter, note_maker
from .quotas import check_results, check_targets, check_tensors
from .runs_at_once import RunsAtOnce

UNBOUNDED = 1 << 60
PREPARATION_FRACTION = 4  # cutting and searching fusions takes a quarter of the time of compiling, per step

FindFusions: TypeAlias = Callable[[Program, Sequence[FusionPolicy | None]], Iterable[list[Fusion]]]
Compile: TypeAlias = Callable[[Program, Piece, Sequence[Plan], Sequence[Fusion], frozenset[str]], Recipe | None]


class Segments:
    """Compiles the segments of linked programs, and admits their runs."""

    def __init__(self, scheduler: Scheduler, residency: Residency) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.at_once = RunsAtOnce(scheduler, residency)
        self.details = scheduler.ring.details
        self.steps_left = UNBOUNDED  # steps that may still be compiled in this group
        self.after_passes: Callable[[Program, frozenset[str]], Improved] = ImprovedPrograms().of
        self.shared = CompiledPrograms()
        self.compile: Compile = compile_segment
        self.find_fusions: FindFusions = finding_fusions

    def pieces(self, session: VmSession, routine: SessionProgram) -> Sequence[Piece]:
        """The pieces of a routine; a single one, for running op by op, while the signature of a step is refused."""
        if routine.refused:
            return (range(len(routine.program.steps)),)
        if routine.pieces is None:
            for _ in self.cut(session, routine):
                pass
        return routine.pieces or ()

    def may_prepare(self, routine: SessionProgram) -> bool:
        """Whether the routine is cut into pieces, or may be cut now."""
        return routine.pieces is not None or self.may_compile(len(routine.program.steps) // PREPARATION_FRACTION)

    def may_compile(self, steps: int) -> bool:
        """Whether so many steps may be compiled now; too many for any group are allowed as the first in a group."""
        if steps > self.steps_left and self.steps_left < MAX_SEGMENT_STEPS:
            return False
        self.steps_left -= steps
        return True

    def prepare(self, session: VmSession, routine: SessionProgram) -> Iterator[None]:
        """Find the fusions of a routine and cut it into pieces, unless done before, one slice at a time."""
        if routine.refused:
            return
        if routine.fusions is None:
            yield from self.fuse(routine)
        if routine.pieces is None:
            yield from self.cut(session, routine)

    def cut(self, session: VmSession, routine: SessionProgram) -> Iterator[None]:
        """Cut a routine into pieces, one slice at a time."""
        all_pieces: list[Piece] = []
        work, fusions = partial(self.work, session, routine), self.fusions(routine)
        for pieces in cutting(routine.program, work, fusions, routine.devices):
            all_pieces += pieces
            yield
        routine.pieces = all_pieces
        if routine.compiled.pieces is None and None not in routine.templates:
            routine.compiled.pieces = routine.pieces

    def adopt(self, session: VmSession, routine: SessionProgram, patience: int) -> None:
        """Apply the passes, and share the parts that any session has compiled for the same program.

        If all parts are compiled already, even the first run need not be op by op.
        """
        self.apply_passes(session, routine)
        if routine.improved is not None:
            self.adopt(session, routine.improved, patience)
        routine.compiled = compiled = self.shared.of(routine.program, routine.devices, routine.passes)
        routine.pieces, routine.fusions = compiled.pieces, compiled.fusions
        if compiled.whole() and routine.improved is None:
            routine.runs = patience

    def apply_passes(self, session: VmSession, routine: SessionProgram) -> None:
        """Apply the passes on programs, unless a step may fail on its device: its error must name its own line."""
        program, backends = routine.program, [self.scheduler.devices[name].backend for name in routine.devices]
        if session.strict or lacks(program, [backend.missing for backend in backends]):
            return
        crowded = crowds(program, [backend.limit for backend in backends])
        improved = self.after_passes(program, routine.passes - {TRANSFERS} if crowded else routine.passes)
        routine.applied = improved.applied
        if improved.program is not None:
            routine.improved = routine.after(improved.program)

    def work(self, session: VmSession, routine: SessionProgram, position: int) -> int:
        """The work of a step that may run inside a segment; -1 for any other step."""
        plan = plan_at(session, routine, position)
        if plan is None or why_apart(plan):
            return -1
        return plan.work + work_of_time(plan.device.backend.time_of(plan.work))

    def segment(self, session: VmSession, routine: SessionProgram, piece: Piece) -> CompiledSegment | None:
        """The compiled segment of a piece; None if it can only run op by op, or cannot be compiled now."""
        compiled: CompiledSegment | None = routine.segments.get(piece.start)
        if compiled is None and piece.start not in routine.segments and self.may_compile(len(piece)):
            program = routine.program
            recipe = self.recipe(session, routine, piece)
            if recipe is not None:
                self.trace_segment(session, routine, recipe)
                device = self.scheduler.devices[routine.devices[program.steps[piece.start].device]]
                compiled = CompiledSegment(program, recipe, SegmentPlan(routine, recipe, device, session.id))
            routine.segments[piece.start] = compiled
        return compiled

    def recipe(self, session: VmSession, routine: SessionProgram, piece: Piece) -> Recipe | None:
        """The recipe of a piece, which all sessions share; None if the piece can only run op by op."""
        compiled: Compiled = routine.compiled
        shared = compiled.pieces is routine.pieces  # otherwise the shared recipes may be for other pieces
        if shared and piece.start in compiled.recipes:
            return compiled.recipes[piece.start]
        plans = [plan_at(session, routine, position) for position in piece]
        usable = [plan for plan in plans if plan is not None]
        if len(usable) < len(plans):
            return None
        recipe = self.compile(routine.program, piece, usable, self.fusions(routine), routine.passes)
        if shared:
            compiled.recipes[piece.start] = recipe
        return recipe

    def trace_segment(self, session: VmSession, routine: SessionProgram, recipe: Recipe) -> None:
        """Add the compiled segment to the trace."""
        ring = self.scheduler.ring
        if ring.enabled:
            segment = segment_record(routine.program, recipe)
            ring.routines.compiled(session.id, routine, segment, self.scheduler.tick + 1)

    def fusions(self, routine: SessionProgram) -> Sequence[Fusion]:
        """The fusions of a routine's program."""
        if routine.fusions is None:
            for _ in self.fuse(routine):
                pass
        return routine.fusions or ()

    def fuse(self, routine: SessionProgram) -> Iterator[None]:
        """Find the fusions of a routine's program, one slice at a time."""
        all_fusions: list[Fusion] = []
        terms = [self.scheduler.devices[name].backend.fusion_terms() for name in routine.devices]
        for fusions in self.find_fusions(routine.program, terms) if FUSION in routine.passes else ():
            all_fusions += fusions
            yield
        routine.fusions = routine.compiled.fusions = all_fusions

    def admit(
        self,
        session: VmSession,
        routine: SessionProgram,
        piece: Piece,
        ids: RunIds,
        numbers: Sequence[Scalar],
        location: int,
    ) -> bool:
        """Admit a run of a piece; False if it has to run op by op: then only other values may have been moved.

        `ids`: the ids of the program's variables; the results are defined under them.
        """
        segment = self.segment(session, routine, piece)
        if segment is None:
            return False
        every, stamps = session.detail or self.details.every, None
        if every and segment.is_due(every):
            stamps = Stamps(self.scheduler.clock)
        if self.at_once.run(session, segment, ids, numbers, location, stamps):
            self.share_views(session, segment, ids)
            return True
        program, recipe, device = routine.program, segment.recipe, segment.plan.device
        reads = [session.tensors.get(ids[variable]) for variable in recipe.reads]
        written = [session.tensors.get(ids[variable]) for variable in recipe.written]
        metas = [program.metas[variable] for variable in (*recipe.reads, *recipe.written)]
        tensors = fitting_operands(recipe, [*reads, *written], metas)
        if tensors is None:
            return segment.turn_away("an operand was not as it was compiled for")
        if not self.has_room(session, device, segment, tensors, location):
            return segment.turn_away("memory or a quota was short")
        if any(has_failed(tensor) for tensor in tensors[len(reads) :]):
            return segment.turn_away("what it writes had failed")
        absent = [tensor for tensor in tensors if device not in tensor.storage.copies]
        if absent and not self.may_bring(session, device, absent):
            return segment.turn_away("an operand could not be brought")
        bound = self.scheduler.bound
        bound_before = len(bound)
        try:
            self.issue(session, segment, tensors, ids, numbers, location, stamps)
        except QuotaError:  # an operand's stopover exceeds a share: the step that needs the operand reports it
            del bound[bound_before:]
            return segment.turn_away("memory or a quota was short")
        self.share_views(session, segment, ids)
        return True

    def share_views(self, session: VmSession, segment: CompiledSegment, ids: RunIds) -> None:
        """Define the views among the segment's results, and release the bases that only the views need."""
        recipe = segment.recipe
        for variable, base, offset, strides, meta in recipe.views:
            view = share(session.tensors[ids[base]], meta, offset, strides, segment.plan.device)
            enter(session, ids[variable], view)
        for variable in recipe.passing:
            self.residency.releasing.drop_holder(session.tensors.pop(ids[variable]))

    def may_bring(self, session: VmSession, device: DeviceState, absent: Sequence[VmTensor]) -> bool:
        """Whether absent operands may be brought to the device, and a route exists."""
        try:
            for tensor in absent:
                self.residency.check_route(tensor, device)
        except MetadataError:
            return False
        return not session.strict

    def has_room(
        self,
        session: VmSession,
        device: DeviceState,
        segment: CompiledSegment,
        tensors: Sequence[VmTensor],
        location: int,
    ) -> bool:
        """Whether arena, results and operands fit into the device's planned memory, and into the session's quotas.

        A device with a tier below evicts other values to make room. A device without one does not even drop replicas:
        op by op, the run needs less memory at a time.
        """
        recipe = segment.recipe
        made, written = segment.plan.outputs[len(recipe.written) :], tensors[len(recipe.reads) :]
        need = recipe.arena + recipe.scratch + sum(meta.nbytes for meta in made if meta is not None)
        if device.lost is not None or device.backend.lost is not None:
            return False
        to_come = need + bytes_to_bring(self.residency, session, device, tensors, written)
        if device.planned + to_come > device.backend.limit and device.below is None:
            return False
        try:
            check_results(session, made, 0)
            check_tensors(session, len(made) + len(recipe.views))
            check_bytes(session, need)
            check_targets(session, written, device, self.scheduler.snapshots)
        except QuotaError:
            return False
        present = {tensor.storage.copies[device] for tensor in tensors if device in tensor.storage.copies}
        cause = Cause(session, location)
        if not self.residency.tiers.make_share_of(device, present, session.account, cause, to_come):
            return False
        if device.planned + to_come <= device.backend.limit:
            return True
        if sum(copy.nbytes for copy in present) + to_come > device.backend.limit:
            return False
        return self.residency.tiers.make_room(device, present, cause, to_come)

    def issue(
        self,
        session: VmSession,
        segment: CompiledSegment,
        tensors: Sequence[VmTensor],
        ids: RunIds,
        numbers: Sequence[Scalar],
        location: int,
        stamps: Stamps | None = None,
    ) -> None:
        """Make and admit the instruction. `stamps`: to record the times of its calls, if any."""
        residency, scheduler, recipe, plan = self.residency, self.scheduler, segment.recipe, segment.plan
        device, count = plan.device, len(recipe.reads)
        cause = Cause(session, location)
        reads = residency.operands(tensors[:count], device, cause)
        outputs = [residency.target(tensor, device, True, cause) for tensor in tensors[count:]]
        for tensor in tensors[count:]:  # `target` may have given a tensor a new storage
            note_maker(tensor.storage, plan.maker, location, scheduler.now)
        updated = [binding.copy for binding in outputs]
        scheduler.ids += 1
        instruction = RunInstruction(scheduler.ids, session, device, location, segment, numbers)
        instruction.received = scheduler.now
        if stamps is not None:
            instruction.stamps, instruction.on_end = stamps, StampsEnd(scheduler.ring)
        for variable in recipe.made:
            tensor, copy = residency.new_tensor(segment.program.metas[variable], device)
            define(session, ids[variable], tensor)
            note_maker(tensor.storage, plan.maker, location, scheduler.now)
            outputs.append(Binding(copy, tensor, 0, None))
        arena: VmTensor | None = None
        if recipe.arena:
            arena, copy = residency.new_tensor(Meta.of((recipe.arena,), "uint8"), device)
            outputs.append(Binding(copy, arena, 0, None))
        instruction.inputs, instruction.outputs = tuple(reads), tuple(outputs)
        instruction.reads = tuple(dict.fromkeys([binding.copy for binding in reads] + updated))
        instruction.writes = tuple([binding.copy for binding in outputs])
        instruction.on_control = device.inline() and recipe.largest <= device.inline_work
        residency.tiers.admit(instruction)
        if arena is not None:
            residency.releasing.unshare(arena)
        if residency.releasing.orphans:
            residency.releasing.drop_orphans()


class StampsEnd(InstructionEnd):
    """Keeps the times of a timed run's calls, if the run has made all calls."""

    __slots__ = ("ring",)

    def __init__(self, ring: RecordRing) -> None:
        self.ring = ring

    def retired(self, done: Instruction) -> None:
        if isinstance(done, RunInstruction) and done.stamps is not None:
            times = done.stamps.times
            if len(times) == 2 * len(done.segment.recipe.calls):
                self.ring.keep_stamps(done.id, times)


def fitting_operands(recipe: Recipe, found: Sequence[VmTensor | None], metas: Sequence[Any]) -> list[VmTensor] | None:
    """The operands; None if one is missing or has another meta, is not packed but must be, or is a target twice."""
    tensors = [tensor for tensor in found if tensor is not None]
    if len(tensors) < len(found) or any(t.meta is not meta for t, meta in zip(tensors, metas, strict=True)):
        return None
    if any(slot < len(recipe.reads) and tensors[slot].strides is not None for slot in recipe.packed):
        return None
    if recipe.written:
        written = tensors[len(recipe.reads) :]
        others = {id(tensor) for tensor in tensors[: len(recipe.reads)]}
        own = {id(tensor) for tensor in written}
        if len(own) < len(written) or own & others:
            return None
    return tensors


def bytes_to_bring(
    residency: Residency,
    session: VmSession,
    device: DeviceState,
    tensors: Sequence[VmTensor],
    written: Collection[VmTensor],
) -> int:
    """The bytes of new copies on a device: of absent operands, and of targets that cannot be overwritten."""
    absent: list[VmTensor] = [tensor for tensor in tensors if device not in tensor.storage.copies]
    if absent:  # bringing an operand begins the session's moves, too
        absent += [moved for moved in session.moves if moved.home is device and device not in moved.storage.copies]
    missing: dict[Any, int] = {}
    for tensor in absent:
        nbytes, storage = residency.bytes_to_bring(tensor), tensor.storage
        missing[storage, None if nbytes == storage.nbytes else tensor.view_key()] = max(nbytes, 0)
    detached = [t.meta.nbytes for t in written if t.meta and not may_overwrite(t, t.storage.copies.get(device))]
    return sum(missing.values()) + sum(detached)


def has_failed(tensor: VmTensor) -> bool:
    """Whether the value is an error, or was one: such a tensor has no memory, so no part of it can be written."""
    storage = tensor.storage
    return any(
        copy.nbytes < storage.nbytes or (copy.writer is None and copy.poison is not None)
        for copy in storage.copies.values()
    )


def why_apart(plan: Plan) -> str:
    """The reason why an op is in no segment of its device; empty if it may be."""
    device = plan.device
    if not device.backend.segments:
        return f"{device.name} runs op by op"
    return "" if device.launches is None else plan.obstacle()


def why_alone(session: VmSession, routine: SessionProgram, position: int) -> str:
    """The reason why a step is a piece by itself, for reports."""
    program, plan = routine.program, plan_at(session, routine, position)
    reason = why_outside(program, position)
    if reason or plan is None:
        return reason or "its op was refused"
    if is_view(program, position):
        return why_apart(plan) or "a view, for which nothing is computed"
    long = plan.work > MAX_SEGMENT_WORK
    return why_apart(plan) or ("it takes long enough" if long else "no step next to it can join it")


def plan_at(session: VmSession, routine: SessionProgram, position: int) -> Plan | None:
    """The plan of a step; None if it has none yet."""
    template = routine.templates[position]
    plan = None if template is None else session.plans.get(template.signature)
    return plan if isinstance(plan, Plan) else None
