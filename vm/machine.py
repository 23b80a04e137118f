"""The virtual machine: the engine, the thread that drives it, and its streams.

Theory of operation. The engine is a state machine that one thread at a time may touch: whoever holds `lock` drives
it. Embedded, that is the caller, at flush and at wait; so a chain of small ops never changes threads. Streams append
finished instructions to `engine.finished` and ring:

- nobody, if somebody drives or looks right now: who holds the lock looks again after letting go;
- the waiter that has the `role`, if one sleeps until something finishes;
- else the background thread, which drives in nobody's name, sends what sessions left unsent for 10 ms, and names
  kernels that hang.

Guarantees. A completion is never lost: it is in the deque before anybody is rung, and every driver looks at the deque
after letting go. Every wait ends when its predicate holds, when its time is over, or when the machine closes. No lock
is held while user code runs, but for side effects, which may neither submit nor wait.

Rejected: a scheduler thread of its own (a hand-off and back costs 12 us, 10 ms beside a busy thread), letting workers
drive (a kernel would then wait for the scheduler of another), a condition variable (wakes everybody).
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import numpy as np

from ..interpreter.errors import ConnectionLost, ProtocolError
from ..interpreter.interrupts import SHIELD, ShieldedLock
from ..streams.stream import Task
from .log import log
from .model.session import ReplySink, VmSession
from .reporting.questions import whole
from .runtime import HANG_AFTER, Runtime

IDLE_FLUSH = 0.01  # seconds after which a background flush sends what a session left unsent
AWAKE_ROUNDS = 50  # background rounds without unsent work before it sleeps for good
DOZE = 0.1  # seconds between looks at what idle sessions dropped
SWITCH_INTERVAL = 1e-4
WINDOW = 8192  # unfinished instructions a session may have
WINDOW_BYTES = 1 << 30  # bytes of uploads it may have unconsumed


class Bell:
    """A binary semaphore: a ring is remembered until somebody sleeps."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the sleeper, or the next one."""
        with suppress(RuntimeError):  # it has been rung already
            self._lock.release()

    def sleep(self, timeout: float | None) -> bool:
        """Sleep until rung; False after `timeout` seconds."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))


class Waiter:
    """A thread that sleeps while another one drives."""

    __slots__ = ("bell", "predicate")

    def __init__(self, predicate: Callable[[], bool]) -> None:
        self.predicate = predicate
        self.bell = Bell()


class VirtualMachine(Runtime):
    """An engine with devices, driven by its callers and a background thread."""

    def __init__(
        self,
        devices: Sequence[str | Mapping[str, object]] = (),
        *,
        tracing: bool = True,
        hang_after: float = HANG_AFTER,
    ) -> None:
        self.lock = ShieldedLock()
        self.role = threading.Lock()
        self.bell = Bell()
        self.background_bell = Bell()
        self.waiters: list[Waiter] = []
        self.leader: Callable[[], bool] | None = None  # what the thread with the role waits for, while it sleeps
        self.chores: deque[Callable[[], None]] = deque()  # for the background thread: what others may not do themselves
        self.hooks: dict[int, Callable[[], bool]] = {}  # session id -> sends what is unsent; was there anything?
        self.awake = False
        self.closed = True  # until it is complete
        self.dozing = False  # the background sleeps until it is rung
        super().__init__(devices, self.sink, tracing=tracing, hang_after=hang_after)
        SHIELD.install()
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(min(self._interval, SWITCH_INTERVAL))
        self._background = threading.Thread(target=self.run_background, name="tensord-background", daemon=True)
        self.closed = False
        self._background.start()
        MACHINES.add(self)

    # -- sessions --------------------------------------------------------------------------------------------------

    def attach(self, reply: ReplySink, *, strict: bool = False) -> VmSession:
        """A new session."""
        with self.inside():
            return self.engine.open_session(reply, strict=strict)

    def detach(self, session: VmSession) -> None:
        """End a session: what it has pending is cancelled, its tensors are released."""
        self.hooks.pop(session.id, None)
        with self.inside():
            self.places.ended(session)
            self.engine.close(session)
        self.drive()

    def submit(self, session: VmSession, messages: Sequence[Sequence[Any]]) -> None:
        """Take a batch and drive."""
        if self.closed:
            raise ConnectionLost("the virtual machine is closed")
        self.refuse_driver()
        with self.lock:
            self.engine.receive(session, messages)
        self.drive()
        if self.dozing and self.engine.live:
            self.background_bell.ring()  # something may hang

    def await_credit(self, session: VmSession) -> None:
        """Wait while the session has too much unfinished. Cancel, release and close need no credit."""
        if len(session.live) > WINDOW or session.payload > WINDOW_BYTES:
            self.wait_until(lambda: len(session.live) <= WINDOW // 2 and session.payload <= WINDOW_BYTES)

    def cancel(self, session: VmSession) -> None:
        """Cancel what the session has pending; overtakes nothing that runs.

        From a signal handler or a callback on the thread that drives, it takes effect as soon as that is over.
        """
        if self.lock.owner == threading.get_ident():
            self.chores.append(lambda: self.cancel(session))
            self.background_bell.ring()
            return
        with self.inside():
            self.engine.cancel(session)
        self.drive()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Touch the engine without driving it; what finished meanwhile rang nobody, and is looked after."""
        self.refuse_driver()
        try:
            with self.lock:
                yield
        finally:
            if self.engine.finished:
                self.drive()

    def refuse_driver(self) -> None:
        """A callback or signal handler on the thread that drives would wait for itself."""
        if self.lock.owner == threading.get_ident():
            raise ProtocolError("a side effect's callback, or a signal handler there, may neither submit nor wait")

    # -- driving ---------------------------------------------------------------------------------------------------

    def drive(self) -> None:
        """Run the engine until nothing moves without a completion."""
        engine = self.engine
        while True:
            with self.lock, np.errstate(all="ignore"):
                while engine.schedule():
                    pass
                if self.waiters or self.leader is not None:
                    self.wake_waiters()
            if not engine.finished:
                return

    def wake_waiters(self) -> None:
        """Ring those whose wait is over."""
        leader = self.leader
        if leader is not None and (self.closed or leader()):
            self.bell.ring()
        for waiter in self.waiters:
            if self.closed or waiter.predicate():
                waiter.bell.ring()

    def sink(self, tasks: Sequence[Task]) -> None:
        """A stream reports finished instructions. Called on its thread."""
        self.engine.finished.extend(tasks)
        if self.lock.locked():
            return  # whoever holds it looks again
        if self.role.locked():
            self.bell.ring()
        else:
            self.background_bell.ring()

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Drive and sleep until the predicate holds; False after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.refuse_driver()
        while True:
            self.drive()
            if predicate():
                return True
            if self.closed:
                raise ConnectionLost("the virtual machine was closed")
            rest = None if deadline is None else deadline - time.monotonic()
            if rest is not None and rest <= 0:
                return False
            self.sleep(predicate, rest)

    def sleep(self, predicate: Callable[[], bool], timeout: float | None) -> None:
        """Sleep until something finishes: as the one who then drives, or as one whom the driver wakes."""
        leads = False
        try:
            with SHIELD:  # Ctrl-C between taking the role and knowing of it would leave it taken for good
                leads = self.role.acquire(blocking=False)
            if leads:
                self.leader = predicate  # before it looks: whoever makes it true after that rings
                if not (self.engine.finished or predicate() or self.closed):
                    self.bell.sleep(timeout)
        finally:
            if leads:
                self.leader = None
                self.role.release()
                if self.waiters:
                    self.background_bell.ring()  # somebody has to drive for those who still wait
        if not leads:
            self.sleep_beside(predicate, timeout)

    def sleep_beside(self, predicate: Callable[[], bool], timeout: float | None) -> None:
        """Sleep while another thread has the role."""
        waiter = Waiter(predicate)
        self.waiters.append(waiter)
        try:
            if not predicate() and not self.closed:
                waiter.bell.sleep(timeout)
        finally:
            self.waiters.remove(waiter)

    # -- the background --------------------------------------------------------------------------------------------

    def rouse(self) -> None:
        """Unsent work is there: look after it in a while. Cheap while the background is awake."""
        if not self.awake:
            self.awake = True
            self.background_bell.ring()

    def run_background(self) -> None:
        """Drive when nobody does, flush what lies idle, watch for hangs."""
        quiet = 0
        checked = time.monotonic()
        while not self.closed:
            self.dozing = True  # before it looks: whoever submits after that rings
            timeout = IDLE_FLUSH if self.awake else min(DOZE, self.watch_period) if self.is_in_use() else None
            self.dozing = timeout is None
            self.background_bell.sleep(timeout)
            if self.closed:
                return
            if self.look_around():
                quiet, self.awake = 0, True
            elif self.awake:
                quiet += 1
                self.awake = quiet <= AWAKE_ROUNDS
            if time.monotonic() - checked >= self.watch_period:
                checked = time.monotonic()
                self.watch()

    def look_around(self) -> bool:
        """Drive for nobody, do what others left to do, send what lies idle. Was there anything unsent?"""
        try:
            while self.chores:
                self.chores.popleft()()
            if self.engine.finished or self.waiters:
                self.drive()
            found = [hook() for hook in list(self.hooks.values())]  # every one of them has to be called
        except Exception:
            log.exception("the background thread goes on after an error")
            return False
        return any(found)

    def is_in_use(self) -> bool:
        """Something runs that may hang, or there are handles that may be dropped, which rings nobody."""
        engine = self.engine
        return bool(engine.live) or any(session.tensors for session in list(engine.directory.sessions.values()))

    def watch(self) -> bool:
        """Name kernels that hang; somebody may wait for just that."""
        changed = super().watch()
        if changed:
            self.drive()
        return changed

    # -- looking inside --------------------------------------------------------------------------------------------

    def answer(self, session: VmSession, what: str, arguments: Sequence[Any]) -> Any:
        """What a session asks about the machine, at once. Called by the engine, so while somebody drives it."""
        return whole(super().answer(session, what, arguments))

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> bool:
        """Cancel what is pending, wait for what runs, end every thread; False if a kernel did not end in time."""
        if self.closed:
            return True
        MACHINES.discard(self)
        deadline = time.monotonic() + timeout
        for session in list(self.engine.directory.sessions.values()):
            self.detach(session)
        self.wait_until(lambda: not self.engine.live, timeout / 2)
        self.closed = True
        with self.lock:
            self.wake_waiters()
        self.bell.ring()
        self.background_bell.ring()
        ended = super().close(max(deadline - time.monotonic(), 0.1))
        if self._background is not threading.current_thread():
            self._background.join(max(deadline - time.monotonic(), 0.1))
        sys.setswitchinterval(self._interval)
        SHIELD.remove()
        return ended


def close_machines() -> None:
    """At the interpreter's exit: a thread inside a kernel would hang or crash in libraries that are shut down."""
    for machine in list(MACHINES):
        machine.close()


MACHINES: WeakSet[VirtualMachine] = WeakSet()
atexit.register(close_machines)
