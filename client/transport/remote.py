"""The transport to a daemon: ZeroMQ frames out and in, over ipc or tcp.

Theory of operation. The thread that waits for an answer reads the socket itself: it is the leader of the threads that
wait on this session (`interpreter/concurrency/leader_followers.py`), and sleeps in ZeroMQ's poll over the socket, its
monitor and a bell. So an op and its result never change threads in this process, and the internal wake-ups of libzmq
stay in C. The leader holds the socket's lock while it sleeps; a thread that sends overtakes it (`socket_lock`). While
no thread waits, a background thread sends unsent messages, checks the connection, and reads the socket if a callback
awaits an answer.

Guarantees. A wait also ends when the connection is lost: at once on ipc, where the kernel reports it; elsewhere when
the lease is over. No lock but the role and the socket's is held while sleeping. User callbacks run without the socket's
lock, in the order of the answers, and may neither send nor wait.

Rejected: a thread that owns the socket (two hand-offs per op).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Any
from weakref import WeakValueDictionary

import zmq
from numpy.typing import NDArray

from ...interpreter.concurrency.background import DOZE_INTERVAL, Background
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.concurrency.leader_followers import Awaited, LeaderFollowers, Until
from ...interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ...interpreter.wire.frames import ACK, CANCEL
from ...interpreter.wire.messages import Message
from ...interpreter.wire.monitor import SocketEvent
from ..process.forks import FORKS
from .callers import Callers, wait_for_machine
from .credit import Credit
from .idle_flush import IdleFlush
from .incoming import ACK_EVERY, CLOSED_HERE, Incoming
from .interface import FORKED
from .link import END_EVENTS, LINGER_MS, DealerSocket
from .memory import DaemonMemory
from .outgoing import OutgoingBatches
from .reconnecting import FIRST_PATIENCE, Reconnection
from .replies import Reply
from .socket_lock import PolledBell, SocketLock


class RemoteTransport:
    """A session's connection to a daemon.

    As the leader's duty (`ring`, `serve`, `unattended`), it takes the messages that arrive at the socket.
    """

    def __init__(self, address: str, options: Mapping[int, Any], name: str | None, *, strict: bool) -> None:
        self._link = link = DealerSocket(address, options, name, strict=strict)
        settings = link.welcome.settings
        self.devices = link.welcome.devices
        self.own_ops: Mapping[str, tuple[str, str]] | None = {
            str(name): (str(one[0]), str(one[1])) for name, one in settings["ops"].items()
        }
        self.inline_work = int(settings["inline_work"])
        self.node, self.incarnation = str(settings["node"]), int(settings["incarnation"])
        self.libraries: Mapping[str, str] = dict(settings.get("libraries", {}))
        self._bell = PolledBell()
        self.ring = self._bell.ring
        self.lock = SocketLock(self._bell)
        self.waiting = LeaderFollowers(self, CLOSED_HERE)
        SHIELD.install()
        self._inherited = False  # by a forked child
        FORKS.inherited.add(self)
        self._numbers = itertools.count(1)
        self._generation = 0
        self.memory = memory = DaemonMemory(settings)
        self._outgoing = outgoing = OutgoingBatches(link, lambda: next(self._numbers), memory.uploads)
        self._incoming = incoming = Incoming(outgoing, memory)
        self._effects = incoming.effects
        incoming.node, incoming.resumed = self.node, self._resumed
        incoming.callers = self.callers = Callers(self._give_back)
        self._credit = Credit(int(settings["window"]), int(settings["window_bytes"]), outgoing, incoming)
        self._reconnection = Reconnection(link, float(settings["lease"]), self._bell.fd)
        self.maps = self.opens_files = memory.uploads is not None
        self.names_files = bool(settings.get("files"))
        self.eager, self._cancel_due = True, False
        self.outboxes: WeakValueDictionary[int, Any] = WeakValueDictionary()  # only this session's
        self._attended: set[Reply] = set()  # without answered ones
        self._read_at = 0.0  # when a thread last read the socket
        self._flush = IdleFlush(outgoing)
        self._closing = False
        self.background = self.waker = Background(
            "tensord-remote",
            look_around=self._look_around,
            pause=self._pause,
            failed=self._background_failed,
            sleep=self._sleep_or_read,
        )
        for event in link.watch(self._bell.fd):
            self._handle_event(event)
        self.background.start()

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        self._enter()
        uploads = self.memory.uploads
        self.lock.acquire()  # by an outbox, which has raised the shield
        try:
            self._check()
            if self._cancel_due:  # a restart that counts it may be among the messages
                self._send_cancel()
            if uploads is not None:
                for header in uploads.announcements():
                    self._link.send(header)
            self._outgoing.send(messages)
        finally:
            self.lock.release()
        if self._outgoing.unsent:
            self.background.ring()

    def _give_back(self, number: int, error: TensordError | None, arrays: Sequence[NDArray[Any]]) -> None:
        """Send the results of a host call, outside of the batches, which may wait for it."""
        results = [self._outgoing.result(array) for array in arrays]
        with SHIELD, self.lock:
            self._check()
            self._outgoing.give_back(number, error, results)

    def _enter(self) -> None:
        """ProtocolError in a callback, and in a signal handler on a thread that has the lock: both would deadlock."""
        me = threading.get_ident()
        if me in self.lock.inside or me == self._effects.thread:
            raise ProtocolError("a side effect's callback, or a signal handler there, may neither send nor wait")
        if self._inherited:
            raise ConnectionLost(FORKED)

    def inherit(self) -> None:
        """Refuse everything from now on: this is a forked child, and the connection is its parent's."""
        self._inherited = True

    @property
    def lost(self) -> bool:
        return self._incoming.lost is not None

    def _check(self) -> None:
        if self.waiting.closed:
            raise ConnectionLost("the session is closed")
        if self._incoming.lost is not None:
            raise self._incoming.lost.reraisable()

    def await_credit(self) -> None:
        if not self._credit.has():
            wait_for_machine(lambda: self._wait(Until(self._credit.is_enough), None))

    def has_room(self, share: float) -> bool:
        return self._credit.has(share, share)

    def cancel(self) -> None:
        """Cancel the session's pending instructions; overtakes them.

        In a signal handler on the thread that uses the socket, CANCEL is sent as soon as that use is over. A callback
        may cancel, too: no thread holds the lock while it runs.
        """
        self._generation += 1
        self._effects.cancel(next(self._numbers))
        if self.lock.is_mine():
            self._cancel_due = True
            self._bell.ring()
            self.background.ring()
            return
        if self._inherited:
            raise ConnectionLost(FORKED)
        with self.lock:
            self._check()
            self._send_cancel()

    def _send_cancel(self) -> None:
        """Send CANCEL. Also cancel the side effects that were sent since the call; their answers may have arrived."""
        self._cancel_due = False
        self._effects.cancel(next(self._numbers))
        if not self._outgoing.away:
            self._link.send([CANCEL, self._generation])

    # -- waiting ---------------------------------------------------------------------------------------------------

    def request(self) -> tuple[int, Reply]:
        number, reply = next(self._numbers), Reply()
        self._incoming.replies[number] = reply
        if self._incoming.lost is not None:
            self._incoming.fail(self._incoming.lost)
        return number, reply

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        return reply.done or self.callers.wait(self._wait, reply, timeout)

    def _wait(self, awaited: Awaited, timeout: float | None) -> bool:
        self._enter()
        return self.waiting.wait(awaited, timeout)

    def serve(self, awaited: Awaited, timeout: float | None) -> None:
        """Sleep until messages arrive or the bell rings; then take the messages. Called by the leader."""
        limit = None if timeout is None else ceil(max(timeout, 0.0) * 1000)
        lock = self.lock
        lock.acquire()
        try:
            if awaited.done or self.waiting.closed:
                return
            self._receive(lock.poll(self._link.poll, limit))
            self._read_at = time.monotonic()
        finally:
            lock.release()
        if self._effects.answers or self.waiting.followers:
            self._after_receiving()

    def unattended(self) -> None:
        """Make the background read answers for callbacks, since no thread leads any more."""
        if self._is_attended():
            self.background.ring()

    def _receive(self, ready: Sequence[tuple[Any, int]]) -> None:
        """Handle all arrived messages; the caller holds the lock."""
        link, incoming = self._link, self._incoming
        for source, _ in ready:
            if source is link.socket:
                self._take()
            elif source == link.monitor_fd:
                for event in link.events():
                    self._handle_event(event)
            else:
                self._bell.clear()
        if self._reconnection.lease and incoming.received - incoming.acknowledged >= ACK_EVERY:
            incoming.acknowledged = incoming.received
            link.send([ACK, incoming.received])
        if self._cancel_due:
            self._send_cancel()
        if incoming.lost is not None:
            incoming.fail(incoming.lost)

    def _take(self) -> None:
        """Handle one message. A daemon that sends nonsense counts as lost, since its other answers could not be
        trusted."""
        frames = self._link.receive()
        try:
            self._incoming.take(frames)
        except (ProtocolError, ValueError, TypeError, LookupError) as error:
            self._incoming.fail(
                ConnectionLost(
                    f"the daemon at {self._link.address} sent something that this client does not understand: {error}"
                )
            )

    def _handle_event(self, event: SocketEvent) -> None:
        """Handle an event of the connection; the caller holds the lock."""
        if event.kind not in END_EVENTS:
            return
        with suppress(zmq.Again):  # messages sent before the end
            while self._incoming.lost is None:
                self._take()
        if self._outgoing.away:
            return
        if not self._reconnection.lease:
            self._incoming.fail(ConnectionLost(f"the daemon at {self._link.address} is gone"))
            return
        self._outgoing.away = True
        self._reconnection.begin(time.monotonic())
        self.background.ring()

    def _reconnect(self) -> None:
        """Make the next attempt to resume the session, if it is due."""
        with self.lock:
            now = time.monotonic()
            if self.waiting.closed or not self._outgoing.away or not self._reconnection.is_due(now):
                return
            if self._incoming.lost is not None:  # the daemon has ended the session
                self._outgoing.away = False
                return
            failure = self._reconnection.attempt(now, self._incoming.received)
            if failure is not None:
                self._outgoing.away = False
                self._incoming.fail(failure)

    def _resumed(self, received: int) -> None:
        """Send the batches that the daemon missed: the session is resumed. The caller holds the lock."""
        self._reconnection.succeeded()
        self._outgoing.away = False
        if self._generation:  # the CANCEL may have been lost; if not, the daemon recognises it
            self._link.send([CANCEL, self._generation])
        self._outgoing.send_again(received)

    def _after_receiving(self) -> None:
        """Run callbacks and wake waiting threads, without the lock. Delays a first Ctrl-C."""
        with SHIELD:
            self._effects.run()
            self.waiting.wake()

    # -- the background --------------------------------------------------------------------------------------------

    def flush_with(self, flush: Callable[[], bool]) -> None:
        self._flush.hook = flush

    def tell_loss_to(self, tell: Callable[[TensordError], None]) -> None:
        self._incoming.tell_loss = tell
        if self._incoming.lost is not None:
            tell(self._incoming.lost)

    def tell_away_to(self, tell: Callable[[], None]) -> None:
        """Set the function to call, on the background thread and without a lock, each time the connection is lost and
        may come back."""
        self._reconnection.tell = tell

    @property
    def away(self) -> bool:
        """Return whether the connection is lost, and may come back."""
        return self._outgoing.away

    def give_up(self, error: TensordError) -> None:
        """End the session, whose connection is lost and will not come back."""
        with self.lock:
            if not self._outgoing.away or self.waiting.closed:
                return
            self._outgoing.away = False
            self._incoming.fail(error)
        self._after_receiving()

    def _background_failed(self, error: BaseException) -> None:
        """End the session after an unexpected error, and tell waiting threads."""
        with self.lock:
            self._incoming.fail(ConnectionLost(f"the session's background thread failed: {error!r}"))
        self._after_receiving()

    def attend(self, reply: Reply) -> None:
        """Make the background read until the reply is set: a callback awaits it."""
        self._attended.add(reply)
        reply.when_done(partial(self._attended.discard, reply))
        self.background.ring()

    def _is_attended(self) -> bool:
        """Return whether a callback or a side effect awaits an answer, or batches wait for the daemon's progress.

        Other answers are read when a thread waits for them: a background that reads while the foreground asks question
        after question doubles the time of each.
        """
        return bool(self._attended or self._outgoing.effects or self._outgoing.unsent or self.callers.has_calls)

    def _pause(self, awake: bool) -> float:
        if self._outgoing.away:
            return FIRST_PATIENCE
        return self._flush.nap if awake else DOZE_INTERVAL

    def _sleep_or_read(self, timeout: float | None) -> None:
        """Between two rounds of the background: read answers for callbacks if no thread leads, else sleep."""
        with suppress(TensordError):  # the threads that wait are told
            if not (self._is_attended() and self.waiting.serve_once(timeout)):
                self.background.bell.sleep(timeout)

    def _look_around(self) -> bool:
        """One round of the background thread; returns whether any message was unsent."""
        if self._closing:
            self.close()
            return False
        with suppress(TensordError):  # the threads that wait are told
            if time.monotonic() - self._read_at > DOZE_INTERVAL:
                self.waiting.serve_once(0)
            if self._outgoing.away:
                self._reconnect()
            self._reconnection.report_loss(away=self._outgoing.away)
            return self._incoming.lost is None and self._flush.flush()
        return False

    # -- the end ---------------------------------------------------------------------------------------------------

    def ending(self) -> None:
        """Do nothing: sending a batch waits for nothing."""

    def close(self, patience: float | None = None) -> None:
        """End the session. `patience`: seconds to wait for a running callback of the user; None: until it ends.

        With `patience`, at the end of the process, also wait for another thread that is ending the session.
        """
        if self._inherited:
            return
        self._enter()
        if self.waiting.leads():
            raise ProtocolError("a signal handler on a thread that waits may not close the session")
        if self.waiting.closed and patience is not None:
            self.background.join(patience)
        with self.lock:
            if self.waiting.closed:
                return
            self.waiting.close()
            linger = 0 if self._outgoing.away or self._incoming.lost is not None else LINGER_MS
            self.memory.forget_results()
            with suppress(TensordError, zmq.ZMQError):
                self._link.bye()
            self._incoming.fail(ConnectionLost(CLOSED_HERE))
        self._after_receiving()
        self.background.stop()
        self.background.join(patience)
        if not self.waiting.role.acquire(timeout=-1 if patience is None else patience):
            return  # the goodbye is sent, and the process ends
        try:
            with self.lock:  # no thread polls the descriptors any more
                self._finish(linger)
        finally:
            self.waiting.role.release()

    def _finish(self, linger: int) -> None:
        self._link.close(linger)
        self.memory.close()
        self._flush.hook = None
        SHIELD.remove()
        self._bell.close()

    def abandon(self) -> None:
        """Make the background thread close the session."""
        self._closing = True
        self.background.ring()
