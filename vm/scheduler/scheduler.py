"""The scheduler: instructions from admission to retirement. Knows nothing of messages, ids or names.

    admit               build edges, account for memory; ready if no edge is unsatisfied
    release_finished    completions reported by streams: retire, release successors
    retire_doomed       instructions that will not run, once their own edges are satisfied

Its `dispatcher` hands ready instructions to streams.

Three things belong to rooms above: the consequences of an instruction's end (to the room that made it), room for its
memory (to placement), and the report of an error (to the runtime). So the scheduler calls none of these rooms. A step
leaves `endings`, `wanted` and `reports` to its driver, and a loop of steps stops where there are endings, or room is
wanted. The driver (`engine`, `admission`) handles them before the next step.

Only the thread that drives the engine calls these methods. Streams append executed instructions to `finished`, a deque,
from their own threads.

Source: OneFlow's VirtualMachineEngine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...interpreter.errors import KernelError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.schema.infer import InferCache
from ..memory.allocation import give_back
from ..memory.binding import bind_arguments
from ..memory.ledger import settle, wait_for_memory, waits_long
from ..memory.making_room import end_standby
from ..memory.planning import plan_most
from ..memory.reservation import expect_memory, is_stuck, out_of_memory
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.launches import Fence, Launches, strides_of
from ..model.lifecycle import Event, Status
from ..model.reason import Reason
from ..model.session import VmSession
from ..model.signature import NOTHING
from ..model.tally import Tally
from ..model.tensor import Binding, Copy, Storage
from ..tracing.ring import RecordRing
from . import edges, errors
from .dispatch import Dispatcher
from .fences import Fences
from .pending_metas import PendingMetas
from .results import adopt_results, fail_next_result
from .wanted import Wanted

RELEASE = Opcode.RELEASE.value


class Scheduler:
    """Schedules instructions over the streams of a set of devices."""

    def __init__(
        self,
        devices: Mapping[str, DeviceState],
        clock: Callable[[], int],
        infer: InferCache,
        ring: RecordRing,
        tiers: Mapping[str, DeviceState] | None = None,
        tally: Tally | None = None,
        storages: Callable[[], Iterable[Storage]] = tuple,
    ) -> None:
        self.devices = devices
        self.tiers = tiers = tiers or devices
        self.clock = clock
        self.ring = ring
        self.tally = tally or Tally()
        self.counts = self.tally.counts
        self.now = clock()  # stamped once per pass
        self.latest = self.now  # when the newest message was admitted
        self.ids = 0  # the newest instruction id, including instructions run at admission and rejected messages
        self.tick = 0  # the logical clock: counts admissions and erasures
        self.failed = 0
        self.system_session = VmSession(0, drop_reply)  # owns planned transfers and copies
        self.live: dict[int, Instruction] = {}
        for device in tiers.values():
            if device.backend.launches:
                device.launches = Launches(device)
        self.fences = Fences(self, list(tiers.values()))
        self.launching = bool(self.fences.devices)
        self.collectives: dict[str, list[int]] = {}  # kind of collective -> [count, bytes]
        self.snapshots: dict[Storage, int] = {}  # storage -> sharers that a checkpoint has not read yet
        self.finished: deque[Any] = deque()
        self.bound: list[Copy] = []  # operands of the message that is being admitted, which must not be evicted
        # For the driver: instructions that have retired or are doomed, each with its consequence; the needs of
        # instructions that cannot go on; and errors, each once, at its origin.
        self.endings: deque[tuple[Callable[[Instruction], None], Instruction]] = deque()
        self.wanted: deque[Wanted] = deque()
        self.reports: deque[tuple[VmSession, TensordError]] = deque()
        self.storages = storages  # gives all that handles and names reach
        self._executed: deque[Instruction] = deque()  # the work list of `complete`
        self._completing = False  # whether the loop in `complete` is running
        self.dispatcher = dispatcher = Dispatcher(tiers, clock, self.complete, self.endings, self.wanted)
        if self.launching:
            dispatcher.order_memory = self.fences.order_memory
            dispatcher.await_launches = self.fences.await_launches
            dispatcher.launch_here = self.fences.launch_here
        self.try_ready = dispatcher.try_ready
        self.retry = dispatcher.retry
        self.metas = PendingMetas(infer, self.fail_waiting, self.try_ready, self.wanted)

    # -- passes ----------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether there is anything to do before the next completion."""
        dispatcher = self.dispatcher
        return bool(self.finished or dispatcher.ready or dispatcher.doomed or dispatcher.running)

    @property
    def retired(self) -> int:
        """The number of instructions that have ended."""
        return self.tally.total

    def stamp(self, now: int) -> None:
        """Begin a pass, whose events all get this time, in nanoseconds."""
        self.now = self.dispatcher.now = now

    def release_finished(self) -> None:
        """Retire what streams reported, in the order of their reports, until an end has consequences or room is
        wanted."""
        finished, reported, endings, wanted = self.finished, self.dispatcher.reported, self.endings, self.wanted
        while finished and not endings and not wanted:
            instruction = finished.popleft()
            reported(instruction)
            self.complete(instruction)

    def retire_doomed(self) -> None:
        """Retire doomed instructions whose own edges are satisfied; a queue, since chains of them may be long."""
        doomed = self.dispatcher.doomed
        while doomed and not self.endings:
            instruction = doomed.popleft()
            if not instruction.retired:
                self.retire(instruction)

    # -- admission -------------------------------------------------------------------------------------------------

    def new_instruction(
        self, session: VmSession, opcode: Opcode, label: str, device: DeviceState, location: int
    ) -> Instruction:
        """A new instruction with the next id, not yet admitted."""
        self.ids += 1
        instruction = Instruction(self.ids, session, opcode, label, device, location)
        instruction.received = self.now
        return instruction

    def note_released(self, session: VmSession, home: DeviceState, copies: Sequence[int]) -> None:
        """Count a release that took effect at once, and add its trace record: the id and the version of each copy."""
        self.ids += 1
        self.tick += 2
        self.counts[RELEASE].done += 1
        if self.ring.enabled:
            now = self.clock()
            traits = (session.id, RELEASE, "release", home.name, "f" * (len(copies) // 2), NOTHING)
            self.ring.append((self.ids, traits, tuple(copies), self.tick, self.now, now, now, 0, 0))

    def note_run(self, session: VmSession, run: Sequence[int]) -> None:
        """Add a run that was admitted op by op, or was stopped, to the trace (`Unfolding`)."""
        if run:
            self.ring.routines.ran(session.id, run, self.ids, self.tick + 1)

    def admit(self, instruction: Instruction) -> None:
        """Admit an instruction: build its edges, account for its memory, and make it ready if no edge is unsatisfied.

        An instruction that makes memory is admitted through `placement.tiers`, which plans the room for it.
        """
        if self.launching:
            self.fences.order(instruction)
        self.enter(instruction)
        for value in instruction.inputs + instruction.outputs:
            if isinstance(value, Binding):
                value.tensor.bound = True
        self._consume(instruction)
        if (instruction.outputs or instruction.beside) and instruction.error is None:
            expect_memory(instruction)
        if instruction.error is not None:
            self.doom((instruction,), instruction.error)
        else:
            self.try_ready(instruction)

    def admit_barrier(self, session: VmSession, instruction: Instruction) -> None:
        """Admit a barrier over the session, which waits for the session's last barrier and all later instructions."""
        sources = []
        for earlier in reversed(session.live.values()):
            sources.append(earlier)
            if earlier is session.barrier:
                break
        if self.launching:
            self.fences.order_barrier(instruction)
        self.enter(instruction)
        session.barrier = instruction
        self._consume(instruction)
        for source in reversed(sources):
            edges.add_edge(source, instruction, Reason.BARRIER, 0)
        if instruction.error is not None:
            self.doom((instruction,), instruction.error)
        else:
            self.try_ready(instruction)

    def admit_launched(self, instruction: Instruction) -> None:
        """Admit an instruction that the caller launches now, in the order of its stream."""
        self.enter(instruction)
        self._consume(instruction)
        instruction.move(Event.SATISFIED)
        instruction.move(Event.DISPATCHED)
        try:
            bind_arguments(instruction)
        except BaseException as error:
            instruction.fail(error)

    def enter(self, instruction: Instruction) -> None:
        """Give the instruction its tick, and add it to the tables of live instructions."""
        self.tick += 1
        instruction.admitted = self.tick
        self.live[instruction.id] = instruction
        instruction.session.live[instruction.id] = instruction

    def _consume(self, instruction: Instruction) -> None:
        copies = instruction.reads + instruction.writes
        instruction.versions = tuple([copy.version for copy in copies])
        edges.consume(instruction)
        for copy in copies:
            copy.device.live[instruction] = None

    # -- completion ------------------------------------------------------------------------------------------------

    def complete(self, instruction: Instruction, *, asked: bool = False) -> None:
        """Complete an executed instruction. Its status is final once its sources' are, and its results have memory.

        This may complete instructions that were executed before it: a work list, since such chains are long. `asked`:
        as for `adopt_results`.
        """
        if self._completing:
            self._executed.append(instruction)
            return
        self._completing = True
        try:
            self._complete_one(instruction, asked)
            while self._executed:
                self._complete_one(self._executed.popleft())
        finally:
            self._completing = False

    def _complete_one(self, instruction: Instruction, asked: bool = False) -> None:
        if instruction.scratch:
            give_back(instruction)
        if not instruction.soft:
            if self._finish(instruction, asked):
                return
            wait_for_memory(instruction)
            if self.endings:  # which may free memory
                self.endings.append((self._try_again, instruction))
        if instruction.status is not Status.EXECUTED:
            instruction.move(Event.EXECUTED)
            # The instruction keeps its memory for now, so others that wait for memory may be stuck (`is_stuck`).
            for device in {copy.device for copy in instruction.reads + instruction.writes}:
                self.retry(device)

    def _finish(self, instruction: Instruction, asked: bool) -> bool:
        """Retire an instruction whose sources are final; False, with nothing done, if its results lack memory."""
        if not adopt_results(self.metas, instruction, last=not self.endings, asked=asked):
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

    def go_on(self, instruction: Instruction) -> None:
        """Go on with an instruction, once its session's share has as much room as possible."""
        if instruction.retired or instruction.error is not None:
            return
        if instruction.status is Status.EXECUTED:
            self.complete(instruction, asked=True)
        else:
            self.metas.resolve_wanting(instruction)

    def give_up(self, instruction: Instruction, holders: str) -> None:
        """Fail an instruction whose memory cannot be provided: its next result, or the whole of it if it has not run.

        `holders`: as for `out_of_memory`.
        """
        if instruction.status is Status.EXECUTED:
            fail_next_result(instruction, holders)
            self.complete(instruction)
        else:
            self.fail_waiting(instruction, out_of_memory(instruction, holders))

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
            self.tell(errors.whose(instruction) or self.system_session, instruction.error)
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
        if instruction.most:
            plan_most(instruction, 0)
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

    # -- errors ----------------------------------------------------------------------------------------------------

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

    def time_out(self, instruction: Instruction) -> None:
        """Fail an instruction that exceeds its time limit; its kernel goes on, and its stream stays occupied."""
        if instruction.retired or instruction.error is not None:
            return
        stream = instruction.stream
        where, waits = ("", "") if stream is None else (f" on {stream.device}", stream.waits_for(instruction))
        text = f"{instruction.label} has not ended{where} within {instruction.limit / 1e9:g} s"
        text += f": {waits}" if waits else ""
        error = instruction.describe(KernelError(text))
        self.revoke(instruction, error)
        self.tell(instruction.author, error)

    def break_waits(self, before: int) -> bool:
        """Break possible deadlocks between nodes with full memory; return whether any instruction was affected.

        Two nodes may wait for each other's memory, which neither can detect. So an instruction that has waited for
        memory since `before`, and only behind instructions that wait for other nodes, overtakes these now. It fails if
        it does not fit even so.
        """
        found = False
        for device in self.tiers.values():
            instruction = waits_long(device, before)
            if instruction is None or not is_stuck(instruction):
                continue
            found = True
            theirs = device.behind.get(instruction.author)
            if theirs is not None:
                theirs.give_up_order()
            self.dispatcher.dispatch(instruction)
            if instruction.status is Status.READY:
                holders = "; other nodes have to send or receive values before more memory is free"
                self.fail_waiting(instruction, out_of_memory(instruction, holders))
        return found

    def fail_waiting(self, instruction: Instruction, error: TensordError) -> None:
        """Fail an instruction that has not run, because its metas do not fit or its memory is not available."""
        instruction.error = instruction.describe(error)
        instruction.origin = True
        self.doom([instruction], instruction.error)

    def _end_doomed(self, instruction: Instruction) -> None:
        """End a doomed instruction for its readers and waiters. It keeps its place until it retires."""
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


def drop_reply(request: int, value: object, error: TensordError | None) -> None:
    """The reply function of a session without a client: drop the reply."""
