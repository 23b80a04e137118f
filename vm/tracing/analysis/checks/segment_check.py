"""Checks a compiled segment against its program, without any knowledge of compilation.

An abstract machine makes the segment's calls. For each slot (an operand, or the arena), its memory lists the intact
values and the bytes that each occupies; a write removes every value that it overlaps. For each call, the machine
checks that

- the arguments are the values that the call's steps read, each intact in its buffer slice;
- a view has NumPy's layout, in memory that contains its base;
- the results go to valid buffer slices: to memory of their own, or exactly over an operand of an op that allows it;
- each result takes over the errors of exactly the values on which it depends.

At the end, each step has been computed once, operands have the values that the program leaves in them, and each view
that is needed after the segment is a view of an operand, not of the arena. The inside of a fusion's kernel is not
checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from .....interpreter.programs.program import NON_OP_STEPS, Program, Step
from .....interpreter.schema.opdef import find
from ...record import ARENA, FILL, FUSED, ArgumentRecord, BufferSliceRecord, CallRecord, SegmentRecord
from ..recorded.derived import width
from .views import layout_of_view

if TYPE_CHECKING:
    from .....interpreter.types.meta import Meta


class SlotValue(NamedTuple):
    """A value that lies intact in a slot, from byte `start` up to byte `stop`."""

    start: int
    stop: int
    value: int


def check_segment(program: Program, segment: SegmentRecord) -> list[str]:
    """The faults of a segment, in words; empty if it has none."""
    try:
        return list(_Machine(program, segment).problems())
    except (LookupError, AttributeError, TypeError, ValueError, MemoryError) as error:  # malformed
        return [f"it refers to something that its program does not have ({type(error).__name__}: {error})"]


class _Machine:
    def __init__(self, program: Program, segment: SegmentRecord) -> None:
        self.program = program
        self.segment = segment
        self.steps = range(segment.first, segment.last + 1)
        self.slots = {v: n for n, v in enumerate((*segment.reads, *segment.written, *segment.made))}
        self.memory: dict[int, list[SlotValue]] = {}
        self.makers = {value: n for n in self.steps for value in _made_by(program.steps[n])}
        self.readers: dict[int, set[int]] = {}
        for n, step in enumerate(program.steps):
            for value in (*step.operands, *(step.into or ())):
                self.readers.setdefault(value, set()).add(n)
        self.final = {variable: value for value, variable in enumerate(program.variables)}
        self.done: set[int] = set()
        self.called = {n for call in segment.calls if call.op != FILL for n in call.steps}
        self.entering = self._entering()
        for variable in (*segment.reads, *segment.written):
            value = self.entering[variable]
            self.memory[self.slots[variable]] = [SlotValue(0, self._meta(value).nbytes, value)]

    def _entering(self) -> dict[int, int]:
        """The value of each variable when the segment begins."""
        program = self.program
        found = {value: value for value in range(program.inputs)}
        for step in program.steps[: self.steps.start]:
            found |= {program.variables[value]: value for value in _made_by(step)}
        return found

    def _meta(self, value: int) -> Meta:
        meta = self.program.metas[value]
        if meta is None:
            raise KeyError(value)
        return meta

    def problems(self) -> Iterator[str]:
        """All faults, in the order of the calls."""
        for call in self.segment.calls:
            for problem in self._check_call(call):
                yield f"{self._title(call)}: {problem}"
        yield from self._check_end()

    def _title(self, call: CallRecord) -> str:
        if call.op == FUSED:
            return f"the fusion of steps {', '.join(map(str, call.steps))}"
        copy = "the copy before " if call.op == FILL else ""
        return f"{copy}step {call.steps[0]} {self.program.steps[call.steps[0]].op}"

    # -- calls -----------------------------------------------------------------------------------------------------

    def _check_call(self, call: CallRecord) -> Iterator[str]:
        yield from self._check_steps(call)
        yield from self._check_values(call)
        for argument in call.takes:
            yield from self._check_read(argument)
        for argument in call.gives:
            yield from self._check_meta(argument)
            yield from self._check_target(argument)
            yield from self._check_overwriting(call, argument)
        yield from self._check_errors(call)
        for value, buffer_slice in call.gives:
            if buffer_slice is not None:
                self._write(value, buffer_slice)
        if call.op != FILL:
            self.done.update(call.steps)

    def _check_steps(self, call: CallRecord) -> Iterator[str]:
        program = self.program
        for n in call.steps:
            if n not in self.steps:
                yield f"step {n} is not in this segment"
            elif n in self.done:
                yield f"step {n} is computed twice"
        if call.op not in (FUSED, FILL) and call.op != program.steps[call.steps[0]].op:
            yield f"its kernel is that of op {call.op}"
        if call.op == FUSED and not all(self._is_row_by_row(program.steps[n]) for n in call.steps):
            yield "not all of its steps are elementwise or row by row"

    def _is_row_by_row(self, step: Step) -> bool:
        """Whether a step is elementwise, or reduces the last axes of each row on its own."""
        op = find(step.op)
        if op.elementwise or op.rows is None:
            return op.elementwise
        return op.rows((self._meta(step.operands[0]),), dict(step.attributes)) > 0

    def _check_values(self, call: CallRecord) -> Iterator[str]:
        """Check that a call reads the values that its steps read, and makes the values that other steps need."""
        steps = [self.program.steps[n] for n in call.steps]
        takes, gives = [value for value, _ in call.takes], [value for value, _ in call.gives]
        if call.op == FILL:
            wanted: Sequence[int] = steps[0].into or ()
            if takes != list(wanted) or gives != takes:
                yield "it does not copy what the step writes"
        elif call.op == FUSED:
            inner = {value for step in steps for value in _made_by(step)}
            outside = {operand for step in steps for operand in step.operands} - inner
            if sorted(takes) != sorted(outside):
                yield f"it reads {_listed(takes)}, but its steps read {_listed(sorted(outside))}"
            needed = {value for value in inner if self._is_needed(value, frozenset(call.steps))}
            if sorted(gives) != sorted(needed):
                yield f"it makes {_listed(gives)}, but {_listed(sorted(needed))} are needed"
        else:
            if takes != list(steps[0].operands):
                yield f"it reads {_listed(takes)}, but the step reads {_listed(steps[0].operands)}"
            if gives != list(_made_by(steps[0])):
                yield f"it makes {_listed(gives)}, but the step makes {_listed(_made_by(steps[0]))}"

    def _is_needed(self, value: int, inside: frozenset[int]) -> bool:
        """Whether a value is needed by other steps than these, as a result, or by the user of an operand."""
        variable = self.program.variables[value]
        is_left = variable < self.program.inputs and value == self.final[variable]
        return is_left or value in self.program.results or not self.readers.get(value, inside) <= inside

    def _check_read(self, argument: ArgumentRecord) -> Iterator[str]:
        """Check that a value that the call reads is intact in its buffer slice."""
        yield from self._check_meta(argument)
        value, buffer_slice = argument
        if value < 0 or buffer_slice is None:
            return
        chains = dict(self._ways_to(value))
        for held in self.memory.get(buffer_slice.slot, ()):
            if held.value in chains and self._fits(held, chains[held.value], value, buffer_slice):
                return
        there = self._values_at(buffer_slice)
        what = f", which holds {_listed(there)}" if there else ", which holds nothing"
        via = f", a view of {_listed([*chains][1:])}," if len(chains) > 1 else ""
        yield f"it reads %{value}{via} {_where(buffer_slice)}{what}"

    def _check_meta(self, argument: ArgumentRecord) -> Iterator[str]:
        value, buffer_slice = argument
        if value < 0:
            if buffer_slice is not None or ~value >= len(self.program.numbers):
                yield f"${~value} is not a number of the program"
        elif buffer_slice is None:
            yield f"%{value} has no memory"
        elif (buffer_slice.shape, buffer_slice.dtype) != (self._meta(value).shape, str(self._meta(value).dtype)):
            yield f"%{value} is {self._meta(value)}, but is treated as {buffer_slice.dtype}{list(buffer_slice.shape)}"

    def _ways_to(self, value: int) -> Iterator[tuple[int, list[Step]]]:
        """The value itself, then each value that it is a view of (as far as no call makes it), each with the steps
        that lead from there to the value."""
        chain: list[Step] = []
        yield value, chain
        while value in self.makers and self.makers[value] not in self.called:
            step = self.program.steps[self.makers[value]]
            if step.into is not None or not _may_be_view(step):
                return
            chain = [step, *chain]
            value = step.operands[0]
            yield value, chain

    def _fits(self, held: SlotValue, chain: Sequence[Step], value: int, buffer_slice: BufferSliceRecord) -> bool:
        """Whether a value is in `buffer_slice`, given that `held` is intact: the value itself, or the base of which
        `chain` makes it a view."""
        if not chain:
            return buffer_slice.offset == held.start and _is_packed(buffer_slice)
        meta = self._meta(value)
        if meta.size == 0:
            return True
        layout = layout_of_view(self._meta(held.value), chain, meta)
        strides = buffer_slice.strides or _packed(buffer_slice)
        if layout is None or layout[0] + held.start != buffer_slice.offset:
            return False
        return all(n == 1 or s == t for n, s, t in zip(buffer_slice.shape, strides, layout[1], strict=True))

    def _values_at(self, buffer_slice: BufferSliceRecord) -> list[int]:
        start, stop = _extent(buffer_slice)
        return [
            held.value
            for held in self.memory.get(buffer_slice.slot, ())
            if _overlap(held.start, held.stop, start, stop)
        ]

    # -- writes ----------------------------------------------------------------------------------------------------

    def _check_target(self, argument: ArgumentRecord) -> Iterator[str]:
        """Check that a result may be written to its buffer slice."""
        value, buffer_slice = argument
        if buffer_slice is None:
            return
        start, stop = _extent(buffer_slice)
        if not _is_packed(buffer_slice):
            yield f"%{value} is written {_where(buffer_slice)} with strides"
        elif buffer_slice.slot == ARENA:
            if start < 0 or stop > self.segment.arena:
                yield f"%{value} is written {_where(buffer_slice)}, but the arena has {self.segment.arena} bytes"
        elif buffer_slice.slot != self.slots.get(self.program.variables[value]) or buffer_slice.offset:
            yield f"%{value} is written {_where(buffer_slice)}, which is not its memory"
        elif buffer_slice.slot < len(self.segment.reads):
            yield f"%{value} is written over an operand that is only read"

    def _check_overwriting(self, call: CallRecord, argument: ArgumentRecord) -> Iterator[str]:
        """Check that a result does not destroy a value that the call reads or makes, while it is still needed."""
        value, result = argument
        if result is None:
            return
        for other, output in call.gives:
            if output is not None and other != value and _share_bytes(result, output):
                yield f"%{value} and %{other} are written to the same memory"
        for other, operand in call.takes:
            if (
                operand is not None
                and _share_bytes(result, operand)
                and not self._may_lie_over(call, other, result, operand)
            ):
                yield f"%{value} is written over %{other} while %{other} is read"

    def _may_lie_over(
        self, call: CallRecord, other: int, result: BufferSliceRecord, operand: BufferSliceRecord
    ) -> bool:
        """Whether a result may lie exactly over the operand with the value `other`."""
        if call.op == FILL:
            return False
        steps = [self.program.steps[n] for n in call.steps]
        alike = (result.slot, result.offset, result.shape) == (operand.slot, operand.offset, operand.shape)
        if not alike or not _is_packed(operand) or width(result.dtype) != width(operand.dtype):
            return False
        targets = {target for step in steps for target in step.into or ()}
        return other in targets or all(find(step.op).elementwise for step in steps)

    def _write(self, value: int, buffer_slice: BufferSliceRecord) -> None:
        start, stop = _extent(buffer_slice)
        lying = self.memory.setdefault(buffer_slice.slot, [])
        lying[:] = [held for held in lying if not _overlap(held.start, held.stop, start, stop)]
        lying.append(SlotValue(start, stop, value))

    # -- errors, and the end -----------------------------------------------------------------------------------------

    def _check_errors(self, call: CallRecord) -> Iterator[str]:
        """Check that each result takes over the errors of exactly the values on which it depends."""
        if len(call.depends) != len(call.gives):
            yield "it does not say for each result which values' errors the result takes over"
            return
        needs: dict[int, set[int]] = {}
        for step in (self.program.steps[n] for n in call.steps):
            read = step.into or () if call.op == FILL else step.operands
            mine = {need for value in read if value >= 0 for need in needs.get(value, {value})}
            needs |= dict.fromkeys(read if call.op == FILL else _made_by(step), mine)
        for (value, _), said in zip(call.gives, call.depends, strict=True):
            if set(said) != needs.get(value, set()):
                needed = _listed(sorted(needs.get(value, ())))
                yield f"%{value} takes over the errors of {_listed(said)}, but depends on {needed}"

    def _check_end(self) -> Iterator[str]:
        program, segment = self.program, self.segment
        for n in self.steps:
            if n not in self.done and not _may_be_view(program.steps[n]):
                yield f"step {n} {program.steps[n].op} is never computed"
        variables = program.variables
        newest = {variables[value]: value for n in self.steps for value in _made_by(program.steps[n])}
        for variable in segment.reads:
            yield from self._check_left_in(variable, self.entering[variable])
        for variable in (*segment.written, *segment.made):
            if variable < program.inputs or self._is_needed(newest[variable], frozenset(self.steps)):
                yield from self._check_left_in(variable, newest[variable])
        for variable, value in newest.items():
            outside = variable < program.inputs or variable in self.entering
            needed = outside or self._is_needed(value, frozenset(self.steps))
            if needed and variable not in self.slots and not self._is_view_of_operand(value):
                yield f"%{value} is needed after the segment, but lies in its arena"

    def _is_view_of_operand(self, value: int) -> bool:
        """Whether the value is a view of a value that an operand holds at the end of the segment; only then does the
        view outlive the arena."""
        variables = self.program.variables
        roots = [root for root, chain in self._ways_to(value) if chain and variables[root] in self.slots]
        return any(
            SlotValue(0, self._meta(root).nbytes, root) in self.memory.get(self.slots[variables[root]], ())
            for root in roots
        )

    def _check_left_in(self, variable: int, value: int) -> Iterator[str]:
        slot, meta = self.slots[variable], self._meta(value)
        if SlotValue(0, meta.nbytes, value) not in self.memory.get(slot, ()):
            there = [held.value for held in self.memory.get(slot, ())]
            yield f"the operand of %{variable} holds {_listed(there)} at the end, not %{value}"


def _made_by(step: Step) -> range:
    return range(step.first, step.first + len(step.results))


def _may_be_view(step: Step) -> bool:
    return step.op not in NON_OP_STEPS and find(step.op).view is not None


def _packed(buffer_slice: BufferSliceRecord) -> tuple[int, ...]:
    shape = buffer_slice.shape
    return tuple(width(buffer_slice.dtype) * prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _is_packed(buffer_slice: BufferSliceRecord) -> bool:
    return buffer_slice.strides is None or buffer_slice.strides == _packed(buffer_slice)


def _extent(buffer_slice: BufferSliceRecord) -> tuple[int, int]:
    """The first byte of a value, and the one after its last."""
    if 0 in buffer_slice.shape:
        return buffer_slice.offset, buffer_slice.offset
    ways = [(n - 1) * s for n, s in zip(buffer_slice.shape, buffer_slice.strides or _packed(buffer_slice), strict=True)]
    low, high = sum(way for way in ways if way < 0), sum(way for way in ways if way > 0)
    return buffer_slice.offset + low, buffer_slice.offset + high + width(buffer_slice.dtype)


def _overlap(start: int, stop: int, other: int, end: int) -> bool:
    """Whether two pieces of memory have a byte in common."""
    return max(start, other) < min(stop, end)


def _share_bytes(one: BufferSliceRecord, other: BufferSliceRecord) -> bool:
    return one.slot == other.slot and _overlap(*_extent(one), *_extent(other))


def _where(buffer_slice: BufferSliceRecord) -> str:
    memory = "the arena" if buffer_slice.slot == ARENA else f"operand {buffer_slice.slot}"
    return f"in {memory} at {buffer_slice.offset}"


def _listed(values: Sequence[int] | range) -> str:
    return ", ".join(f"%{value}" if value >= 0 else f"${~value}" for value in values) or "nothing"
