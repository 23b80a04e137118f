"""Dispatch: what is ready gets its memory and goes to a stream, or runs on the driving thread.

When an edge is satisfied for dispatch: its source is done; or it is soft, and the source was dispatched before to the
same in-order stream, or to a stream that events order with this one. Hard edges, from `mut2` writes and to or from
whatever the host can see, wait until the source is done.

An instruction that finds no memory waits in its device's queue (`memory.ledger`), one whose session has used up its
part of a stream in the session's queue (`fair_queue`); neither blocks a stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from ...interpreter.errors import TensordError
from ...streams.stream import Stream
from ..memory.binding import bind_arguments
from ..memory.ledger import next_waiting
from ..memory.release import release, release_drained
from ..memory.reservation import is_stuck, out_of_memory, reserve
from ..model.device_state import DeviceState
from ..model.instruction import PENDING, Instruction, Status
from ..model.session_queue import SessionQueue
from .edges import touched_copies
from .fair_queue import Backlog, has_room, queue_of, waiting_in

INLINE_BYTES = 1 << 18  # copies up to this size may run on the driving thread


class Dispatcher:
    """Ready instructions on their way to streams. `executed` takes what the driving thread has run, `failed` what
    cannot run."""

    def __init__(
        self,
        devices: Mapping[str, DeviceState],
        clock: Callable[[], int],
        executed: Callable[[Instruction], None],
        failed: Callable[[Instruction, TensordError], None],
    ) -> None:
        self.devices = devices
        self.clock = clock
        self.executed = executed
        self.failed = failed
        self.now = 0  # stamped once per pass
        self.ready: deque[Instruction] = deque()
        self.doomed: deque[Instruction] = deque()  # will not run; their own edges are satisfied
        self.batches: dict[Stream, list[Instruction]] = {}
        self.backlog: dict[Stream, Backlog] = {}
        self.refills: dict[SessionQueue, None] = {}  # of streams that reported something, and have a backlog

    # -- becoming ready --------------------------------------------------------------------------------------------

    def try_ready(self, instruction: Instruction) -> None:
        """READY once its edges are satisfied for dispatch; a doomed one goes when they are satisfied for good."""
        status = instruction.status
        if instruction.hard or status not in PENDING:
            return
        if instruction.error is not None:
            if not instruction.soft:
                self.doomed.append(instruction)
            return
        if instruction.pending or instruction.unlaunched or status is Status.READY:
            return
        stream = choose_stream(instruction)
        for source in instruction.soft:
            if source.stream is not stream and not (
                stream and stream.events and source.stream and source.stream.events
            ):
                return
        instruction.stream = stream
        instruction.ready = self.now
        instruction.move(Status.READY)
        self.ready.append(instruction)

    def retry(self, device: DeviceState) -> None:
        """Memory may have come free: try the oldest that waits for it. If it gets through, the next one follows."""
        if device.waiting:
            instruction = next_waiting(device)
            if instruction is not None:
                self.ready.appendleft(instruction)

    # -- dispatching -----------------------------------------------------------------------------------------------

    def dispatch_ready(self) -> None:
        """Dispatch what is ready, and what becomes so because its producer has its place on a stream now."""
        while self.refills:  # first: what waits for room is older
            self.refill(self.refills.popitem()[0])
        ready = self.ready
        while ready:
            self.dispatch(ready.popleft())

    def refill(self, queue: SessionQueue) -> None:
        """Dispatch from a session's backlog on one stream until its part of the stream is used up again."""
        backlog = self.backlog[queue.stream]
        while queue.waiting and has_room(queue):
            backlog.count -= 1
            self.dispatch(queue.waiting.popleft())
        if not backlog.count:
            del self.backlog[queue.stream]

    def dispatch(self, instruction: Instruction) -> None:
        """Reserve, bind and hand over one instruction."""
        if instruction.status is Status.EXECUTED:  # and it waits for memory to keep its results in
            self.executed(instruction)
            return
        if instruction.status is not Status.READY or instruction.error is not None:
            return  # doomed since
        stream = chosen = instruction.stream
        queue = None
        if stream is not None and runs_inline(instruction, stream):
            stream = overtake(instruction, stream)
        elif stream is not None:
            queue = queue_of(instruction.author, stream, self.devices[stream.device])
            if not has_room(queue):
                self.wait_for_room(instruction, queue)
                return
        if not reserve(instruction):
            instruction.stream = chosen
            if is_stuck(instruction):
                self.failed(instruction, out_of_memory(instruction))
            return
        instruction.dispatched = self.now
        instruction.move(Status.DISPATCHED)
        try:
            bind_arguments(instruction)
        except BaseException as error:
            instruction.fail(error)
        if stream is None or queue is None:
            self.run_inline(instruction)
        else:
            queue.enter(instruction)
            self.hand_over(instruction, stream)
        self.retry(instruction.device)

    def wait_for_room(self, instruction: Instruction, queue: SessionQueue) -> None:
        """Its session has used up its part of the stream: it follows when something of that has retired."""
        queue.waiting.append(instruction)
        backlog = self.backlog.get(queue.stream)
        if backlog is None:
            backlog = self.backlog[queue.stream] = Backlog()
        backlog.count += 1

    def run_inline(self, instruction: Instruction) -> None:
        """Execute on the driving thread and retire at once."""
        instruction.started = self.clock()
        instruction.execute()
        instruction.finished = self.clock()
        self.executed(instruction)

    def hand_over(self, instruction: Instruction, stream: Stream) -> None:
        """Append to the stream's batch; soft successors may follow on the same stream, or by event."""
        stream.queued += 1
        if instruction.soft:
            elide(instruction, stream)
        for copy in touched_copies(instruction):
            copy.stream = stream if copy.stream is stream or not copy.queued else None
            copy.queued += 1
            if not copy.current:
                release(copy)
        self.batches.setdefault(stream, []).append(instruction)
        for successor, hard in instruction.dependents.items():
            if not hard:
                successor.unlaunched -= 1
                self.try_ready(successor)

    def flush(self) -> None:
        """Hand each stream its batch."""
        batches, self.batches = self.batches, {}
        for stream, batch in batches.items():
            stream.submit(batch)

    # -- coming back -----------------------------------------------------------------------------------------------

    def reported(self, instruction: Instruction) -> None:
        """A stream has reported the instruction: its session has room for another one there."""
        stream, queue = instruction.stream, instruction.queue
        if stream is None or queue is None:
            raise AssertionError(f"{instruction!r} was reported, but given to no stream")
        stream.queued -= 1
        if not stream.queued:
            release_drained(self.devices[stream.device], stream)
        queue.leave(instruction)
        if queue.waiting:
            self.refills[queue] = None


def choose_stream(instruction: Instruction) -> Stream | None:
    """The latest undone producer's, else an idle one or the least loaded; None is the driving thread."""
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


def runs_inline(instruction: Instruction, stream: Stream) -> bool:
    """Small, bounded, and everything that it depends on is done: cheaper here than on a worker."""
    plan = instruction.plan
    if plan is not None:
        instruction.quick = plan.op.bounded and plan.work <= instruction.device.inline_work
    else:
        size = sum(copy.nbytes for copy in instruction.reads + instruction.writes)
        instruction.quick = size <= 2 * INLINE_BYTES
    return instruction.quick and stream.inline and not instruction.soft


def overtake(instruction: Instruction, stream: Stream) -> Stream | None:
    """The instruction runs on the driving thread. Where that overtakes what its stream has queued, it leaves the
    stream: memory that is free only in the stream's order is not for it."""
    if stream.queued:
        instruction.stream = None
    return instruction.stream


def elide(instruction: Instruction, stream: Stream) -> None:
    """Dispatched before its soft sources are done: note that on the edges, and whose events to wait for."""
    instruction.event_sources = tuple([s for s in instruction.soft if s.stream is not stream])
    undone = {source.id for source in instruction.soft}
    instruction.edges = [(s, reason, copy, s in undone) for s, reason, copy, _ in instruction.edges]
