"""The embedded virtual machine: an engine with its streams, and the threads that drive it.

Theory of operation. One thread at a time may touch the engine: the thread that holds `lock` *drives* it. The caller
drives, at flush and at wait, so a chain of small ops never changes threads. Waiting threads are leader and followers
(`interpreter/concurrency/leader_followers.py`): the leader sleeps until an instruction finishes, and drives. A stream
appends finished instructions to `engine.finished`, and then wakes

- no thread, if one holds the lock: that thread checks the deque again after it has released the lock;
- the leader, if there is one;
- else the background thread, which drives. The background thread also sends messages that sessions left unsent for 10
  ms, logs kernels that hang, continues runs, and releases handles of closed sessions in small pieces. Between two
  pieces it gives way to a thread that waits for the lock.

Guarantees. No completion is lost: it is in the deque before a thread is woken, and every thread checks the deque after
it has driven, or stopped leading. No lock is held while user code runs, except for side effects, which may neither
submit nor wait.

Rejected: letting the streams' workers drive (a kernel would then wait for the scheduling of another one).
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

from ..interpreter.concurrency.background import DOZE_INTERVAL, Background
from ..interpreter.concurrency.bell import Bell
from ..interpreter.concurrency.interrupts import SHIELD
from ..interpreter.concurrency.leader_followers import Awaited, LeaderFollowers, Until
from ..interpreter.concurrency.process_end import AT_END
from ..interpreter.concurrency.shielded_lock import ShieldedLock
from ..interpreter.concurrency.switch_interval import SWITCH_INTERVAL
from ..interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ..interpreter.numpy_errors import ERROR_STATE, IGNORE
from ..streams.links.link import Links
from ..streams.stream import Task
from .client_files import open_own_file
from .failures import log_lines
from .log import log
from .model.session import ReplySink, VmSession
from .reporting.questions import whole
from .runtime import HANG_AFTER, Runtime, answering

IDLE_FLUSH = 0.01  # seconds after which a background flush sends a session's unsent messages
PIECE = 0.005  # seconds for which a thread that submits something carries on a run
LOOK = 0.0005  # seconds for which a waiting thread polls for a fence before it sleeps
WINDOW = 8192  # unfinished instructions that a session may have
WINDOW_BYTES = 1 << 30  # bytes of unconsumed uploads that a session may have


class VirtualMachine(Runtime):
    """An engine with devices, driven by its callers and a background thread.

    The leader's duty (`ring`, `serve`, `unattended`) is to drive the engine when an instruction has finished.
    """

    def __init__(
        self,
        devices: Sequence[str | Mapping[str, object]] = (),
        *,
        tracing: bool = True,
        hang_after: float = HANG_AFTER,
        node: str = "",
        links: Links | None = None,
    ) -> None:
        self.lock = ShieldedLock()
        self.bell = Bell()  # wakes the leader
        self.ring = self.bell.ring
        self.waiting = LeaderFollowers(self, "the virtual machine was closed")
        self.background = Background(
            "tensord-background",
            look_around=self.look_around,
            pause=self.pause,
            failed=lambda error: log.error("the background thread goes on after an error", exc_info=error),
        )
        self.chores: deque[Callable[[], None]] = deque()  # for the background thread, from other threads
        self.cancellations: deque[VmSession] = deque()  # begun on the driving thread in the middle of a pass
        self.hooks: dict[int, Callable[[], bool]] = {}  # session id -> sends unsent messages; True if there were any
        self.closed = True  # until the constructor is done
        self.fault: ConnectionLost | None = None  # set after a bug of the engine, whose state is then unreliable
        self.on_fault: dict[int, Callable[[TensordError], None]] = {}  # session id -> fails its open requests
        self._shut = False
        self._watched_at = time.monotonic()
        super().__init__(
            devices, self.sink, tracing=tracing, hang_after=hang_after, node=node, links=links, driving=self.locked
        )
        SHIELD.install()
        SWITCH_INTERVAL.shorten()
        self.closed = False
        self.background.start()
        if not MACHINES:
            AT_END.register(close_machines)
        MACHINES.add(self)

    # -- sessions --------------------------------------------------------------------------------------------------

    def attach(
        self,
        reply: ReplySink,
        name: str = "",
        *,
        strict: bool = False,
        on_fault: Callable[[TensordError], None] = lambda _error: None,
    ) -> VmSession:
        """Open a session. `on_fault` gets the error if the machine has a fault, so that no answers will come."""
        with self.inside():
            session = self.engine.open_session(reply, name, strict=strict, trusted=True)
            session.files.open = open_own_file
            session.files.may_store = True
            self.on_fault[session.id] = on_fault
        return session

    def detach(self, session: VmSession) -> None:
        """Close a session: cancel its live instructions, and release its tensors."""
        self.hooks.pop(session.id, None)
        self.on_fault.pop(session.id, None)
        if self.fault is not None:
            return
        with self.inside():
            lines = self.departing(session)
            self.engine.close(session)
        log_lines(lines)
        self.drive()

    def submit(self, session: VmSession, messages: Sequence[Sequence[Any]]) -> None:
        """Queue a batch of messages, and drive."""
        if self.closed:
            raise ConnectionLost("the virtual machine is closed") if self.fault is None else self.fault.reraisable()
        self.refuse_driver()
        self.engine.receive(session, messages)  # without the lock: a deque's `append` is one step
        self.drive(session)
        self.may_be_unsaved = True  # after the drive: names written meanwhile may miss these messages
        if self.fault is not None:
            raise self.fault.reraisable()
        if self.background.dozing and self.is_in_use():
            self.background.ring()  # its last check came before these instructions

    def await_credit(self, session: VmSession) -> None:
        """Wait while too much of the session is unfinished or launched. Cancelling and closing need no credit."""
        if len(session.live) > WINDOW or session.payload > WINDOW_BYTES or session.flooded:
            self.wait_until(
                lambda: len(session.live) <= WINDOW // 2 and session.payload <= WINDOW_BYTES and not session.flooded
            )

    def has_room(self, session: VmSession, share: float) -> bool:
        """Whether the session has at most this share of a window unfinished; True once the machine is closed.

        A task of an event loop asks repeatedly, and sleeps in between, while other threads wait for the fences that end
        a flood.
        """
        if session.flooded and self.engine.unwatched:
            with self.locked():
                self.engine.watch()
        few = len(session.live) <= WINDOW * share and session.payload <= WINDOW_BYTES * share
        return self.closed or (few and not session.flooded)

    def cancel(self, session: VmSession) -> None:
        """Cancel the session's live instructions; running kernels end in the background.

        In a signal handler or a callback on the driving thread, messages are refused and side effects stopped at once;
        live instructions are cancelled at the end of the engine's pass.
        """
        if self.lock.owner == threading.get_ident():
            self.engine.begin_cancel(session)
            self.cancellations.append(session)
            return
        with self.inside():
            self.engine.cancel(session)
        self.drive()

    def returned(self, session: VmSession, number: int, error: TensordError | None, arrays: Sequence[Any] = ()) -> None:
        """Accept the results of a host call, or its error; do nothing if the machine is closed."""
        if not self.closed:
            with suppress(ConnectionLost), self.inside():
                self.engine.returned(session, number, error, arrays)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A block that uses the engine without driving it.

        Any exception inside counts as a fault of the engine, so nothing else belongs in the block.
        """
        self.refuse_driver()
        if self.fault is not None:
            raise self.fault.reraisable()
        with self.locked():
            try:
                yield
            except BaseException as error:
                raise self.end_broken(error) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the driving thread's lock. Completions in the meantime wake no thread, so the end checks for them."""
        try:
            with self.lock:
                yield
        finally:
            if self.engine.finished or self.cancellations:
                self.drive()
            elif self.engine.in_run():  # the thread that drove may have stopped for this one
                self.hand_on()

    def refuse_driver(self) -> None:
        """ProtocolError in a callback or signal handler on the driving thread, which would wait for itself."""
        if self.lock.owner == threading.get_ident():
            raise ProtocolError("a side effect's callback, or a signal handler there, may neither send nor wait")

    # -- driving ---------------------------------------------------------------------------------------------------

    def drive(self, session: VmSession | None = None) -> None:
        """Run the engine until it cannot go on without a completion.

        Long work is left to the background thread: releasing handles of closed sessions, and admitting batches that are
        held back (behind a run, or because the session is ahead of its device), once that has taken a while or another
        thread wants to drive. A thread that drives for a `session` does not admit batches held back for others.
        """
        engine, waiting, cancellations = self.engine, self.waiting, self.cancellations
        until, later = 0.0, False
        while self.fault is None:
            with self.lock:
                token = ERROR_STATE.set(IGNORE)
                try:
                    while self.fault is None:  # again: another thread may have set it before this one got the lock
                        if cancellations:
                            self.take_cancellations()
                        if not engine.schedule(session):
                            break
                        if engine.held:
                            until = until or time.monotonic() + PIECE
                            others = session is not None and session not in engine.held and not engine.pending
                            later = others or self.lock.wanted() or time.monotonic() > until
                        else:
                            later = engine.only_releases_are_left()
                        if later:
                            break
                except BaseException as error:
                    raise self.end_broken(error) from error
                finally:
                    ERROR_STATE.reset(token)
                if waiting.followers or waiting.leader is not None:
                    waiting.wake()
            if later:
                self.hand_on()
                return
            if not (engine.finished or self.cancellations):
                return

    def hand_on(self) -> None:
        """Make another thread drive soon: one that waits for the lock, else the leader, else the background thread."""
        if self.lock.wanted():
            return
        if self.waiting.role.locked():
            self.bell.ring()
        else:
            self.background.ring()

    def take_cancellations(self) -> None:
        """Finish the cancellations that callbacks began. The caller holds the lock, between two passes."""
        while self.cancellations:
            self.engine.finish_cancel(self.cancellations.popleft())

    def end_broken(self, error: BaseException) -> ConnectionLost:
        """End all waits and requests after an exception has left the engine; return the error to raise.

        The exception stopped a step in its middle, so counts and edges may be wrong, and going on could give wrong
        values. The caller holds the lock. `close` ends the threads.
        """
        log.critical("the virtual machine has a fault and takes no more work", exc_info=error)
        why = f"the virtual machine has ended after a fault of its own: {type(error).__name__}: {error}"
        self.fault = ConnectionLost(why)
        self.closed = True
        self.waiting.close(why)
        for on_fault in list(self.on_fault.values()):
            on_fault(self.fault)
        return self.fault.reraisable()

    def sink(self, tasks: Sequence[Task]) -> None:
        """Take the finished instructions of a stream, on the stream's thread."""
        self.engine.finished.extend(tasks)
        if self.lock.owner:
            return  # the thread that holds the lock checks again
        if self.waiting.role.locked():
            self.bell.ring()
        else:
            self.background.ring()

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Drive and sleep until the predicate holds; False after `timeout` seconds."""
        return self.wait_for(Until(predicate), timeout)

    def wait_for(self, awaited: Awaited, timeout: float | None = None) -> bool:
        """Drive and sleep until the awaited object is done; False after `timeout` seconds."""
        self.refuse_driver()
        if awaited.done and not self.lock.owner:  # else a pass may still use the results
            return True
        if awaited.done or self.engine.pending or self.engine.running or self.has_work():
            self.drive()
        return awaited.done or self.waiting.wait(awaited, timeout)

    def has_work(self) -> bool:
        """Whether the engine has work that no thread may be driving.

        Messages do not count: the thread that submitted them is about to drive, and may hold a lock of its session that
        a callback on another thread would wait for.
        """
        engine = self.engine
        found = engine.finished or self.cancellations or engine.directory.leaving or engine.unwatched
        return bool(found) or engine.in_run()

    def serve(self, awaited: Awaited, timeout: float | None) -> None:
        """Sleep until woken, unless there is work already; then drive. Called by the leader."""
        if not (self.engine.finished or awaited.done or self.closed or self.look(awaited)):
            SHIELD.sleep(self.bell, timeout)
        self.drive()

    def look(self, awaited: Awaited) -> bool:
        """Poll for a moment for unwatched fences, since sleeping and being woken takes longer.

        True once the awaited object is done; otherwise, other threads watch the fences from now on.
        """
        engine = self.engine
        until = 0.0
        while engine.unwatched:
            until = until or time.monotonic() + LOOK
            with self.lock:
                engine.poll()
            if engine.finished or engine.in_run():
                self.drive()
                if awaited.done:
                    return True
            elif time.monotonic() > until:
                with self.locked():  # a watching thread may report while this one holds the lock
                    engine.watch()
        return awaited.done

    def unattended(self) -> None:
        """Check for completions when no thread leads any more, since they may have woken the former leader."""
        if self.engine.finished:
            self.background.ring()

    # -- the background --------------------------------------------------------------------------------------------

    def pause(self, awake: bool) -> float | None:
        """Seconds until the background thread's next check; None to sleep until woken."""
        if self.engine.directory.leaving:
            return 0.0
        if awake:
            return IDLE_FLUSH
        return min(DOZE_INTERVAL, self.watch_period) if self.is_in_use() else None

    def look_around(self) -> bool:
        """Do the chores, drive if needed, send idle messages, watch for hangs; return whether messages were sent."""
        while self.chores:
            self.chores.popleft()()
        if self.has_work():
            self.lock.give_way()
            self.drive()
        sent = [hook() for hook in list(self.hooks.values())]  # a list, since every hook has to be called
        if time.monotonic() - self._watched_at >= self.watch_period:
            self._watched_at = time.monotonic()
            self.watch()
        return any(sent)

    def is_in_use(self) -> bool:
        """Whether periodic checks are needed: for hanging kernels, dropped handles, failures to log, names to write."""
        engine = self.engine
        return bool(engine.live or self.failures.entries or self.awaits_interval) or any(
            session.tensors for session in list(engine.directory.sessions.values())
        )

    def watch(self) -> bool:
        """`Runtime.watch`, then drive if anything changed: a thread may wait for the report of a hanging kernel."""
        changed = super().watch()
        if changed:
            self.drive()
        return changed

    # -- looking inside --------------------------------------------------------------------------------------------

    def answer(self, session: VmSession, what: str, arguments: Sequence[Any]) -> Any:
        """Answer a session's question about the machine. Called by the engine, on the driving thread."""
        with answering(what, session):
            return whole(super().answer(session, what, arguments))

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> bool:
        """Cancel live instructions, await running ones, end all threads; False if a kernel did not end in time."""
        if self._shut:
            return True
        self._shut = True
        MACHINES.discard(self)
        deadline = time.monotonic() + timeout
        with suppress(ConnectionLost):  # the engine has a fault
            for session in list(self.engine.directory.sessions.values()):
                self.detach(session)
            self.wait_until(lambda: not self.engine.live, timeout / 2)
            while self.engine.directory.leaving and self.fault is None:
                self.drive()
            with self.inside():
                self.engine.forget_names()
        self.closed = True
        self.waiting.close()
        self.background.stop()
        ended = super().close(max(deadline - time.monotonic(), 0.1))
        if self.fault is not None and ended:
            self.engine.drop_values()
        self.background.join(max(deadline - time.monotonic(), 0.1))
        SWITCH_INTERVAL.restore()
        SHIELD.remove()
        return ended


def close_machines() -> None:
    """Close all machines at the end of the process, before a kernel's thread hangs or crashes in unloaded libraries."""
    for machine in list(MACHINES):
        machine.close()


MACHINES: WeakSet[VirtualMachine] = WeakSet()
os.register_at_fork(after_in_child=MACHINES.clear)  # a child has none of the parent's threads
