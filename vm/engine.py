"""The engine: the machine as a pure state machine, without threads, sockets, and a clock of its own.

The engine combines the rooms. A message goes down through them once: `receive`, admission (checks the message and makes
instructions), placement (plans transfers), the scheduler (builds edges), memory (makes room), and out to a stream. A
completion comes back up once: the scheduler retires the instruction, and leaves the actions at its end to the engine,
where admission's `conclude` performs them: it answers the session, or admits what follows. So no room calls one above
it.

`schedule()` is one pass over the phases, each guarded by a size check:

    release_finished    completions reported by streams: retire, release successors
    retire_doomed       instructions that will not run, once their own edges are satisfied
    handle_pending      a bounded window of received messages: admit
    go_on_with_a_run    a bounded window of the messages of a run: admit
    dispatch_ready      reserve memory, bind operands, hand to streams
    flush               one batch per stream
    release_some        some handles of closed sessions

Only the driving thread calls the methods. Streams append finished instructions to `finished`, a deque, from their own
threads.

An exception that leaves a public method is a bug of the engine, which is stored in `fault`. No message of a client, no
kernel and no device can cause one: their errors become errors of instructions. A bug stops a step in its middle, so
accesses, edges, uses and memory may be inconsistent. So the engine is not called again, and its driver ends: the driver
logs the exception and fails every wait.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import length_hint
from typing import Any

from ..interpreter.errors import TensordError
from ..interpreter.schema.infer import InferCache
from ..interpreter.wire.limits import Limits
from ..streams.client_stream import ClientStream
from ..streams.device import Device, Eviction
from ..streams.links.link import Links
from ..streams.links.link_stream import LinkStream
from ..streams.stream import Sink
from .admission.admission import Admission
from .durability.taking import OnReport
from .model.device_state import DeviceState, Uses
from .model.directory import Directory
from .model.instruction import Instruction
from .model.session import ReplySink, VmSession, rest_of_run
from .model.tally import Tally
from .placement.residency import Residency
from .recording.recorders import Recorders
from .scheduler.fences import is_unfenced
from .scheduler.lost_devices import abandon_lost, launched_since
from .scheduler.overdue import break_deadlocks, time_out
from .scheduler.scheduler import Scheduler
from .tracing.ring import CAPACITY, RecordRing

# Work, in element operations of 0.1 to 0.2 ns, up to which a bounded kernel runs on the driving thread: about 150 us.
# A hand-off to a worker and back costs 12 us on a quiet machine. If the driving thread is busy with Python, a worker's
# kernel that releases the interpreter lock waits a switch interval of 100 us to get it back: a worker took 4 ms for the
# 1 ms of kernels in a training step.
INLINE_WORK = 1_200_000
# The same for a whole run of small kernels, which is not limited in an embedded machine, where threads wait for each
# other's batches anyway. A daemon sets a lower limit; larger runs are cut into slices.
RUN_WORK = 1 << 40
WINDOW = 256  # messages admitted per pass, so that a long pending list does not delay completions
LIVE = 4096  # unfinished instructions of a session above which its run, which may be a loop, issues no more


class Engine:
    """Runs the messages of all sessions over a set of devices.

    The runtime sets `admission.answer`, which answers QUERY messages, `admission.holders`, which names the holders of a
    device's memory, and `report`, which gets each error once, at the end of the step in which the error arose.
    """

    def __init__(
        self,
        backends: Mapping[str, Device],
        clock: Callable[[], int],
        *,
        tracing: bool = True,
        trace_capacity: int = CAPACITY,
        inline_work: int = INLINE_WORK,
        run_work: int = RUN_WORK,
    ) -> None:
        self.inline_work = inline_work
        tally = Tally()
        self.tiers = states_of(backends, inline_work, tally)
        self.devices = {name: device for name, device in self.tiers.items() if device.backend.computes}
        self.store = next((device for device in self.tiers.values() if not device.backend.computes), None)
        self.directory = Directory()
        self.infer = InferCache()
        self.ring = RecordRing(enabled=tracing, capacity=trace_capacity)
        storages = self.directory.storages
        self.scheduler = Scheduler(self.devices, clock, self.infer, self.ring, self.tiers, tally, storages)
        host = next((device for device in self.devices.values() if device.backend.host), None)
        self.residency = Residency(self.scheduler, self.directory, host, self.store)
        if host is not None:
            host.calls = ClientStream(host.name, self.scheduler.finished.extend, clock)
        self._set_tiers(host)
        self.admission = Admission(self.scheduler, self.residency, self.directory, self.infer)
        self.admission.routines.segments.at_once.limit = run_work
        self.pending: deque[tuple[VmSession, Iterator[Sequence[Any]]]] = deque()  # the rest of each batch
        self.finished = self.scheduler.finished
        self.live = self.scheduler.live
        self._endings, self._wanted = self.scheduler.endings, self.scheduler.wanted
        self._reports = self.scheduler.reports
        self.report: Callable[[VmSession, TensordError], None] = drop_report
        dispatcher = self.scheduler.dispatcher
        self._ready, self._doomed, self.running = dispatcher.ready, dispatcher.doomed, dispatcher.running
        self._leaving = self.directory.leaving
        self._due = self.admission.durable.checkpoints.due
        # Batches that are held back: those behind a run with control flow, or with many unfinished instructions, which
        # takes turns with other sessions; and those of flooded sessions. No later batch of the session overtakes them.
        self.held: dict[VmSession, deque[tuple[VmSession, Iterator[Sequence[Any]]]]] = {}
        self._fenced = self.scheduler.fences.streams
        self.recorders = Recorders(self.admission.take)
        self._beginning = self.recorders.requested
        self._opened = 0
        self.fault: BaseException | None = None

    def _set_tiers(self, host: DeviceState | None) -> None:
        """Tell each device to which tiers its values may be evicted."""
        for device in self.devices.values():
            if device.eviction.policy is not Eviction.NEVER:
                tiers = (None if device.backend.host else host, self.spill)
                device.tiers = tuple([tier for tier in tiers if tier is not None])

    @property
    def pools(self) -> dict[str, DeviceState]:
        """The devices, and the store if it has memory of its own."""
        return {name: device for name, device in self.tiers.items() if device.backend.computes or device.backend.limit}

    @property
    def spill(self) -> DeviceState | None:
        """The store, if values may be evicted to it."""
        return self.store if self.store is not None and self.store.backend.limit else None

    def join(self, links: Links, sink: Sink) -> None:
        """Let sessions exchange values with other nodes. `sink`: takes finished tasks, as for the devices."""
        self.admission.nodes.links = links
        for device in self.devices.values():
            if device.backend.linked:
                device.link = LinkStream(device.name, sink, self.scheduler.clock)

    def open_session(
        self,
        reply: ReplySink,
        name: str = "",
        *,
        strict: bool = False,
        trusted: bool = False,
        limits: Limits | None = None,
    ) -> VmSession:
        """Open a session. `reply` is called on the driving thread with the answers to the session's requests."""
        self._opened += 1
        session = VmSession(self._opened, reply, name, strict=strict, trusted=trusted, limits=limits)
        self.directory.sessions[session.id] = session
        self.recorders.session_opened(session)
        return session

    def receive(self, session: VmSession, messages: Sequence[Sequence[Any]]) -> None:
        """Queue a batch of a session's messages, in program order."""
        tapped = session.tapped
        self.pending.append((session, iter(messages) if tapped is None else tapped.through(messages)))

    def waiting(self) -> Counter[int]:
        """The number of received messages that are not admitted yet, by session id."""
        found: Counter[int] = Counter()
        for session, rest in (*list(self.pending), *chain(*list(self.held.values()))):  # another thread may append
            found[session.id] += length_hint(rest)
        return found

    def schedule(self, session: VmSession | None = None) -> bool:
        """Do one pass; False if there was nothing to do. With a `session`, batches held back for others stay there."""
        if self._fenced:
            self.scheduler.fences.poll()
        busy = self.finished or self.pending or self._ready or self._doomed or self._leaving or self.running
        busy = busy or self._due or self._beginning or self._endings or self._wanted or self._reports
        if not busy and not self.scheduler.dispatcher.batches and not (self.held and self.in_run()):
            return False
        try:
            self._pass(session)
        except BaseException as error:
            self.fault = error
            raise
        if self.fault is not None:  # raised by a cancellation during the pass, whose caller has caught it
            raise self.fault
        return True

    def _pass(self, session: VmSession | None) -> None:
        scheduler, dispatcher = self.scheduler, self.scheduler.dispatcher
        scheduler.stamp(scheduler.clock())
        if self._beginning:
            self.recorders.begin(self.directory.sessions, self.pending)
        if self.finished:
            scheduler.release_finished()
            while self._endings or self._wanted:
                self.admission.conclude()
                if self.finished:
                    scheduler.release_finished()
            for device in self.tiers.values():
                if device.backend.lost is not None and not device.abandoned:
                    abandon_lost([device], self.directory.storages, scheduler.doom, scheduler.revoke, self.launched)
        if self._endings or self._wanted:
            self.admission.conclude()
        while self._doomed:
            scheduler.retire_doomed()
            self.admission.conclude()
        if self.pending:
            self.handle_pending()
        if self._due:
            self.admission.durable.checkpoints.serve_waiting()
        if self.held and (session is None or session in self.held):
            self.go_on_with_a_run()
        if self.running:
            dispatcher.go_on()
        if self._ready or dispatcher.refills:
            dispatcher.dispatch_ready()
        while self._endings or self._wanted:
            self.admission.conclude()
            if self._ready:
                dispatcher.dispatch_ready()
        if dispatcher.batches:
            dispatcher.flush()
        if self._leaving:
            scheduler.stamp(scheduler.clock())  # kernels may have run in this pass
            self.admission.cancellation.release_some()
            self.admission.conclude()
        if self._reports:
            self.tell()

    def tell(self) -> None:
        """Report the errors of the last step."""
        while self._reports:
            self.report(*self._reports.popleft())

    def launched(self, device: DeviceState, until: int = sys.maxsize) -> str:
        """The text that names the ops launched since the device was last known to be healthy, up to launch `until`."""

        def line(session: int, location: int) -> str:
            found = self.directory.sessions.get(session)
            return (found and found.source.where(location)) or ""

        return launched_since(self.scheduler.ring.entries, device, line, until)

    def poll(self) -> None:
        """Collect the fences that devices have passed."""
        self.scheduler.fences.poll()

    def watch(self) -> None:
        """Let other threads wait for the fences, before the driving thread sleeps."""
        if self._fenced:
            self.scheduler.fences.watch()

    @property
    def unfenced(self) -> bool:
        """Whether there are launches without a fence after them; False after a fault."""
        return self.fault is None and any(is_unfenced(device) for device in self.scheduler.fences.devices)

    def fence(self) -> None:
        """Make fences after all launches."""
        with self._guarded():
            self.scheduler.fences.fence_all()

    @property
    def unwatched(self) -> bool:
        """Whether there are fences that only the driving thread polls."""
        return any(stream.unwatched for stream in self._fenced)

    def handle_pending(self) -> None:
        """Admit a window of messages."""
        pending, room = self.pending, WINDOW
        while pending and room > 0:
            session, rest = pending[0]
            if session.flooded or session in self.held:  # stays behind earlier ones
                self.held.setdefault(session, deque()).append(pending.popleft())
                continue
            if (run := session.unfolding) is not None:
                if run.is_data_dependent or not may_go_on(session):
                    self.held.setdefault(session, deque()).append(pending.popleft())
                    continue
                self.admission.take(session, rest_of_run(session, room))
                return  # completions come first
            size = length_hint(rest)
            ended = self.admission.take(session, islice(rest, room))
            left = length_hint(rest)
            room -= size - left
            if not left and (ended or not session.in_run()):
                pending.popleft()

    def go_on_with_a_run(self) -> None:
        """Admit a window of the next run that may go on.

        After the run's end, or the end of its session's flood, the batches that were held back are pending again.
        """
        session = next(filter(may_go_on, self.held), None)
        if session is None:
            return
        batches = self.held.pop(session)
        self.admission.take(session, rest_of_run(session, WINDOW))
        if session.in_run():
            self.held[session] = batches
        else:
            self.pending.extendleft(reversed(batches))

    def only_releases_are_left(self) -> bool:
        """Whether releasing handles of closed sessions is the only work left."""
        return bool(self._leaving) and not (
            self.finished or self.pending or self._ready or self._doomed or self.running or self.in_run()
        )

    def in_run(self) -> bool:
        """Whether a run, which may be an endless loop, can go on."""
        return any(map(may_go_on, list(self.held)))  # a list: another thread may ask

    def take(self, session: VmSession, arrays: Iterable[Sequence[Any]]) -> None:
        """Admit messages now, for a driver that has a queue of its own."""
        try:
            self.admission.take(session, arrays)
            if self._reports:
                self.tell()
        except BaseException as error:
            self.fault = error
            raise

    def cancel(self, session: VmSession) -> None:
        """Cancel the session's live instructions, and its later ones until a restart sent after this cancellation."""
        with self._step():
            self.admission.cancellation.cancel(session)

    def returned(self, session: VmSession, number: int, error: TensordError | None, arrays: Sequence[Any] = ()) -> None:
        """Accept a client's results of a host call, or its error."""
        with self._guarded():
            self.admission.effects.host_calls.returned(session, number, error, arrays)

    def begin_cancel(self, session: VmSession) -> None:
        """The first half of `cancel`, which may be called on the driving thread in the middle of a pass."""
        with self._guarded():
            self.admission.cancellation.begin(session)

    def finish_cancel(self, session: VmSession) -> None:
        """The second half of `cancel`."""
        with self._step():
            self.admission.cancellation.finish(session)

    def close(self, session: VmSession) -> None:
        """Close a session: cancel it, and release its handles. Tensors with other holders stay."""
        with self._step():
            self.admission.cancellation.close(session)
            self.held.pop(session, None)
            self.recorders.session_closed(session)

    def forget_names(self) -> None:
        """Remove all names at the machine's end; else their memory and files would wait for the garbage collector."""
        with self._step():
            self.admission.names.unpublish(list(self.directory.names))

    def drop_values(self) -> None:
        """Drop all memory and files after a fault, once the streams have ended, without any bookkeeping."""
        for storage in self.directory.storages():
            for copy in storage.current():
                copy.buffer = None

    def free_unused_blocks(self) -> None:
        """Free the blocks of GPU memory whose sessions are closed, and which no process has open any more."""
        with self._step():
            for device in self.devices.values():
                device.backend.free_unused_blocks()
                self.scheduler.retry(device)

    def break_waits(self, before: int) -> bool:
        """End waits for memory since `before` that may be part of a deadlock over nodes; return whether any existed."""
        with self._step():
            return break_deadlocks(self.scheduler, before)

    def time_out(self, instruction: Instruction) -> None:
        """Fail an instruction that has exceeded its time limit."""
        with self._step():
            time_out(self.scheduler, instruction)

    def keep_durable(self, on_report: OnReport) -> None:
        """Write the durable names that have changed. `on_report` gets the report, or the error."""
        with self._step():
            try:
                self.admission.durable.checkpoints.keep_durable(self.scheduler.system_session, on_report)
            except TensordError as error:
                on_report(None, error)
            self.scheduler.bound.clear()

    @contextmanager
    def _step(self) -> Iterator[None]:
        """A step outside the passes, with a time stamp of its own."""
        with self._guarded():
            self.scheduler.stamp(self.scheduler.clock())
            yield
            self.admission.conclude()
            self.tell()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Store an exception that leaves the block as the engine's fault."""
        try:
            yield
        except BaseException as error:
            self.fault = error
            raise


def states_of(backends: Mapping[str, Device], inline_work: int, tally: Tally) -> dict[str, DeviceState]:
    """The states of devices, by name."""
    late, uses = any(stream.late_errors for backend in backends.values() for stream in backend.streams), Uses()
    return {
        name: DeviceState(backend, inline_work, late_errors=late, uses=uses, tally=tally)
        for name, backend in backends.items()
    }


def drop_report(_session: VmSession, _error: TensordError) -> None:
    """The default of `Engine.report`: drop the error."""


def may_go_on(session: VmSession) -> bool:
    """Whether the session's run may issue more instructions."""
    return not session.waits() and len(session.live) <= LIVE
