"""The engine: the scheduler as a pure state machine. No threads, no sockets, no clock of its own.

Instructions are admitted in program order, wait for their edges, reserve memory, are dispatched to streams and
retire. `schedule()` is one pass over the phases, each guarded by a size check:

    release_finished    completions reported by streams: retire, release successors
    retire_doomed       what will not run, once its own edges are satisfied
    handle_pending      a bounded window of received messages: admit (see `admission`)
    dispatch_ready      reserve memory, bind operands, hand to streams
    flush_outbox        one batch per stream

Every method is called by one thread at a time: whoever drives the virtual machine. Streams report to `finished`,
a deque, from their own threads.

When an edge is satisfied for dispatch: its source is done; or it is soft, and the source was dispatched before to the
same in-order stream, or to a stream that events order with this one. Hard edges, from `mut2` writes and into whatever
the host can see, wait until the source is done. Source: OneFlow's VirtualMachineEngine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..interpreter.errors import ProtocolError, TensordError
from ..interpreter.opcodes import Opcode
from ..interpreter.schema.infer import InferCache
from ..interpreter.wire.limits import Limits
from ..interpreter.wire.messages import CALL
from ..streams.device import Device
from ..streams.stream import Stream
from .admission.admission import Admission
from .admission.inline import INLINE_BYTES, run_immediately
from .admission.rejection import refuse
from .memory.binding import adopt_results, bind_arguments
from .memory.drop_after_transfer import spill
from .memory.reservation import bequeath, is_stuck, most_of, next_waiting, out_of_memory, reserve, wait_for_memory
from .model.account import Account
from .model.device_state import DeviceState
from .model.instruction import Instruction, Status
from .model.operand import Binding
from .model.reason import Reason
from .model.session import ReplySink, VmSession
from .model.tensor import Tensor
from .placement.residency import Residency
from .scheduler import edges
from .scheduler.lost_devices import abandon_lost
from .scheduler.pending_metas import fail_metas
from .scheduler.stream_quota import Backlog, Share, share_of, waiting_in
from .tracing.ring import Ring

# Work, in element operations of 0.1 to 0.2 ns, up to which a bounded kernel runs on the driving thread: about 150 us.
# A hand-off to a worker and back costs 12 us on a quiet machine; beside a driving thread that is busy with Python every
# kernel that gives up the interpreter lock waits a switch interval of 100 us to get it back, so that a worker needed
# 4 ms for the 1 ms of kernels in a training step. Whoever must answer others meanwhile sets it lower.
INLINE_WORK = 1_200_000
WINDOW = 256  # messages admitted per pass, so that a long pending list does not delay what finished


class Engine:
    """Schedules the instructions of all sessions over a set of devices."""

    def __init__(
        self,
        backends: Mapping[str, Device],
        clock: Callable[[], int],
        *,
        tracing: bool = True,
        inline_work: int = INLINE_WORK,
    ) -> None:
        self.clock = clock
        self.inline_work = inline_work
        self.devices = {name: DeviceState(backend, inline_work) for name, backend in backends.items()}
        host = next((device for device in self.devices.values() if device.backend.host), None)
        self.residency = Residency(self, host)
        self.infer = InferCache()
        self.ring = Ring(enabled=tracing)
        self.admission = Admission(self)
        self.ids = 0
        self.copies = 0
        self.tick = 0
        self.now = clock()  # stamped once per pass
        self.session_ids = 0
        self.sessions: dict[int, VmSession] = {}
        self.nobody = VmSession(0, drop_reply)  # owns planned transfers and copies
        self.names: dict[str, Tensor] = {}
        self.publishers: dict[str, Account] = {}
        self.live: dict[int, Instruction] = {}
        self.pending: deque[tuple[VmSession, Sequence[Any]]] = deque()
        self.ready: deque[Instruction] = deque()
        self.doomed: deque[Instruction] = deque()
        self.finished: deque[Any] = deque()
        self.outbox: dict[Stream, list[Instruction]] = {}
        self.backlog: dict[Stream, Backlog] = {}
        self.refills: dict[Share, None] = {}  # shares of streams that reported something, and have a backlog
        self.retired = 0
        self.failed = 0
        self.report: Callable[[VmSession, TensordError], None] = drop_report  # told once of each error, at its origin
        self.query: Callable[[VmSession, str, Sequence[Any]], Any] = know_nothing  # answers QUERY messages

    # -- the outside -----------------------------------------------------------------------------------------------

    def open_session(self, reply: ReplySink, *, strict: bool = False, limits: Limits | None = None) -> VmSession:
        """A new session; `reply` is called on the driving thread with the answers to its requests."""
        self.session_ids += 1
        session = VmSession(self.session_ids, reply, strict=strict, limits=limits)
        self.sessions[session.id] = session
        return session

    def receive(self, session: VmSession, messages: Iterable[Sequence[Any]]) -> None:
        """Take a batch of a session's messages, in program order."""
        self.pending.extend([(session, message) for message in messages])

    def schedule(self) -> bool:
        """One pass; False if there was nothing to do."""
        if not (self.finished or self.pending or self.ready or self.doomed):
            return False
        self.now = self.clock()
        if self.finished:
            self.release_finished()
            abandon_lost(self)
        if self.doomed:
            self.retire_doomed()
        if self.pending:
            self.handle_pending()
        if self.ready or self.refills:
            self.dispatch_ready()
        if self.outbox:
            self.flush_outbox()
        return True

    # -- phases ----------------------------------------------------------------------------------------------------

    def release_finished(self) -> None:
        """Retire what streams reported, in the order of their reports."""
        finished = self.finished
        while finished:
            instruction = finished.popleft()
            stream = instruction.stream
            self.devices[stream.device].touched(stream, -1)
            share = instruction.share
            share.leave(instruction)
            if share.waiting:
                self.refills[share] = None
            self.complete(instruction)

    def retire_doomed(self) -> None:
        """Erase what will not run and whose own edges are satisfied. A queue, since chains of them are long."""
        while self.doomed:
            instruction = self.doomed.popleft()
            if not instruction.retired:
                self.retire(instruction)

    def handle_pending(self) -> None:
        """Admit a window of messages."""
        pending, handle = self.pending, self.handle
        for _ in range(min(WINDOW, len(pending))):
            session, message = pending.popleft()
            handle(session, message)

    def handle(self, session: VmSession, message: Sequence[Any]) -> None:
        """Admit one message, and dispatch what that made ready: at once, so that the next one may find it done."""
        try:
            if message[0] == CALL and run_immediately(self, session, message):
                return
            self.admission.handle(session, message)
        except Exception as error:  # nothing that a client sends may stop the others
            refuse(self, session, message, error)
        self.residency.bound.clear()
        if self.ready:
            self.dispatch_ready()

    def dispatch_ready(self) -> None:
        """Dispatch what is ready, and what becomes so because its producer has its place on a stream now."""
        while self.refills:  # first: what waits for its place is older
            self.refill(self.refills.popitem()[0])
        ready = self.ready
        while ready:
            self.dispatch(ready.popleft())

    def refill(self, share: Share) -> None:
        """Dispatch from a session's backlog on one stream until its share of it is used up again."""
        backlog = self.backlog[share.stream]
        while share.waiting and share.has_place:
            backlog.count -= 1
            self.dispatch(share.waiting.popleft())
        if not backlog.count:
            del self.backlog[share.stream]

    def flush_outbox(self) -> None:
        """Hand each stream its batch."""
        outbox, self.outbox = self.outbox, {}
        for stream, batch in outbox.items():
            stream.submit(batch)

    # -- admission -------------------------------------------------------------------------------------------------

    def new_instruction(
        self, session: VmSession, opcode: Opcode, label: str, device: DeviceState, location: int
    ) -> Instruction:
        """An instruction with the next id, not yet admitted."""
        self.ids += 1
        instruction = Instruction(self.ids, session, opcode, label, device, location)
        instruction.received = self.now
        return instruction

    def admit(self, instruction: Instruction) -> None:
        """Consume its operands, build its edges, account for its memory; ready if nothing stands in the way."""
        self.enter(instruction)
        for value in instruction.inputs + instruction.outputs:
            if isinstance(value, Binding):
                value.tensor.bound = True
        copies = instruction.reads + instruction.writes
        instruction.versions = tuple([copy.version for copy in copies])
        edges.consume(instruction)
        for copy in copies:
            copy.device.live[instruction] = None
        self.owe_memory(instruction)
        if instruction.error is not None and instruction.on_doom is not None:
            self.doom((instruction,), instruction.error)  # whoever waits for a lost value is told at once
        else:
            self.try_ready(instruction)

    def admit_barrier(self, session: VmSession, instruction: Instruction) -> None:
        """Admit a barrier over the session: it waits for everything since the last one, and for that one."""
        sources = []
        for earlier in reversed(session.live.values()):
            sources.append(earlier)
            if earlier is session.barrier:
                break
        self.enter(instruction)
        session.barrier = instruction
        instruction.versions = tuple([copy.version for copy in instruction.reads])
        edges.consume(instruction)
        for copy in instruction.reads:
            copy.device.live[instruction] = None
        for source in reversed(sources):
            edges.add_edge(source, instruction, Reason.BARRIER, 0)
        self.try_ready(instruction)

    def enter(self, instruction: Instruction) -> None:
        """Give it its tick and its place among the living."""
        self.tick += 1
        instruction.admitted = self.tick
        self.live[instruction.id] = instruction
        instruction.session.live[instruction.id] = instruction

    def owe_memory(self, instruction: Instruction) -> None:
        """Tell the ledger what the instruction will reserve, and plan room for it."""
        new = [b.copy for b in instruction.outputs if b.copy.buffer is None and edges.is_maker(instruction, b.copy)]
        if new:
            need = None if instruction.pending else sum(max(copy.nbytes, 0) for copy in new) + most_of(instruction)
            instruction.device.owe(instruction, need)
            device, spare = instruction.device, {*instruction.reads, *instruction.writes, *self.residency.bound}
            device.make_room(spare)
            if device.planned > device.backend.limit:
                spill(self, device, spare)

    def try_ready(self, instruction: Instruction) -> None:
        """READY once its edges are satisfied for dispatch; a doomed one goes when they are satisfied for good."""
        status = instruction.status
        if instruction.hard or status is Status.DISPATCHED or instruction.retired:
            return
        if instruction.error is not None:
            if not instruction.soft:
                self.doomed.append(instruction)
            return
        if instruction.pending or instruction.unlaunched or status is Status.READY:
            return
        stream = self.choose_stream(instruction)
        for source in instruction.soft:
            if source.stream is not stream and not (
                stream and stream.events and source.stream and source.stream.events
            ):
                return
        instruction.stream = stream
        instruction.ready = self.now
        instruction.move(Status.READY)
        self.ready.append(instruction)

    def choose_stream(self, instruction: Instruction) -> Stream | None:
        """The latest undone producer's, else an idle one or the least loaded; None is the driving thread."""
        if instruction.stream is not None or instruction.on_control or instruction.payload is not None:
            return instruction.stream
        if instruction.opcode is Opcode.BARRIER or instruction.opcode is Opcode.RELEASE:
            return None
        device = instruction.device
        for source in reversed(instruction.soft):
            if source.stream in device.compute:
                return source.stream
        if len(device.compute) == 1:
            return device.compute[0]
        shares = instruction.session.shares
        return min(device.compute, key=lambda stream: stream.queued + waiting_in(shares.get(stream)))

    # -- dispatch --------------------------------------------------------------------------------------------------

    def dispatch(self, instruction: Instruction) -> None:
        """Reserve, bind and hand over one instruction."""
        if instruction.arrived:  # it has run, and waited for memory to keep its results in
            if not self.finish(instruction):
                wait_for_memory(instruction)
            return
        if instruction.status is not Status.READY or instruction.error is not None:
            return  # doomed since
        stream = chosen = instruction.stream
        share = None
        if stream is not None and self.runs_inline(instruction, stream):
            stream = self.overtake(instruction, stream)
        elif stream is not None:
            share = share_of(instruction.author, stream, self.devices[stream.device])
            if not share.has_place:
                self.wait_for_place(instruction, share)
                return
        if not reserve(instruction):
            instruction.stream = chosen
            if is_stuck(instruction):
                self.fail_waiting(instruction, out_of_memory(instruction))
            return
        instruction.dispatched = self.now
        instruction.move(Status.DISPATCHED)
        try:
            bind_arguments(instruction)
        except BaseException as error:
            instruction.fail(error)
        if stream is None or share is None:
            self.run_inline(instruction)
        else:
            share.enter(instruction)
            self.hand_over(instruction, stream)
        if instruction.device.waiting:
            self.retry(instruction.device)

    def wait_for_place(self, instruction: Instruction, share: Share) -> None:
        """Its session has its share of the stream queued: it follows when something of that has retired."""
        share.waiting.append(instruction)
        backlog = self.backlog.get(share.stream)
        if backlog is None:
            backlog = self.backlog[share.stream] = Backlog()
        backlog.count += 1

    def overtake(self, instruction: Instruction, stream: Stream) -> Stream | None:
        """It runs on the driving thread. Where that overtakes what its stream has queued, it is the stream's no more:
        memory that is free only in the stream's order is not for it."""
        if stream.queued:
            instruction.stream = None
        return instruction.stream

    def runs_inline(self, instruction: Instruction, stream: Stream) -> bool:
        """Small, bounded, and everything that it depends on is done: cheaper here than on a worker."""
        plan = instruction.plan
        if plan is not None:
            instruction.quick = plan.op.bounded and plan.work <= instruction.device.inline_work
        else:
            size = sum(copy.nbytes for copy in instruction.reads + instruction.writes)
            instruction.quick = size <= 2 * INLINE_BYTES
        return instruction.quick and stream.inline and not instruction.soft

    def run_inline(self, instruction: Instruction) -> None:
        """Execute on the driving thread and retire at once."""
        instruction.started = self.clock()
        instruction.execute()
        instruction.finished = self.clock()
        self.complete(instruction)

    def hand_over(self, instruction: Instruction, stream: Stream) -> None:
        """Append to the stream's batch; soft successors may follow on the same stream, or by event."""
        instruction.handed = True
        self.devices[stream.device].touched(stream, 1)
        if instruction.soft:
            self.elide(instruction, stream)
        for copy in edges.touched_copies(instruction):
            copy.stream = stream if copy.stream is stream or not copy.queued else None
            copy.queued += 1
            if not copy.current:
                copy.device.retire_buffer(copy)
        self.outbox.setdefault(stream, []).append(instruction)
        for successor, hard in instruction.dependents.items():
            if not hard:
                successor.unlaunched -= 1
                self.try_ready(successor)

    def elide(self, instruction: Instruction, stream: Stream) -> None:
        """Dispatched before its soft sources are done: note it on the edges, and whose events to wait for."""
        instruction.event_sources = tuple([s for s in instruction.soft if s.stream is not stream])
        undone = {source.id for source in instruction.soft}
        instruction.edges = [(s, reason, copy, s in undone) for s, reason, copy, _ in instruction.edges]

    def retry(self, device: DeviceState) -> None:
        """Memory may have come free: try the oldest that waits for it. If it gets through, the next one follows."""
        instruction = next_waiting(device)
        if instruction is not None:
            self.ready.appendleft(instruction)

    # -- completion ------------------------------------------------------------------------------------------------

    def complete(self, instruction: Instruction) -> None:
        """It was executed. Its status is final once those of its sources are, and once its results have memory."""
        if instruction.soft:
            self.arrive(instruction)
        elif not self.finish(instruction):
            wait_for_memory(instruction)
            self.arrive(instruction)

    def arrive(self, instruction: Instruction) -> None:
        """It was executed, and stays: nothing more is to be hoped for from it by who waits for memory (`is_stuck`)."""
        instruction.arrived = True
        for device in {copy.device for copy in instruction.reads + instruction.writes}:
            if device.waiting:
                self.retry(device)

    def finish(self, instruction: Instruction) -> bool:
        """Its sources' statuses are final: retire it. False, and nothing done, if its results have no memory yet."""
        if not adopt_results(self, instruction):
            return False
        if instruction.error is not None:
            edges.settle_late(instruction)
        self.retire(instruction)
        return True

    def retire(self, instruction: Instruction) -> None:
        """Erase it: accesses dropped, successors released, whoever waits told."""
        if instruction.status is not Status.DISPATCHED:
            instruction.settle_poison()
        instruction.move(instruction.outcome())
        edges.release_accesses(instruction)
        if instruction.error is not None:
            bequeath(instruction)
        self.tick += 1
        self.ring.add(instruction, self.tick)
        self.leave(instruction)
        self.retired += 1
        if instruction.origin:
            self.tell(instruction.author, instruction.error)
        for error in (instruction.failures or {}).values():
            self.tell(instruction.author, error)
        if instruction.on_retire is not None:
            instruction.on_retire(instruction)
        if instruction.error is not None or instruction.failures is not None:
            self.spread(instruction)
        self.release_successors(instruction)
        instruction.kernel = instruction.on_retire = instruction.on_doom = None  # closures refer back to it
        instruction.arguments = instruction.event_sources = ()

    def leave(self, instruction: Instruction) -> None:
        """Take it off every list; memory that it waited for or held may serve another."""
        del self.live[instruction.id]
        instruction.session.live.pop(instruction.id, None)
        instruction.device.settle(instruction)
        for copy in instruction.reads + instruction.writes:
            device = copy.device
            if device.live.pop(instruction, self) is None and device.waiting:
                self.retry(device)

    def release_successors(self, instruction: Instruction) -> None:
        """It is done: its edges are satisfied for good."""
        dependents, instruction.dependents = instruction.dependents, {}
        for successor, hard in dependents.items():
            if hard:
                successor.hard -= 1
            else:
                del successor.soft[instruction]
                if not instruction.handed:
                    successor.unlaunched -= 1
                if successor.status is Status.READY and successor.device.waiting:
                    self.retry(successor.device)
            if successor.arrived and not successor.soft:
                successor.arrived = False
                self.complete(successor)
            else:
                self.try_ready(successor)

    # -- errors ----------------------------------------------------------------------------------------------------

    def spread(self, instruction: Instruction) -> None:
        """Doom what reads a failed result."""
        for copy in instruction.writes:
            error = instruction.failure_of(copy)
            if error is not None:
                self.doom(edges.readers_of(instruction, {copy.id}), error)
        for error, waiting in fail_metas(instruction):
            self.doom([one for one in waiting if not one.retired], error)

    def doom(self, roots: Iterable[Instruction], error: TensordError) -> None:
        """These will not run, nor what reads their results. Whoever waits for one is told at once."""
        for instruction in edges.doom(roots, error):
            self.tell_doomed(instruction)
            self.try_ready(instruction)

    def tell_doomed(self, instruction: Instruction) -> None:
        """Whoever waits for it is told at once, and not again when it retires."""
        on_doom, instruction.on_doom = instruction.on_doom, None
        if on_doom is not None:
            instruction.on_retire = None
            on_doom(instruction)

    def revoke(self, instruction: Instruction, error: TensordError) -> None:
        """Cancel what a stream has queued, unless the stream has started it."""
        instruction.revoked = error  # before the claim: the stream may look right after it
        if instruction.claim():
            instruction.error = error
            self.tell_doomed(instruction)
            self.doom(edges.readers_of(instruction, {copy.id for copy in instruction.writes}), error)

    def fail_waiting(self, instruction: Instruction, error: TensordError) -> None:
        """It fails without having run: metas that do not fit, memory that is not there."""
        instruction.error = instruction.describe(error)
        instruction.origin = True
        self.doom([instruction], instruction.error)

    def tell(self, session: VmSession, error: TensordError | None) -> None:
        """Report an error once, at its origin."""
        if error is not None:
            self.failed += 1
            session.errors += 1
            self.report(session, error)

    # -- instructions that never wait ------------------------------------------------------------------------------

    def fail_immediately(self, instruction: Instruction, failure: BaseException) -> None:
        """An op that ran at admission failed: poison what it was to write, keep its record."""
        instruction.fail(failure)
        for copy in instruction.writes:
            copy.device.give_up(copy)
        instruction.finished = self.clock()
        instruction.status = Status.FAILED
        self.ring.add(instruction, self.tick)
        self.tell(instruction.session, instruction.error)


def drop_reply(request: int, value: object, error: TensordError | None) -> None:
    """The reply sink of a session that asks nothing."""


def know_nothing(_session: VmSession, what: str, _arguments: Sequence[Any]) -> Any:
    """Until somebody answers questions."""
    raise ProtocolError(f"nobody here knows about {what!r}")


def drop_report(session: VmSession, error: TensordError) -> None:
    """The error report while nobody listens."""
