"""Completion: instructions from their execution to their retirement, and how errors spread meanwhile.

    complete    an executed instruction: its status is final once its sources' are
    retire      drop its accesses, release its successors, report its outcome
    doom        instructions that will not run, since an operand has failed

Everything here runs on the driving thread, in a step of the scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from ...interpreter.errors import TensordError
from ...interpreter.opcodes import Opcode
from ..memory.allocation import give_back
from ..memory.ledger import settle, wait_for_memory
from ..memory.making_room import end_standby
from ..memory.planning import plan_max_bytes
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.launches import Fence, strides_of
from ..model.lifecycle import Event, Status
from ..model.session import VmSession
from ..model.tally import Tally
from ..tracing.ring import RecordRing
from . import edges, errors
from .dispatch import Dispatcher
from .error_reports import session_to_tell
from .fences import Fences
from .pending_metas import PendingMetas
from .results import adopt_results


class Completion:
    """The part of the scheduler that completes instructions. `Scheduler` sets the attributes."""

    tiers: Mapping[str, DeviceState]
    ring: RecordRing
    tally: Tally
    tick: int  # the logical clock: counts admissions and erasures
    failed: int
    system_session: VmSession  # owns planned transfers and copies
    live: dict[int, Instruction]
    fences: Fences
    launching: bool
    dispatcher: Dispatcher
    try_ready: Callable[[Instruction], None]
    retry: Callable[[DeviceState], None]
    metas: PendingMetas
    # For the driver: instructions that have retired or are doomed, each with its consequence; and errors, each once, at
    # its origin.
    endings: deque[tuple[Callable[[Instruction], None], Instruction]]
    reports: deque[tuple[VmSession, TensordError]]
    _executed: deque[Instruction]  # the work list of `complete`
    _completing: bool  # whether the loop in `complete` is running

    def complete(self, instruction: Instruction, *, evicted: bool = False) -> None:
        """Complete an executed instruction. Its status is final once its sources' are, and its results have memory.

        This may complete instructions that were executed before it: a work list, since such chains are long. `evicted`:
        as for `adopt_results`.
        """
        if self._completing:
            self._executed.append(instruction)
            return
        self._completing = True
        try:
            self._complete_one(instruction, evicted)
            while self._executed:
                self._complete_one(self._executed.popleft())
        finally:
            self._completing = False

    def _complete_one(self, instruction: Instruction, evicted: bool = False) -> None:
        if instruction.scratch:
            give_back(instruction)
        if not instruction.soft:
            if self._finish(instruction, evicted):
                return
            wait_for_memory(instruction)
            if self.endings:  # which may free memory
                self.endings.append((self._try_again, instruction))
        if instruction.status is not Status.EXECUTED:
            instruction.move(Event.EXECUTED)
            # The instruction keeps its memory for now, so others that wait for memory may be stuck (`is_stuck`).
            for device in {copy.device for copy in instruction.reads + instruction.writes}:
                self.retry(device)

    def _finish(self, instruction: Instruction, evicted: bool) -> bool:
        """Retire an instruction whose sources are final; False, with nothing done, if its results lack memory."""
        if not adopt_results(self.metas, instruction, last=not self.endings, evicted=evicted):
            return False
        if instruction.traits.tolerant:
            instruction.settle_late_errors()
        if instruction.error is not None or instruction.failures is not None:
            errors.settle_late(instruction)
        self.retire(instruction)
        return True

    def _try_again(self, instruction: Instruction) -> None:
        """Retry after the earlier endings, which may have freed memory for the instruction's results."""
        self.retry(instruction.device)

    def count(self, instruction: Instruction) -> None:
        """Count an instruction whose status is final."""
        opcode, plan = instruction.opcode, instruction.plan
        op = opcode._value_ if plan is None or opcode is not Opcode.CALL else plan.op.name
        times = (instruction.received, instruction.started, instruction.finished)
        self.tally.add(op, instruction.status._value_, *times)

    def retire(self, instruction: Instruction) -> None:
        """Retire an instruction: drop its accesses, release its successors, report its outcome."""
        if instruction.status is Status.DOOMED:
            instruction.settle_poison()
        instruction.move_to_outcome()
        if self.launching and instruction.plan is not None and instruction.error is None:
            note_warm(instruction)
        edges.release_accesses(instruction)
        self.tick += 1
        self.count(instruction)
        self.ring.add(instruction, self.tick)
        self._leave(instruction)
        if instruction.origin:
            self.tell(session_to_tell(instruction) or self.system_session, instruction.error)
        if instruction.failures is not None or instruction.traits.tolerant:
            for error in instruction.own_failures():
                self.tell(instruction.author, error)
        if self.launching and isinstance(instruction, Fence):
            self.fences.passed(instruction)
        if instruction.traits.copies:
            for device in end_standby(instruction, self.tiers.values()):
                self.retry(device)
        if instruction.on_end is not None:
            self.endings.append((instruction.on_end.retired, instruction))
        if instruction.error is not None or instruction.failures is not None:
            self._spread(instruction)
        if instruction.dependents:
            self._release_successors(instruction)
        instruction.kernel = instruction.on_end = None  # they may refer back to it
        instruction.arguments = instruction.event_sources = ()

    def _leave(self, instruction: Instruction) -> None:
        """Remove the instruction from every table, and retry others that wait for memory."""
        del self.live[instruction.id]
        instruction.session.live.pop(instruction.id, None)
        device = instruction.device
        if device.behind or instruction in device.unreserved:
            settle(device, instruction)
        if instruction.max_bytes:
            plan_max_bytes(instruction, 0)
        for copy in instruction.reads + instruction.writes:
            device = copy.device
            if device.live.pop(instruction, self) is None and device.waiting:
                self.retry(device)

    def _release_successors(self, instruction: Instruction) -> None:
        """Satisfy the instruction's outgoing edges for good."""
        for successor in edges.release_successors(instruction):
            if successor.status is Status.READY:
                self.retry(successor.device)
            if successor.status is Status.EXECUTED and not successor.soft:
                self.complete(successor)
            else:
                self.try_ready(successor)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _spread(self, instruction: Instruction) -> None:
        """Doom the readers of failed results."""
        if isinstance(instruction, Fence) and instruction.error is not None:
            guarded = {about for one in instruction.dependents for _, _, about, _ in one.edges}
            errors.tell_dispatched(instruction, guarded, instruction.error)
            self.doom(errors.readers_of(instruction, guarded), instruction.error)
        for copy in instruction.writes:
            error = instruction.failure_of(copy)
            if error is not None:
                errors.tell_dispatched(instruction, {copy.id}, error)
                self.doom(errors.readers_of(instruction, {copy.id}), error)
        for error, waiting in self.metas.fail(instruction):
            self.doom([one for one in waiting if not one.retired], error)

    def doom(self, roots: Iterable[Instruction], error: TensordError) -> None:
        """Doom instructions and the readers of their results."""
        for instruction in errors.doom(roots, error):
            self._end_doomed(instruction)
            self.try_ready(instruction)

    def revoke(self, instruction: Instruction, error: TensordError) -> None:
        """Cancel an instruction that a stream has; a kernel that has started runs to its end in the background.

        The copies that the instruction writes are poisoned when it retires.
        """
        instruction.revoke(error)
        self.doom((instruction,), error)
        self._end_doomed(instruction)
        if instruction.status is Status.EXECUTED and not instruction.soft:
            self.complete(instruction)  # it waited for memory for results that are now dropped

    def fail_waiting(self, instruction: Instruction, error: TensordError) -> None:
        """Fail an instruction that has not run, because its metas do not fit or its memory is not available."""
        instruction.error = instruction.describe(error)
        instruction.origin = True
        self.doom([instruction], instruction.error)

    def _end_doomed(self, instruction: Instruction) -> None:
        """End a doomed instruction for its readers and waiters. The instruction keeps its position until it retires."""
        end = instruction.on_end
        if end is not None and end.at_doom:
            instruction.on_end = None
            self.endings.append((end.doomed, instruction))

    def tell(self, session: VmSession, error: TensordError | None) -> None:
        """Report an error once, at its origin."""
        if error is not None:
            self.failed += 1
            session.counts.errors += 1
            self.reports.append((session, error))


def note_warm(instruction: Instruction) -> None:
    """Note that the kernels of an op are compiled and loaded, since the op has run on a device that launches."""
    plan, launches = instruction.plan, instruction.device.launches
    ran = instruction.failures is None and not instruction.pending
    if launches is not None and plan is not None and plan.launchable and ran:
        launches.note_warm(plan, strides_of(instruction))
