"""Dispatch: a ready instruction reserves its memory, then goes to a stream or runs on the driving thread.

An edge is satisfied for dispatch when its source is done. A soft edge is also satisfied when its source was dispatched
to the same in-order stream, or to a stream that events order with this one. Hard edges, which are edges from `mut2`
writes and edges to or from host-visible accesses, wait until the source is done.

An instruction that finds no memory waits in its device's queue (`memory.ledger`). An instruction whose session has no
room on the stream waits in the session's queue (`fair_queue`). Neither blocks a stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from ...streams.stream import Stream, StreamKind
from ..memory.binding import bind_arguments
from ..memory.ledger import next_waiting
from ..memory.release import release, release_drained
from ..memory.reservation import is_stuck, need_of, reserve
from ..model.device_state import DeviceState
from ..model.instruction import COMPILING, HELD_BY_FAIRNESS, Instruction
from ..model.launches import strides_of
from ..model.lifecycle import Event, Status
from ..model.session import VmSession
from ..model.session_queue import SessionQueue
from ..model.tensor import Copy
from .edges import touched_copies
from .fair_queue import Backlog, enter, has_room, leave, queue_of, waiting_in
from .wanted import Wanted

INLINE_BYTES = 1 << 18  # copies up to this size may run on the driving thread


DISK_STREAMS: Final = frozenset((StreamKind.READ, StreamKind.WRITE, StreamKind.SAVE))


class Dispatcher:
    """Dispatches ready instructions.

    `executed` takes the instructions that the driving thread has run. `endings` and `wanted`: if one of them is not
    empty, nothing more is dispatched before the driver has handled it; `wanted` takes the needs of stuck instructions.
    """

    def __init__(
        self,
        devices: Mapping[str, DeviceState],
        clock: Callable[[], int],
        executed: Callable[[Instruction], None],
        endings: Collection[object],
        wanted: deque[Wanted],
    ) -> None:
        self.devices = devices
        self.clock = clock
        self.executed = executed
        self.endings = endings
        self.wanted = wanted
        # Set on machines that launch ops at admission.
        self.order_memory: Callable[[Instruction, Stream], None] | None = None
        self.await_launches: Callable[[DeviceState], bool] | None = None
        self.launch_here: Callable[[Instruction, Stream], bool] | None = None
        self.now = 0  # stamped once per pass
        self.ready: deque[Instruction] = deque()
        self.doomed: deque[Instruction] = deque()  # will not run; their own edges are satisfied
        self.batches: dict[Stream, list[Instruction]] = {}
        # Routines that run in slices on the driving thread. Sessions take turns, one slice each.
        self.running: dict[VmSession, deque[Instruction]] = {}
        self.backlog: dict[Stream, Backlog] = {}
        self.refills: dict[SessionQueue, None] = {}  # queues with a backlog whose stream has reported an instruction

    # -- becoming ready --------------------------------------------------------------------------------------------

    def try_ready(self, instruction: Instruction) -> None:
        """Make an instruction READY if its edges are satisfied for dispatch; queue a doomed one if its sources are
        done.
        """
        status = instruction.status
        if instruction.hard:
            return
        if status is Status.DOOMED and not instruction.soft:
            self.doomed.append(instruction)
        if status is not Status.WAITING or instruction.pending:
            return
        stream = choose_stream(instruction)
        for source in reversed(instruction.soft):  # the latest one is the last to be launched
            if source.queue is None or not is_ordered(source.stream, stream):
                return
        instruction.stream = stream
        instruction.ready = self.now
        instruction.move(Event.SATISFIED)
        self.ready.append(instruction)

    def retry(self, device: DeviceState) -> None:
        """Try the oldest instruction that waits for a device's memory; its dispatch tries the next one."""
        if device.waiting:
            self.ready.extendleft(reversed(next_waiting(device)))

    # -- dispatching -----------------------------------------------------------------------------------------------

    def dispatch_ready(self) -> None:
        """Dispatch the ready instructions, and those that their dispatch makes ready, until an end has consequences or
        room is wanted."""
        while self.refills:  # first: the instructions in sessions' queues are older
            self.refill(self.refills.popitem()[0])
        ready, endings, wanted = self.ready, self.endings, self.wanted
        while ready and not endings and not wanted:
            self.dispatch(ready.popleft())

    def refill(self, queue: SessionQueue) -> None:
        """Dispatch from a session's queue while the session has room on the stream."""
        backlog = self.backlog[queue.stream]
        while queue.waiting and has_room(queue):
            backlog.count -= 1
            self.dispatch(queue.waiting.popleft())
        if not backlog.count:
            del self.backlog[queue.stream]

    def dispatch(self, instruction: Instruction) -> None:
        """Reserve memory for one instruction, bind its arguments, and run it or hand it to a stream."""
        if instruction.status is Status.EXECUTED:  # executed; waits for memory for its results
            self.executed(instruction)
            return
        if instruction.status is not Status.READY:
            return  # doomed since it became ready
        stream = chosen = instruction.stream
        queue = None
        if stream is not None and stream.ordered and runs_inline(instruction, stream):
            stream = order_to_keep(instruction, stream)
        elif stream is not None:
            queue = queue_of(instruction.author, stream, self.devices[stream.device])
            if stream.ordered and not has_room(queue):
                self.wait_for_room(instruction, queue)
                return
        if (instruction.outputs or instruction.beside) and not reserve(instruction):
            instruction.stream = chosen
            if self.await_launches is not None and self.await_launches(instruction.device):
                return
            if is_stuck(instruction):
                self.wanted.append(Wanted(instruction, need_of(instruction)))
            return
        instruction.dispatched = self.now
        if not instruction.traits.copies or (chosen is not None and chosen.device == instruction.device.name):
            instruction.used = instruction.device.backend.allocated  # else the record names the source
        instruction.move(Event.DISPATCHED)
        if instruction.inputs or instruction.outputs:
            try:
                bind_arguments(instruction)
            except BaseException as error:
                instruction.fail(error)
        if stream is None or queue is None:
            self.run_inline(instruction)
        else:
            enter(queue, instruction)
            self.hand_over(instruction, stream)
        self.retry(instruction.device)

    def wait_for_room(self, instruction: Instruction, queue: SessionQueue) -> None:
        """Queue an instruction until its session has room on the stream."""
        instruction.held |= HELD_BY_FAIRNESS
        queue.waiting.append(instruction)
        backlog = self.backlog.get(queue.stream)
        if backlog is None:
            backlog = self.backlog[queue.stream] = Backlog()
        backlog.count += 1

    def run_inline(self, instruction: Instruction) -> None:
        """Execute an instruction on the driving thread, or the first slice of it."""
        waiting = self.running.get(instruction.session)
        if waiting and instruction.traits.tolerant:  # runs after its session's earlier ones
            waiting.append(instruction)
            return
        instruction.started = self.clock()
        if instruction.advance():
            instruction.finished = self.clock()
            self.executed(instruction)
        else:
            self.running[instruction.session] = deque((instruction,))

    def go_on(self) -> None:
        """Execute one slice of the oldest routine of the session whose turn it is."""
        session, waiting = next(iter(self.running.items()))
        del self.running[session]
        instruction = waiting[0]
        instruction.started = instruction.started or self.clock()
        done = instruction.advance()
        if done:
            waiting.popleft()
        if waiting:
            self.running[session] = waiting
        if done:
            instruction.finished = self.clock()
            self.executed(instruction)

    def hand_over(self, instruction: Instruction, stream: Stream) -> None:
        """Append an instruction to the stream's batch, after which its soft successors may be dispatched."""
        if instruction.soft:
            elide(instruction, stream)
        if self.order_memory is not None:
            self.order_memory(instruction, stream)
        for copy in touched_copies(instruction):
            note_queued(copy, stream)
            if not copy.current:
                release(copy)
        if self.launch_here is None or stream in self.batches or not self.launch_here(instruction, stream):
            self.batches.setdefault(stream, []).append(instruction)
            if self.launch_here is not None:
                note_compiling(instruction)
        for successor, hard in instruction.dependents.items():
            if not hard:
                self.try_ready(successor)

    def flush(self) -> None:
        """Hand each stream its batch."""
        batches, self.batches = self.batches, {}
        for stream, batch in batches.items():
            stream.submit(batch)

    # -- reports ---------------------------------------------------------------------------------------------------

    def reported(self, instruction: Instruction) -> None:
        """Note that a stream has finished an instruction, which makes room there for another one of its session."""
        queue = instruction.queue
        if queue is None:
            raise AssertionError(f"{instruction!r} was reported, but no stream had it")
        leave(queue, instruction)
        device, stream = queue.device, queue.stream
        if not stream.queued and device.reusable:
            release_drained(device, stream)
        if queue.waiting:
            self.refills[queue] = None


def choose_stream(instruction: Instruction) -> Stream | None:
    """The stream of the latest unfinished source, else the least loaded one; None stands for the driving thread."""
    if instruction.stream is not None or instruction.on_control:
        return instruction.stream
    compute = instruction.device.compute
    for source in reversed(instruction.soft):
        if source.stream in compute:
            return source.stream
    if len(compute) == 1:
        return compute[0]
    queues = instruction.session.queues
    return min(compute, key=lambda stream: stream.queued + waiting_in(queues.get(stream)))


def is_ordered(source: Stream | None, stream: Stream | None) -> bool:
    """Whether events of the device order one stream behind another, without the host."""
    return source is stream or bool(stream and stream.events and source and source.events)


def runs_inline(instruction: Instruction, stream: Stream) -> bool:
    """Whether the instruction is small, bounded, and has all sources done: then the driving thread is cheaper."""
    plan = instruction.plan
    if plan is not None:
        instruction.quick = plan.prompt and plan.work <= instruction.device.inline_work
    elif may_wait_for_disk(instruction, stream):
        instruction.quick = False
    else:
        size = sum(copy.nbytes for copy in instruction.reads + instruction.writes)
        instruction.quick = size <= 2 * INLINE_BYTES
    return instruction.quick and stream.inline and not instruction.soft


def may_wait_for_disk(instruction: Instruction, stream: Stream) -> bool:
    """Whether the instruction may wait for a disk: it accesses the store, or runs on one of the store's threads."""
    if stream.kind in DISK_STREAMS:
        return True
    return any(not copy.device.backend.computes for copy in instruction.reads + instruction.writes)


def order_to_keep(instruction: Instruction, stream: Stream) -> Stream | None:
    """The stream whose order an instruction on the driving thread keeps; None if it overtakes queued instructions.

    An overtaking instruction cannot use memory that is free only in the stream's order.
    """
    if stream.queued:
        instruction.stream = None
    return instruction.stream


def note_compiling(instruction: Instruction) -> None:
    """Note whether the instruction is the first to call its kernels, so that the launcher compiles them."""
    launches, plan = instruction.device.launches, instruction.plan
    if launches is not None and plan is not None and launches.begins(plan, strides_of(instruction)):
        instruction.held |= COMPILING


def note_queued(copy: Copy, stream: Stream) -> None:
    """Note in a copy that an access to it was handed to a stream."""
    alone = stream.ordered and (copy.stream is stream or not copy.queued)
    copy.stream = stream if alone else None
    copy.queued += 1


def elide(instruction: Instruction, stream: Stream) -> None:
    """Mark the soft edges as elided, and note the sources whose events the stream has to wait for."""
    instruction.event_sources = tuple([s for s in instruction.soft if s.stream is not stream])
    instruction.foreign = any(s.foreign or s.device is not instruction.device for s in instruction.soft)
    undone = {source.id for source in instruction.soft}
    instruction.edges = [(s, reason, copy, s in undone) for s, reason, copy, _ in instruction.edges]
