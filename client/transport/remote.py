"""The transport to a daemon: ZeroMQ frames out and in, over ipc or tcp.

Theory of operation. A ZeroMQ socket belongs to one thread at a time: whoever holds `socket_lock`. A thread that waits
for an answer becomes the *reader*: it sleeps in ZeroMQ's poll over the socket, its monitor and a bell, and holds the
lock while it does; so an op and its result change threads nowhere in this process, and the wake-ups that libzmq makes
for itself stay in C. Who wants to send meanwhile takes the `gate`, rings, and gets the lock before the reader has it
again, since everybody passes the gate. Others that wait sleep beside the reader, and are rung by whoever receives their
answer. While nobody waits, a background thread looks after unsent messages and the connection, and reads if an answer
is outstanding that somebody awaits.

Guarantees. Every wait ends when its answer comes, when its time is over, or when the connection is lost: at once on
ipc, where the kernel tells; elsewhere when the lease is over. No lock but these two is held while sleeping. User
callbacks run outside of both, in the order of the answers, and may neither submit nor wait.

Rejected: a thread that owns the socket (two hand-offs per op); sleeping on the socket's descriptor without the lock
(libzmq wakes it for its own commands, three times per op, and each wake-up in Python costs as much as the answer).
"""

from __future__ import annotations

import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from ...interpreter.errors import ConnectionLost, MetadataError, ProtocolError, TensordError
from ...interpreter.interrupts import SHIELD
from ...interpreter.types.meta import Meta
from ...interpreter.wire.frames import ACK, CANCEL, MAPPED_ARRAY
from ...interpreter.wire.messages import Message
from .incoming import ACK_EVERY, Incoming
from .interface import Reply
from .link import FAILURES, LINGER_MS, Link
from .outgoing import Outgoing
from .segments import MappedResults, UploadSegments

ENDS = frozenset({zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED, *FAILURES})
IDLE_FLUSH = 0.002  # seconds after which the background sends what a session left unsent
AWAKE_ROUNDS = 50  # background rounds without unsent work before it dozes
DOZE = 0.1
RETRY = 0.5  # seconds until the first attempt to reconnect is given up, and twice as many for each further one
LONGEST_RETRY = 5.0


class Bell:
    """Wakes a thread that sleeps in `poll`."""

    __slots__ = ("fd",)

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Wake the sleeper, or the next one."""
        with suppress(OSError, ValueError):  # closed
            os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Forget earlier rings."""
        with suppress(OSError, ValueError):
            os.eventfd_read(self.fd)

    def sleep(self, timeout: float) -> None:
        """Sleep until rung, or for so many seconds."""
        poll = select.poll()  # descriptors may have large numbers
        poll.register(self.fd, select.POLLIN)
        if poll.poll(ceil(timeout * 1000)):
            self.clear()

    def close(self) -> None:
        """Nobody sleeps on it, nobody rings it."""
        fd, self.fd = self.fd, -1
        os.close(fd)


class Waiter:
    """A thread that sleeps while another one reads."""

    __slots__ = ("bell", "predicate")

    def __init__(self, predicate: Callable[[], bool]) -> None:
        self.predicate = predicate
        self.bell = threading.Event()


class RemoteTransport:
    """A session's connection to a daemon."""

    def __init__(self, address: str, options: Mapping[int, Any], name: str, *, strict: bool) -> None:
        self._link = link = Link(address, options, name, strict=strict)
        settings = link.welcome.settings
        self.devices = link.welcome.devices
        self.inline_work = int(settings["inline_work"])
        self.gate = threading.Lock()
        self.socket_lock = threading.Lock()
        self.owner = 0  # the thread that holds it
        self._inside: set[int] = set()  # threads that have it, want it, or are about to be without it
        self._polling = False  # its holder sleeps
        SHIELD.install()
        self.shield = SHIELD
        self._pid = os.getpid()
        self._window, self._frame = int(settings["window"]), int(settings["frame"])
        self._window_bytes = int(settings["window_bytes"])
        self._lease = float(settings["lease"])
        self._numbers = itertools.count(1)
        self._generation = 0
        self._let_go: Callable[[int], None] = ignore
        shared = bool(settings["shared"])
        most = (int(settings["segments"]), int(settings["mapped"]))
        self._uploads = UploadSegments(most=most) if shared else None
        self._mapped = MappedResults(int(settings["pid"]), self._release) if shared else None
        self._outgoing = Outgoing(link, lambda: next(self._numbers), self._uploads)
        freed = self._uploads.freed if self._uploads is not None else ignore
        self._incoming = Incoming(self._outgoing, self._mapped, self._release, freed)
        self._incoming.resumed = self._resumed
        self.maps = shared
        self.eager = True
        self._role = threading.Lock()
        self._bell = Bell()
        self._cancel_due = False
        self._attended: deque[Reply] = deque()
        self._read_at = 0.0  # when somebody took what had arrived
        self._waiters: list[Waiter] = []
        self._effects_lock = threading.Lock()
        self._calling_back = 0
        self._hook: Callable[[], bool] | None = None
        self._awake = False
        self._closing = False
        self._closed = False
        self._away_since = 0.0
        self._retry_at = 0.0
        self._patience = RETRY / 2
        self._background_bell = Bell()
        for event in link.watch(self._bell.fd):
            self._happened(event)
        self._background = threading.Thread(target=self._run_background, name="tensord-remote", daemon=True)
        self._background.start()

    # -- sending ---------------------------------------------------------------------------------------------------

    def new_array(self, meta: Meta) -> NDArray[Any]:
        """In an upload segment, which the daemon takes as it is, where that is worth it."""
        if meta.nbytes < MAPPED_ARRAY:
            return np.empty(meta.shape, meta.dtype)
        array = None if self._uploads is None else self._uploads.empty(meta.shape, meta.dtype)
        if array is not None:
            return array
        if meta.nbytes > self._frame:
            raise MetadataError(
                f"asarray: {meta.nbytes} bytes do not fit in a frame of {self._frame}; upload them in parts, or "
                "raise the daemon's limit (frame)",
                op="asarray",
            )
        return np.empty(meta.shape, meta.dtype)

    def send(self, messages: Sequence[Message]) -> None:
        """Hand over a batch in program order."""
        self._enter()
        self._acquire()  # by an outbox, which has raised the shield
        try:
            self._check()
            if self._cancel_due:  # a restart that knows of it may be among the messages
                self._send_cancel()
            self._announce()
            self._outgoing.send(messages)
        finally:
            self._let_loose()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """The socket is ours; whoever sleeps with it is woken. Ctrl-C is kept back meanwhile."""
        with SHIELD:
            self._acquire()
            try:
                yield
            finally:
                self._let_loose()

    def _acquire(self) -> None:
        me = threading.get_ident()
        self._inside.add(me)  # first, since a signal handler may run anywhere in here
        try:
            with self.gate:
                if self._polling:  # it looks at the gate after saying so: one of us sees the other
                    self._bell.ring()
                self.socket_lock.acquire()
            self.owner = me
        except BaseException:
            self._inside.discard(me)
            raise

    def _let_loose(self) -> None:
        self.owner = 0
        self.socket_lock.release()
        self._inside.discard(threading.get_ident())

    def _enter(self) -> None:
        """Refuse whom the lock, or the order of callbacks, would wait for itself."""
        me = threading.get_ident()
        if me in self._inside or me == self._calling_back:
            raise ProtocolError("a side effect's callback, or a signal handler there, may neither submit nor wait")
        if os.getpid() != self._pid:
            raise ConnectionLost("this session belongs to another process; connect again after a fork")

    @property
    def lost(self) -> bool:
        """Has the daemon ended, or the session there?"""
        return self._incoming.lost is not None

    def _check(self) -> None:
        if self._closed:
            raise ConnectionLost("the session is closed")
        if self._incoming.lost is not None:
            raise self._incoming.lost.reraisable()

    def _announce(self) -> None:
        if self._uploads is not None:
            for header in self._uploads.announcements():
                self._link.send(header)

    def await_credit(self) -> None:
        """Wait while the session has too much unfinished."""
        if not self._has_credit(self._window, self._window_bytes):
            self._wait_until(lambda: self._has_credit(self._window // 2, self._window_bytes), None)

    def _has_credit(self, window: int, window_bytes: int) -> bool:
        outgoing, incoming = self._outgoing, self._incoming
        if incoming.lost is not None:
            return True
        unread = outgoing.sent_bytes - incoming.consumed_bytes
        return outgoing.sent - incoming.consumed <= window and unread <= window_bytes

    def cancel(self) -> None:
        """Cancel the session's pending instructions; overtakes them.

        From a signal handler on the thread that uses the socket, it is sent as soon as that is over.
        """
        self._generation += 1
        self._incoming.broken.clear()
        if threading.get_ident() in self._inside:
            self._cancel_due = True
            self._bell.ring()
            self._background_bell.ring()
            return
        self._enter()
        with self._lock():
            self._check()
            self._send_cancel()

    def _send_cancel(self) -> None:
        self._cancel_due = False
        if not self._outgoing.away:
            self._link.send([CANCEL, self._generation])

    # -- waiting ---------------------------------------------------------------------------------------------------

    def request(self) -> tuple[int, Reply]:
        """A new request."""
        number, reply = next(self._numbers), Reply()
        self._incoming.replies[number] = reply
        if self._incoming.lost is not None:
            self._incoming.fail(self._incoming.lost)
        return number, reply

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        """Read until the reply is there."""
        return reply.done or self._wait_until(lambda: reply.done, timeout)

    def _wait_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        self._enter()
        deadline = None if timeout is None else time.monotonic() + timeout
        with SHIELD:  # Ctrl-C anywhere but in the sleeps themselves would leave a lock or a role taken
            try:
                while not predicate():
                    if self._closed:
                        raise ConnectionLost("the session was closed")
                    rest = None if deadline is None else deadline - time.monotonic()
                    if rest is not None and rest <= 0:
                        return False
                    self._sleep(predicate, rest)
                return True
            finally:
                if self._waiters and not self._role.locked():
                    self._hand_on()  # we may have been rung to read, and leave instead

    def _sleep(self, predicate: Callable[[], bool], timeout: float | None) -> None:
        """Sleep until something arrives: as the reader, or as one whom the reader wakes."""
        if not self._role.acquire(blocking=False):
            self._sleep_beside(predicate, timeout)
            return
        try:
            self._read(timeout, predicate)
        finally:
            self._role.release()
            self._hand_on()

    def _read(self, timeout: float | None, predicate: Callable[[], bool] = bool) -> None:
        """Take what arrives, sleeping until something does or the bell is rung. By the one who has the role."""
        limit = None if timeout is None else ceil(max(timeout, 0.0) * 1000)
        self._acquire()
        try:
            if predicate() or self._closed:
                return
            self._polling = True
            with SHIELD.exposed:
                ready = self._link.poll(0 if self.gate.locked() else limit)
            self._polling = False
            self._receive(ready)
            self._read_at = time.monotonic()
        finally:
            self._polling = False
            self._let_loose()
        if self._incoming.effects or self._waiters:
            self._after_receiving()

    def _sleep_beside(self, predicate: Callable[[], bool], timeout: float | None) -> None:
        waiter = Waiter(predicate)
        try:
            self._waiters.append(waiter)
            if self._role.locked() and not (predicate() or self._closed):
                with SHIELD.exposed:
                    waiter.bell.wait(timeout)  # whoever leaves the role rings
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)

    def _hand_on(self) -> None:
        """The reader leaves: somebody else has to read for those who still wait."""
        for waiter in list(self._waiters):
            if not waiter.predicate():  # else it leaves, too
                waiter.bell.set()
                return
        if self._attended or self._outgoing.effects:
            self._background_bell.ring()

    def _receive(self, ready: Sequence[tuple[Any, int]]) -> None:
        """Take what has arrived; the caller holds the lock."""
        link, incoming = self._link, self._incoming
        for source, _ in ready:
            if source is link.socket:
                self._take()
            elif source == link.monitor_fd:
                for event in link.events():
                    self._happened(event)
            else:
                self._bell.clear()
        if self._lease and incoming.received - incoming.acknowledged >= ACK_EVERY:
            incoming.acknowledged = incoming.received
            link.send([ACK, incoming.received])
        if self._cancel_due:
            self._send_cancel()
        if incoming.lost is not None:
            incoming.fail(incoming.lost)

    def _take(self) -> None:
        """Take one message. A daemon that is not understood is lost: its other answers would be, too."""
        frames = self._link.receive()
        try:
            self._incoming.take(frames)
        except (ProtocolError, ValueError, TypeError, LookupError) as error:
            self._incoming.fail(
                ConnectionLost(f"the daemon at {self._link.address} says what nobody understands: {error}")
            )

    def _happened(self, event: int) -> None:
        """Something has happened to the connection; the caller holds the lock."""
        if event not in ENDS:
            return
        with suppress(zmq.Again):  # what it said before
            while self._incoming.lost is None:
                self._take()
        if self._outgoing.away:
            return
        if not self._lease:
            self._incoming.fail(ConnectionLost(f"the daemon at {self._link.address} is gone"))
            return
        self._outgoing.away = True
        self._away_since = time.monotonic()
        self._retry_at = 0.0
        self._background_bell.ring()

    def _reconnect(self) -> None:
        """Try to come back: a new connection, on which we say who we are."""
        with self._lock():
            now = time.monotonic()
            if self._closed or not self._outgoing.away or now < self._retry_at:
                return
            if self._incoming.lost is not None:  # the daemon does not want us back
                self._outgoing.away = False
                return
            self._patience = min(2 * self._patience, LONGEST_RETRY)  # a handshake takes its time, too
            self._retry_at = now + self._patience
            if now - self._away_since > self._lease:
                self._outgoing.away = False
                self._incoming.fail(
                    ConnectionLost(f"the daemon at {self._link.address} has been out of reach too long")
                )
                return
            self._link.reopen()
            self._link.watch(self._bell.fd)
            self._link.hello(self._link.welcome.token, self._incoming.received)

    def _resumed(self, received: int) -> None:
        """The daemon knows us again: send what it has missed; the caller holds the lock."""
        self._patience = RETRY / 2
        self._outgoing.away = False
        if self._generation:  # it may have been lost; if not, the daemon knows that it has seen it
            self._link.send([CANCEL, self._generation])
        self._outgoing.send_again(received)

    def _after_receiving(self) -> None:
        """Call back, and wake those whose answers have come; without the lock. A callback gets no first Ctrl-C."""
        with SHIELD:
            while self._incoming.effects and self._effects_lock.acquire(blocking=False):
                try:
                    self._calling_back = threading.get_ident()
                    self._incoming.run_effects()
                finally:
                    self._calling_back = 0
                    self._effects_lock.release()
            for waiter in list(self._waiters):
                if waiter.predicate() or self._closed:
                    waiter.bell.set()

    # -- the background --------------------------------------------------------------------------------------------

    def rouse(self, idle_flush: Callable[[], bool]) -> None:
        """Have the background thread look after unsent messages."""
        self._hook = idle_flush
        if not self._awake:
            self._awake = True
            self._background_bell.ring()

    def let_go_with(self, drop: Callable[[int], None]) -> None:
        """What to call with the id that stands for a fetched result, when nobody looks at the result any more."""
        self._let_go = drop

    def _run_background(self) -> None:
        """Look after the session until it ends. A fault of ours ends it, and whoever waits is told."""
        try:
            self._look_after()
        except Exception as error:
            with self._lock():
                self._incoming.fail(ConnectionLost(f"the session's background thread failed: {error!r}"))
            self._after_receiving()

    def _look_after(self) -> None:
        """Send what lies idle, read for those who do not wait, watch the connection."""
        quiet = 0
        while not self._closed:
            if self._is_attended() and self._role.acquire(blocking=False):
                self._read_for_nobody()
            else:
                self._background_bell.sleep(self._pause())
            if self._closing:
                self.close()
            if self._closed:
                return
            if self._look_around():
                quiet, self._awake = 0, True
            elif self._awake:
                quiet += 1
                self._awake = quiet <= AWAKE_ROUNDS

    def attend(self, reply: Reply) -> None:
        """Somebody awaits the reply without waiting here: the background reads for him."""
        self._attended.append(reply)
        self._background_bell.ring()

    def _is_attended(self) -> bool:
        """Is there an answer to come for somebody who does not wait, or a side effect? The rest may come when somebody
        waits: a background thread that reads beside a foreground that asks one thing after the other doubles its time.
        For the background alone: of two threads that drop what is answered, one could drop what is not.
        """
        attended = self._attended
        while attended and attended[0].done:
            attended.popleft()
        return bool(attended or self._outgoing.effects)

    def _pause(self) -> float:
        if self._outgoing.away:
            return RETRY
        return IDLE_FLUSH if self._awake else DOZE

    def _read_for_nobody(self) -> None:
        try:
            with suppress(TensordError):
                self._read(self._pause())
        finally:
            self._role.release()
            self._hand_on()

    def _look_around(self) -> bool:
        """One round; was there anything unsent?"""
        with suppress(TensordError):  # whoever waits is told
            if time.monotonic() - self._read_at > DOZE and self._role.acquire(blocking=False):
                try:
                    self._read(0)
                finally:
                    self._role.release()
                    self._hand_on()
            if self._outgoing.away:
                self._reconnect()
            hook = self._hook
            return hook is not None and self._incoming.lost is None and hook()
        return False

    def _release(self, hold: int) -> None:
        """Nobody looks at a fetched result any more. Called anywhere, inside any lock."""
        self._let_go(hold)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the session."""
        if os.getpid() != self._pid:
            return  # it is the parent's
        self._enter()
        with self._lock():
            if self._closed:
                return
            self._closed = True
            linger = 0 if self._outgoing.away or self._incoming.lost is not None else LINGER_MS
            if self._mapped is not None:
                self._mapped.close()  # what is mapped may change once the session has ended
            with suppress(TensordError, zmq.ZMQError):
                self._link.bye()
            self._incoming.fail(ConnectionLost("the session was closed"))
        self._after_receiving()
        self._bell.ring()
        self._background_bell.ring()
        if threading.current_thread() is not self._background:
            self._background.join()
        with self._role, self.socket_lock:  # nobody sleeps on the descriptors any more
            self._finish(linger)

    def _finish(self, linger: int) -> None:
        self._link.close(linger)
        if self._uploads is not None:
            self._uploads.close()
        self._hook = None
        self._let_go = ignore
        SHIELD.remove()
        self._bell.close()
        self._background_bell.close()

    def abandon(self) -> None:
        """Have the background thread close it."""
        self._closing = True
        self._background_bell.ring()


def ignore(_what: Any) -> None:
    """Nobody is to be told."""
