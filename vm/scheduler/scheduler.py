"""The scheduler: instructions from admission to retirement. Knows nothing of messages, ids or names.

    admit               build edges, account for memory; ready if no edge is unsatisfied
    release_finished    completions reported by streams: retire, release successors
    retire_doomed       instructions that will not run, once their own edges are satisfied

Its `dispatcher` hands ready instructions to streams. Its base class, `Completion`, retires executed and doomed ones.

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

from ...interpreter.errors import TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.schema.infer import InferCache
from ..memory.binding import bind_arguments
from ..memory.reservation import expect_memory
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.launches import Launches
from ..model.lifecycle import Event
from ..model.reason import Reason
from ..model.session import VmSession
from ..model.signature import NOTHING
from ..model.tally import Tally
from ..model.tensor import Binding, Copy, Storage
from ..tracing.ring import RecordRing
from . import edges
from .completion import Completion
from .dispatch import Dispatcher
from .fences import Fences
from .pending_metas import PendingMetas
from .wanted import Wanted

RELEASE = Opcode.RELEASE.value


class Scheduler(Completion):
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
        self.tick = 0
        self.failed = 0
        self.system_session = VmSession(0, drop_reply)
        self.live = {}
        for device in tiers.values():
            if device.backend.launches:
                device.launches = Launches(device)
        self.fences = Fences(self, list(tiers.values()))
        self.launching = bool(self.fences.devices)
        self.collectives: dict[str, list[int]] = {}  # kind of collective -> [count, bytes]
        self.snapshots: dict[Storage, int] = {}  # storage -> sharers that a checkpoint has not read yet
        self.finished: deque[Any] = deque()
        self.bound: list[Copy] = []  # operands of the message that is being admitted, which must not be evicted
        self.endings, self.reports = deque(), deque()
        self.wanted: deque[Wanted] = deque()  # for the driver: the needs of instructions that cannot go on
        self.storages = storages  # gives all that handles and names reach
        self._executed = deque()
        self._completing = False
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


def drop_reply(request: int, value: object, error: TensordError | None) -> None:
    """The reply function of a session without a client: drop the reply."""
