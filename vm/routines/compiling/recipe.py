"""Compiling a segment: the memory of each value, and the calls of kernels with their arguments.

A value lies in the memory of an operand (a tensor from outside, or a result), or at an offset in the segment's *arena*,
one block of memory for all values that are used only inside. Offsets are planned by liveness: other values reuse a
value's bytes after its last use. A view lies in the memory of its base. An elementwise op overwrites an operand whose
last use is this op, as it does when the program runs op by op.

The kernels are those of the ops' plans, so a segment computes the same bits as its ops one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ....interpreter.programs.facts import made_by
from ....interpreter.programs.fusion import Fusion
from ....interpreter.programs.passes.table import IN_PLACE, MEMORY_PLAN, SEGMENT_PASSES
from ....interpreter.programs.program import Program
from ....interpreter.schema.opdef import UNCOUNTED_BYTES, BoundKernel
from ....interpreter.types.meta import Meta
from ...model.plan import Plan
from .arena import ALIGNMENT, Arena
from .layouts import LeavingView, layouts_of, leaving_views
from .liveness import dependences, last_uses, outside_of, overwritten_by
from .segments import Piece

ARENA: Final = -1  # as a slot


class BufferSlice(NamedTuple):
    """The memory of a value: an offset in the memory of the operand in a slot, or in the arena.

    `strides` is None for a packed value. `whole`: the value is the operand's array itself, whatever its layout.
    """

    slot: int
    offset: int
    strides: tuple[int, ...] | None
    meta: Meta
    whole: bool = False


class KernelStep(NamedTuple):
    """A kernel and its arguments: buffer slices and numbers' slots (n < 0: slot ~n), the results' slices last.

    `results`: the values that the call makes. `reads`: for each result, the values on which it depends.
    """

    step: int
    plan: Plan
    kernel: BoundKernel
    arguments: tuple[BufferSlice | int, ...]
    reads: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]
    work: int


SliceOrNumber = TypeVar("SliceOrNumber", BufferSlice, BufferSlice | int)


class Recipe(NamedTuple):
    """A compiled segment.

    The operands come in the order of `reads`, `written`, `made`: variables that the segment only reads, variables that
    it writes, and new ones that live beyond it. `firsts`: the first value of each read and written variable; `finals`:
    the last value of each written and made one. `packed`: slots of operands that have to be packed, since the segment
    takes views of them. `bases`: the base of each view. `buffer_slices`: the memory of each value. `views`: those
    that are used beyond the segment; `passing`: the variables that are made only as roots of such views. `dying`:
    operands that are inner values of the program, and have their last use here. `parts`: the number of values with
    memory of their own in the arena, and `unshared`: the bytes of these; `forwarded`: the number of values that
    overwrite an operand.
    """

    steps: Piece
    reads: tuple[int, ...]
    written: tuple[int, ...]
    made: tuple[int, ...]
    firsts: tuple[int, ...]
    finals: tuple[int, ...]
    packed: tuple[int, ...]
    calls: tuple[KernelStep, ...]
    bases: dict[int, int]
    buffer_slices: dict[int, BufferSlice]
    fusions: tuple[Fusion, ...]
    views: tuple[LeavingView, ...]
    passing: tuple[int, ...]
    dying: tuple[int, ...]
    arena: int
    scratch: int
    work: int
    largest: int
    parts: int
    forwarded: int
    unshared: int


def compile_segment(
    program: Program,
    steps: Piece,
    plans: Sequence[Plan],
    fusions: Sequence[Fusion] = (),
    passes: frozenset[str] = SEGMENT_PASSES,
) -> Recipe | None:
    """The recipe of a segment; None if its values cannot be laid out, so that the segment has to run op by op.

    `plans`: of the ops, in order. `fusions`: all fusions of the program. `passes`: the names of the allowed passes.
    """
    inside = [fusion for fusion in fusions if fusion.steps[0] in steps and fusion.steps[-1] in steps]
    return Compiler(program, steps, plans, inside, passes).compile()


class Compiler:
    """Lays out one segment."""

    def __init__(
        self,
        program: Program,
        steps: Piece,
        plans: Sequence[Plan],
        fusions: Sequence[Fusion],
        passes: frozenset[str] = SEGMENT_PASSES,
    ) -> None:
        self.forwards = IN_PLACE in passes
        self.forwarded = 0
        self.program = program
        self.steps = steps
        self.plans = plans
        self.fusions_at = {fusion.steps[-1]: fusion for fusion in fusions}
        # A step of a fusion -> the fusion's last step, at which the fusion runs.
        self.runs_at = {position: fusion.steps[-1] for fusion in fusions for position in fusion.steps}
        self.uses = last_uses(program, steps, self.runs_at)
        self.layouts = layouts_of(program, steps, plans)
        self.reads, self.written, self.made, self.entering = outside_of(program, steps, self.layouts)
        slots = (*self.reads, *self.written, *self.made)
        self.slots = {variable: slot for slot, variable in enumerate(slots)}
        self.buffer_slices: dict[int, BufferSlice] = {}
        self.bases: dict[int, int] = {}
        self.packed: set[int] = set()
        alignment = plans[0].device.backend.alignment if plans else ALIGNMENT
        self.arena = Arena(shares=MEMORY_PLAN in passes, alignment=alignment)
        self.scratch = 0
        self.held: dict[tuple[int, int], list[int]] = {}  # (slot, address of the part of memory) -> values in it

    def compile(self) -> Recipe | None:
        calls: list[KernelStep] = []
        for position, plan in zip(self.steps, self.plans, strict=True):
            self.arena.now = position
            fusion = self.fusions_at.get(position)
            found = self.fusion(fusion, plan) if fusion is not None else self.step(position, plan)
            if found is None:
                return None
            calls += found
        self.arena.plan()
        variables = self.program.variables
        inside = self.program.steps[self.steps.start : self.steps.stop]
        finals = {variables[value]: value for step in inside for value in made_by(step)}
        return Recipe(
            self.steps,
            self.reads,
            self.written,
            self.made,
            tuple(self.entering[variable] for variable in (*self.reads, *self.written)),
            tuple(finals[variable] for variable in (*self.written, *self.made)),
            tuple(sorted(self.packed)),
            tuple([call._replace(arguments=tuple(map(self.planned, call.arguments))) for call in calls]),
            self.bases,
            {value: self.planned(buffer_slice) for value, buffer_slice in self.buffer_slices.items()},
            tuple(self.fusions_at.values()),
            tuple(leaving_views(self.program, self.steps, self.layouts)),
            tuple(v for v in self.made if self.program.last_use[finals[v]] < self.steps.stop),
            self.dying(),
            self.arena.size,
            max([self.scratch, *(plan.scratch for plan in self.plans)]),
            sum(plan.work for plan in self.plans),
            max((plan.work for plan in self.plans), default=0),
            self.arena.parts,
            self.forwarded,
            self.arena.unshared,
        )

    def step(self, position: int, plan: Plan) -> list[KernelStep] | None:
        """Lay out the results of a step, and return its calls: none for a view. None if no layout is possible."""
        step = self.program.steps[position]
        if position in self.runs_at:  # the step runs with a later one
            return []
        if step.first in self.layouts:
            self.lay_view(step.first, step.operands[0])
            return []
        reads = tuple([operand for operand in step.operands if operand >= 0])
        inputs = [operand if operand < 0 else self.slice_of(operand) for operand in step.operands]
        if step.into is None:
            made = tuple(made_by(step))
            outputs = [self.new_slice(value, position, plan, reads) for value in made]
            kernel = plan.kernel if len(made) == 1 else reporting(plan.kernel)
            return [KernelStep(position, plan, kernel, (*inputs, *outputs), (reads,) * len(made), made, plan.work)]
        target = step.into[0]
        old = self.slice_of(target)
        if target not in self.bases and not self.is_shared(target, position):
            self.enter(step.first, old)
            return [KernelStep(position, plan, plan.kernel, (*inputs, old), (reads,), (step.first,), plan.work)]
        new = self.own_slice(step.first)
        if new is None:
            return None
        call = KernelStep(position, plan, plan.kernel, (*inputs, new), (reads,), (step.first,), plan.work)
        if not (plan.op.writes_part and step.operands[0] == target):
            return [call]
        filled = call._replace(kernel=fill, arguments=(old, new), reads=((target,),))
        return [filled, call._replace(arguments=(new, *inputs[1:], new))]

    def fusion(self, fusion: Fusion, plan: Plan) -> list[KernelStep] | None:
        """Lay out the results of a fusion, and return its call. None if a result would overwrite a value in use."""
        position = fusion.steps[-1]
        inputs = [operand if operand < 0 else self.slice_of(operand) for operand in fusion.inputs]
        outputs = []
        for value in fusion.outputs:
            before = overwritten_by(self.program, fusion, value)
            if before is None:
                outputs.append(self.fresh_slice(value))
                continue
            old = self.slice_of(before)
            if before in self.bases or self.is_shared(before, position):
                return None
            self.enter(value, old)
            outputs.append(old)
        work = sum(self.plans[n - self.steps.start].work for n in fusion.steps)
        kernel = plan.device.backend.fuse(self.program, fusion, work)
        if kernel.scratch > UNCOUNTED_BYTES:
            self.scratch = max(self.scratch, kernel.scratch)
        reads = dependences(self.program, fusion)
        return [KernelStep(position, plan, kernel, (*inputs, *outputs), reads, fusion.outputs, work)]

    def dying(self) -> tuple[int, ...]:
        """The operands from outside that have their last use in the segment."""
        dead = {variable for position in self.steps for variable in self.program.last_uses[position]}
        return tuple(variable for variable in (*self.reads, *self.written) if variable in dead)

    # -- buffer slices -------------------------------------------------------------------------------------------------

    def planned(self, buffer_slice: SliceOrNumber) -> SliceOrNumber:
        """A buffer slice with its planned offset in the arena instead of its address."""
        if isinstance(buffer_slice, int) or buffer_slice.slot != ARENA:
            return buffer_slice
        return buffer_slice._replace(offset=self.arena.offset_of(buffer_slice.offset))

    def slice_of(self, value: int) -> BufferSlice:
        """The memory of a value; for a value from outside, that of its operand."""
        buffer_slice = self.buffer_slices.get(value)
        if buffer_slice is None:
            buffer_slice = BufferSlice(self.slots[self.program.variables[value]], 0, None, self.meta(value), whole=True)
            self.enter(value, buffer_slice)
        return buffer_slice

    def meta(self, value: int) -> Meta:
        return known_meta(self.program, value)

    def enter(self, value: int, buffer_slice: BufferSlice) -> None:
        self.buffer_slices[value] = buffer_slice
        part = self.arena.part_of(buffer_slice.offset).address if buffer_slice.slot == ARENA else 0
        self.held.setdefault((buffer_slice.slot, part), []).append(value)
        if buffer_slice.slot == ARENA:
            self.arena.keep(part, self.uses.get(value, -1))

    def lay_view(self, value: int, base: int) -> None:
        """Place a view in the memory of its root."""
        root, offset, strides = self.layouts[value]
        under = self.slice_of(root)
        if under.whole:
            self.packed.add(under.slot)
        self.enter(value, BufferSlice(under.slot, under.offset + offset, strides, self.meta(value)))
        self.bases[value] = base

    def new_slice(self, value: int, position: int, plan: Plan, reads: Sequence[int]) -> BufferSlice:
        """The buffer slice of a new value: memory of a result, of a dying operand, or a new part of the arena."""
        meta = self.meta(value)
        if value in self.slots:
            return self.fresh_slice(value)
        for index in plan.donatable_inputs if self.forwards else ():
            operand = self.program.steps[position].operands[index]
            under = self.slice_of(operand)
            alone = under.slot == ARENA and under.strides is None and under.meta.nbytes == meta.nbytes
            dies = self.uses[operand] == position and reads.count(operand) == 1
            if alone and dies and not self.is_shared(operand, position):
                buffer_slice = BufferSlice(ARENA, under.offset, None, meta)
                self.enter(value, buffer_slice)
                self.forwarded += 1
                return buffer_slice
        return self.fresh_slice(value)

    def fresh_slice(self, value: int) -> BufferSlice:
        """A buffer slice that contains no other value: the memory of a result, or a new part of the arena."""
        meta, slot = self.meta(value), self.slots.get(self.program.variables[value])
        if slot is None:
            buffer_slice = BufferSlice(ARENA, self.arena.allocate(meta.nbytes), None, meta)
        else:
            buffer_slice = BufferSlice(slot, 0, None, meta, whole=True)
        self.enter(value, buffer_slice)
        return buffer_slice

    def own_slice(self, value: int) -> BufferSlice | None:
        """A buffer slice of its own for a variable that has shared memory; None if the variable cannot move."""
        slot = self.slots.get(self.program.variables[value])
        if slot is not None and ((slot, 0) in self.held or slot < len(self.reads) + len(self.written)):
            return None
        return self.fresh_slice(value)

    def is_shared(self, value: int, position: int) -> bool:
        """Whether the value's memory contains another value that this step or a later one uses."""
        buffer_slice = self.buffer_slices[value]
        part = self.arena.part_of(buffer_slice.offset).address if buffer_slice.slot == ARENA else 0
        held, uses = self.held[(buffer_slice.slot, part)], self.uses
        held[:] = [other for other in held if uses.get(other, -1) >= position]  # drops dead values
        return any(other != value for other in held)


def known_meta(program: Program, value: int) -> Meta:
    """The meta of a value in a segment; such metas are known."""
    meta = program.metas[value]
    if meta is None:
        raise AssertionError("the values of a segment have known metas")
    return meta


def fill(old: Any, new: Any) -> None:
    """Copy a variable to memory of its own, before a part of it is written."""
    new[...] = old


class ResultsFailed(Exception):  # noqa: N818 - named after the event
    """Some results of a kernel failed, others did not. `failures`: the error of each result, or None."""

    def __init__(self, failures: Sequence[BaseException | None]) -> None:
        super().__init__()
        self.failures = failures


def reporting(kernel: BoundKernel) -> BoundKernel:
    """Wrap a kernel with several results: raise ResultsFailed if the kernel returns errors for some of them."""

    def run(*arrays: Any) -> None:
        found = kernel(*arrays)
        if type(found) is list or type(found) is tuple:
            failures = [each if isinstance(each, BaseException) else None for each in found]
            if any(each is not None for each in failures):
                raise ResultsFailed(failures)

    return run
