"""The ops of a run as tasks of its stream, while delays or faults are injected into that stream.

So a delay applies to each op, a fault hits the intended op, and a cancellation takes effect between two ops, as if the
ops had been issued one by one. Without injected delays or faults, `RunInstruction` calls its kernels itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from ....interpreter.programs.fusion import Fusion
from ....interpreter.programs.program import Program
from ....streams.stream import Task
from ..compiling.recipe import KernelStep, fill

COPY: Final = "copy"  # the label of a call of `fill`, which op by op is a Copy instruction


class Parted(Protocol):
    """The run that consists of the parts."""

    id: int

    def failed(self) -> bool:
        """Whether the run has failed as a whole, or was cancelled."""

    def call(self, call: KernelStep, kernel: Any, arguments: list[Any]) -> None:
        """Call one kernel."""

    def fail_part(self, part: RunPart, error: BaseException) -> None:
        """An op has failed for a reason outside its kernel."""


class RunPart:
    """One op of a run. `todo`: the call, shared by the parts of a fusion; the first part that is executed makes it."""

    def __init__(
        self, run: Parted, call: KernelStep, step: int, label: str, work: int, todo: list[tuple[Any, Any]]
    ) -> None:
        self.run = run
        self.call = call
        self.step = step
        self.label = label
        self.work = work
        self.todo = todo
        self.blocking = self.reports = False  # no kernel of a segment waits for the device, or refuses its data late
        self.composite = False
        self.id = run.id
        self.bytes_moved = 0
        self.quick = False
        self.event_sources: Sequence[Task] = ()
        self.event: Any = None
        self.started = 0
        self.finished = 0

    @property
    def cancelled(self) -> bool:
        return self.run.failed()

    def execute(self) -> int | None:
        """Make the call, unless another part has made it; None, and no call, if the run was cancelled."""
        if self.run.failed():
            return None
        if self.todo:
            kernel, arguments = self.todo.pop()
            self.run.call(self.call, kernel, arguments)
        return self.work

    def fail_late(self, error: BaseException) -> None:
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Fail the op for a reason outside of its kernel."""
        self.run.fail_part(self, error)


def parts_of(
    run: Parted, program: Program, fusions: Sequence[Fusion], call: KernelStep, bound: tuple[Any, Any]
) -> Iterator[RunPart]:
    """The ops of a call: one, or all ops of a fusion. `bound`: the call's kernel and arguments."""
    todo, fusion = [bound], fusion_of(fusions, call)
    steps = (call.step,) if fusion is None else fusion.steps
    for step in steps:
        label = COPY if call.kernel is fill else program.steps[step].op
        yield RunPart(run, call, step, label, call.work // len(steps), todo)


def fusion_of(fusions: Sequence[Fusion], call: KernelStep) -> Fusion | None:
    """The fusion that a call computes; None for the call of one op."""
    return next((fusion for fusion in fusions if fusion.steps[-1] == call.step), None)


def results_of(program: Program, fusions: Sequence[Fusion], call: KernelStep, step: int) -> Sequence[int]:
    """The results of a call that depend on one of its steps."""
    fusion = fusion_of(fusions, call)
    if fusion is None:
        return call.results
    values = {program.steps[step].first}
    for position in fusion.steps:
        found = program.steps[position]
        if not values.isdisjoint(found.operands):
            values.add(found.first)
    return [result for result in call.results if result in values]
