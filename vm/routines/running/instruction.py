"""RunRoutine: the instruction that runs a segment.

A run is executed even if an operand is poisoned. The results that depend on a poisoned operand, or on an op that fails,
are poisoned; all other results get their values, as if the ops had been issued one by one. A run is executed in slices
on the driving thread, or, if one of its kernels is large, as a whole on a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import length_hint
from typing import Any, ClassVar

from ....interpreter.errors import TensordError, kernel_error, text_of, without_frames
from ....interpreter.opcodes import Opcode
from ....interpreter.ops.positions import LATE_CHECKS
from ....interpreter.types.meta import Scalar
from ....interpreter.wire.fields import is_line
from ....streams.device import LaunchOrder
from ....streams.stream import Stream
from ...model.device_state import DeviceState
from ...model.instruction import Instruction
from ...model.session import VmSession
from ...model.signature import call_text
from ..compiling.recipe import BufferSlice, KernelStep, ResultsFailed
from .parts import RunPart, parts_of, results_of
from .poisoned_values import PoisonedValues
from .refusals import DataRefusal, in_call, note_checks
from .replay import Replay, Stamps, timed
from .segment import CompiledSegment


class RunInstruction(Instruction):
    """One run of a segment.

    `order`: the counter for the numbers of its launches, if it was launched at admission. `late`: errors that became
    known after the run, of copies that it has read and of its calls.
    """

    composite: ClassVar[bool] = True

    __slots__ = ("late", "next_slice", "numbers", "order", "poisoned", "replay", "segment", "stamps")

    def __init__(
        self,
        id_: int,
        session: VmSession,
        device: DeviceState,
        location: int,
        segment: CompiledSegment,
        numbers: Sequence[Scalar],
    ) -> None:
        super().__init__(id_, session, Opcode.RUN, segment.plan.label, device, location)
        self.plan = segment.plan
        self.segment = segment
        self.numbers = numbers
        self.order: LaunchOrder | None = None
        self.replay: Replay | None = None
        self.next_slice = 0
        self.poisoned = PoisonedValues(segment.recipe)
        self.stamps: Stamps | None = None  # the times of its calls, if the run is timed
        self.late: list[tuple[int, TensordError | DataRefusal]] = []

    # -- on the thread that runs it ------------------------------------------------------------------------------------

    def poisoned_operand(self) -> TensordError | None:
        """None, since a poisoned operand does not fail the run as a whole: some results may not depend on it."""
        return None

    def execute(self) -> int | None:
        while not self.advance():
            pass
        return self.segment.plan.work

    def advance(self) -> bool:
        """Run the next slice. True if it was the last one."""
        replay = self.replay
        if replay is None:
            replay = self.begin() if self.may_run() else None
        lost = self.device.backend.lost
        if lost is not None and not self.failed():
            self.fail(lost)
        if replay is not None and not self.failed():
            try:
                if self.next_slice == 0 and self.launch_graph():
                    self.next_slice = len(replay.slices)
                if self.next_slice < len(replay.slices):
                    self.run_slice(replay, self.next_slice)
            except BaseException as error:
                self.fail(error)
            self.next_slice += 1
            if self.next_slice < len(replay.slices) and not self.failed():
                return False
        self.end()
        return True

    def fail_in(self, index: int, remaining: int, error: BaseException) -> None:
        """Note the failure of a kernel that admission called, and make the `remaining` further calls of slice `index`.

        `advance` runs the slices that follow.
        """
        replay = self.replay
        if replay is None:
            raise AssertionError("admission has given its replay")
        start, calls = replay.slices[index]
        done = len(calls) - remaining
        self.claim_token.clear()
        self.note(self.segment.recipe.calls[start + done - 1], error)
        for n in range(done, len(calls)):
            self.call(self.segment.recipe.calls[start + n], *calls[n])
        self.next_slice = index + 1

    def failed(self) -> bool:
        """Whether the run has failed as a whole, or was cancelled."""
        return self.error is not None

    def begin(self) -> Replay | None:
        """Take a replay, and patch the run's operands into it."""
        recipe, arguments = self.segment.recipe, self.arguments
        try:
            arena = arguments[-1] if recipe.arena else None
            replay = self.segment.take(arena)
            self.replay = replay
            replay.patch(arguments[: replay.slots], self.numbers)
        except BaseException as error:
            self.fail(error)
            return None
        # The read copies, in the order of the recipe's variables.
        read = [b.copy for b in (*self.inputs, *self.outputs[: len(recipe.written)])]  # type: ignore[union-attr]
        for value, copy in zip(recipe.firsts, read, strict=True):
            if copy.poison is not None:
                self.poisoned.errors[value] = copy.poison
        return replay

    def run_slice(self, replay: Replay, index: int) -> None:
        start, calls = replay.slices[index]
        whole = self.device.launches is None  # on other devices, faults and delays apply to each launch
        if whole and self.stream is not None and self.queue is not None and self.stream.intercepted:
            self.run_intercepted(self.stream, start, calls)
            return
        done = 0 if self.poisoned.errors else self.run_fast(start, calls)
        for n in range(done, len(calls)):
            self.call(self.segment.recipe.calls[start + n], *calls[n])

    def launch_graph(self) -> bool:
        """Launch the segment's graph, if there is one and this is the driving thread."""
        graph = self.segment.graph
        if graph is None or not self.here or self.poisoned.errors or self.stamps is not None:
            return False
        if not self.segment.has_own_arena():
            return False
        operands = self.arguments[: self.segment.slots]
        if graph.launch(operands, self.numbers, self.segment.passing):
            note_checks(graph.checks)
            return True
        graph.note(self.segment.own_arena(), operands, self.numbers)
        return False

    def run_fast(self, start: int, calls: list[Any]) -> int:
        """Call the kernels in order, up to the first failure. Return the number of calls."""
        if self.plan is not None and self.plan.reports:
            return 0  # one by one, so that refused data are assigned to their call
        rest = iter(calls) if self.stamps is None else timed(calls, self.stamps)
        try:
            for kernel, arguments in rest:
                kernel(*arguments)
        except BaseException as error:
            called = len(calls) - length_hint(rest)
            self.note(self.segment.recipe.calls[start + called - 1], error)
            return called
        return len(calls)

    def run_intercepted(self, stream: Stream, start: int, calls: list[Any]) -> None:
        """Pass each op of a slice to the stream as a task of its own, up to a cancellation."""
        program, recipe, stamps = self.segment.program, self.segment.recipe, self.stamps
        for index in range(len(calls)):
            call = recipe.calls[start + index]
            if stamps is not None:
                stamps.times.append(stamps.clock())
            for part in parts_of(self, program, recipe.fusions, call, calls[index]):
                if self.failed():
                    return
                stream.intercept(part)
            if stamps is not None:
                stamps.times.append(stamps.clock())

    def call(self, call: KernelStep, kernel: Any, arguments: list[Any]) -> None:
        """Call one kernel, unless all its results depend on a poisoned operand."""
        if not self.poisoned.spread(call):
            return
        if any(given is None for given in arguments):  # a fusion, of which only poisoned results depend on the operand
            arguments = [self.stand_in(given, source) for given, source in zip(arguments, call.arguments, strict=True)]
        checks = LATE_CHECKS.checks
        before = 0 if checks is None else len(checks)
        try:
            kernel(*arguments)
        except BaseException as error:
            self.note(call, error)
        if checks is not None and len(checks) > before:
            index = self.segment.recipe.calls.index(call)
            checks[before:] = [in_call(index, check) for check in checks[before:]]
        if self.order is not None:
            self.order.issued += 1

    def stand_in(self, given: Any, source: BufferSlice | int) -> Any:
        """An argument; for a poisoned one, zeros of its shape."""
        if given is not None or not isinstance(source, BufferSlice):
            return given
        return self.device.backend.xp.zeros(source.meta.shape, source.meta.dtype)

    def note(self, call: KernelStep, error: BaseException) -> None:
        """Poison the failed results of a kernel with its error, which names the line and op of the call."""
        if not isinstance(error, ResultsFailed):
            self.poisoned.blame(call.results, self.failure(call, error))
            return
        for result, failure in zip(call.results, error.failures, strict=False):
            if failure is not None:
                self.poisoned.errors.pop(result, None)
                self.poisoned.blame((result,), self.failure(call, failure))

    def fail_part(self, part: RunPart, error: BaseException) -> None:
        """Poison the results of an op that failed for a reason outside of its kernel, perhaps after the run."""
        call, recipe = part.call, self.segment.recipe
        self.poisoned.spread(call)
        results = results_of(self.segment.program, recipe.fusions, call, part.step)
        if any(result not in self.poisoned.errors for result in results):
            self.poisoned.blame(results, self.failure(call, error, part.step))
        if self.finished:
            for later in recipe.calls[recipe.calls.index(call) + 1 :]:
                self.poisoned.spread(later)
            self.note_failures()

    def failure(self, call: KernelStep, error: BaseException, step: int | None = None) -> TensordError:
        """The error of a call, or of a step of its fusion, without frames, so that it can be kept."""
        op, line = call.plan.op, self.segment.program.steps[call.step if step is None else step].location
        location = self.author.source.where(line) if is_line(line) else None
        if isinstance(error, TensordError):
            mine = error.reraisable()
            mine.op, mine.location, mine.instruction = error.op or op.name, error.location or location, self.id
            without_frames(error)
            return mine
        message = f"{call_text(op, call.plan.attributes)}: {type(error).__name__}: {text_of(error)}"
        described = kernel_error(error, message, op=op.name, location=location, instruction=self.id)
        described.__cause__ = without_frames(error)
        return described

    def end(self) -> None:
        """Give the replay back, and set or clear the poison of the written copies."""
        replay, self.replay = self.replay, None
        if replay is not None:
            self.segment.give_back(replay)
        if self.poisoned.errors and self.error is None:
            self.note_failures()
        self.settle_poison()

    def note_failures(self) -> None:
        failures = {}
        for copy, value in zip(self.writes, self.segment.recipe.finals, strict=False):
            found = self.poisoned.error_of(value)
            if found is not None:
                failures[copy] = found
        self.failures = failures or None

    # -- errors that become known after the run: on the driving thread, but for `fail_late` ----------------------------

    def hear_of(self, copy: int, error: TensordError) -> None:
        self.late.append((copy, error))

    def fail_late(self, error: BaseException) -> None:
        """Note a late error: of one call, whose data were refused, or of the run as a whole."""
        if isinstance(error, DataRefusal):
            without_frames(error)  # the frames refer to this instruction
            without_frames(error.error)
            self.late.append((error.call, error))
        else:
            super().fail_late(error)

    def settle_late_errors(self) -> None:
        if not self.late or self.error is not None:
            return
        recipe, refused = self.segment.recipe, dict[int, DataRefusal]()
        late: dict[int, TensordError] = {}
        for number, error in self.late:
            if isinstance(error, DataRefusal):
                refused.setdefault(number, error)
            else:
                late.setdefault(number, error)
        read = [b.copy for b in (*self.inputs, *self.outputs[: len(recipe.written)])]  # type: ignore[union-attr]
        for value, copy in zip(recipe.firsts, read, strict=True):
            if copy.id in late:
                self.poisoned.errors.setdefault(value, late[copy.id])
        for index, call in enumerate(recipe.calls):
            if self.poisoned.spread(call) and index in refused:
                self.note(call, refused[index].error)
        self.note_failures()

    def own_failures(self) -> Sequence[TensordError]:
        return self.poisoned.origins
