"""A link to one node over two TCP connections, and its threads.

Theory of operation
    Each node dials each other one, writes on the connection that it has dialled, and reads from the one that it has
    accepted. So only one thread at a time uses a TLS object. The writer is the thread of the link: it dials, waits for
    the other connection, starts a reader, writes until the link breaks, ends the reader, and begins again. `Protocol`
    decides what is written, and what follows from what was read; `Pairing` decides which connections belong together.
    Each end numbers its *lives*: a new one begins whenever a link that was up breaks. A thread remembers the life in
    which it began, and carries nothing for a later one.

Guarantees
    As in `..link`. The thread that notices the break of the link (reader, writer, or the thread that accepts the peer's
    new connection) fails all transfers that have begun, at once. A transfer whose array another thread is reading or
    writing is failed by that thread, afterwards. Transfers wait for a connection until the link has been down for
    `patience` seconds; those that begin later fail when the next attempt to connect fails.

Who owns what
    The lock guards protocol, pairing and connections; nothing is called, read or written under it. The writer closes
    all connections, after the reader has ended.

Rejected
    One connection for both directions: two threads on one TLS object, or a thread that polls. Writing values on the
    thread that offers them: a peer that does not read would hold up the machine. Only frames, on plain connections, are
    written on that thread, as far as the kernel takes them at once: 130 us for 1 KiB instead of 200, as no thread is
    woken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ....interpreter.concurrency.bell import Bell
from ....interpreter.errors import NodeLost, TensordError, node_lost
from ....interpreter.types.meta import Meta
from ...stream import LOG
from ..link import Array, Into, OnEnd
from .frames import BEAT, HEADER, PIECE_BYTES, Frame, HeaderKind
from .halves import Call
from .pairing import Pairing, Verdict
from .protocol import Out, Protocol
from .sockets import Connection

MIN_PAUSE: Final = 0.02  # seconds until the next attempt to dial
MAX_PAUSE: Final = 1.0
BEATS_PER_PATIENCE: Final = 3  # heartbeats in the time of patience

Dial = Callable[[int], tuple[Connection, int]]  # takes our life; returns a connection, and the peer's life
Report = Callable[[str, str], None]  # takes an event of this link, and its reason


class TcpLink:
    """A `NodeLink` to a node. `bandwidth`: simulated bytes per second; 0: no limit."""

    def __init__(self, node: str, dial: Dial, report: Report, *, patience: float, bandwidth: float = 0.0) -> None:
        self.node = node
        self._dial = dial
        self._report = report
        self._patience = patience
        self._bandwidth = bandwidth
        self._pairing = Pairing()
        self._protocol = Protocol(_piece(bandwidth, patience), self._pairing.own)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._another_life = Bell()  # wakes the writer, which sleeps while the simulated link is busy
        self._out_connection: Connection | None = None
        self._in_connection: Connection | None = None
        self._dropped: list[Connection] = []  # cut, and still to be closed
        self._down_since = time.monotonic()
        self._writing = False  # a thread is writing
        self._queueing = False  # the writer waits for that thread
        self._free_at = 0.0  # when the simulated link has carried all bytes so far
        self._why = "no daemon has answered there yet"
        self._called = False  # the peer has dialled us, so it will answer when we dial
        self._lost: TensordError | None = None  # set: the node is lost for good
        self._thread = threading.Thread(target=self._run, name=f"tensord-to-{node}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # -- the machine's calls -------------------------------------------------------------------------------------------

    def offer(self, transfer: bytes, meta: Meta, array: Array, done: OnEnd) -> None:
        self._do(lambda protocol: protocol.offer(transfer, meta, array, done), done)

    def fail(self, transfer: bytes, error: TensordError) -> None:
        self._do(lambda protocol: protocol.fail(transfer, error))

    def expect(self, transfer: bytes, meta: Meta, offered: OnEnd) -> None:
        self._do(lambda protocol: protocol.expect(transfer, meta, offered), offered)

    def receive(self, transfer: bytes, array: Array, done: OnEnd) -> None:
        self._do(lambda protocol: protocol.receive(transfer, array, done))

    def take(self, transfer: bytes, meta: Meta, into: Into, done: OnEnd) -> None:
        self._do(lambda protocol: protocol.take_value(transfer, meta, into, done), done)

    def refuse(self, transfer: bytes, error: TensordError) -> None:
        self._do(lambda protocol: protocol.refuse(transfer, error))

    def _do(self, act: Callable[[Protocol], list[Call]], begun: OnEnd | None = None) -> None:
        """Act on the protocol, unless a transfer would begin on a lost link."""
        with self._lock:
            if self._lost is not None and begun is not None:
                calls: list[Call] = [(begun, self._lost.reraisable())]
            else:
                calls = act(self._protocol)
            at_once = self._take_frames()
        if at_once is not None:
            self._write_now(*at_once)
        if calls:
            make_calls(calls)

    def _take_frames(self) -> tuple[Connection, bytes, int] | None:
        """The frames to write on this thread while the writer is idle, which saves waking it. Everything else is left
        to the writer. The caller holds the lock."""
        protocol = self._protocol
        if self._writing or not protocol.has_output:
            return None
        if protocol.up and not protocol.sender.active and self._out_connection is not None:
            out = protocol.next()
            if out is not None:
                self._writing = True
                return self._out_connection, out.buffers[0], self._pairing.own
        self._changed.notify_all()
        return None

    def _write_now(self, connection: Connection, frames: bytes, life: int) -> None:
        """Write what the kernel takes at once, and leave the rest to the writer."""
        rest = frames
        try:
            rest = connection.write_now(frames)
        finally:
            with self._lock:
                self._writing = False
                if life == self._pairing.own and rest:
                    self._protocol.outgoing.frames.appendleft(rest)
                if self._queueing or self._protocol.has_output:
                    self._changed.notify_all()

    # -- the peer's connection -----------------------------------------------------------------------------------------

    def greeted(self, life: int) -> int:
        """The peer, in its life `life`, has dialled us. Returns our life, for the answer; 0 if the connection is stale.

        If the link is up here, it has broken at the peer, so it is broken here, too.
        """
        with self._lock:
            verdict, own = self._pairing.greeted(life), self._pairing.own
        if verdict is Verdict.ANEW:
            self._end_life("the other side has begun again", own)
            with self._lock:
                verdict, own = self._pairing.greeted(life), self._pairing.own
        return own if verdict is Verdict.FITS else 0

    def accepted(self, connection: Connection, sent: int, life: int) -> bool:
        """The connection is ready to be read. `sent`: our life in the answer; `life`: the peer's.

        False if the connection has become stale.
        """
        with self._lock:
            if self._lost is not None or self._pairing.accepted(sent, life) is not Verdict.FITS:
                return False
            self._drop(self._in_connection)
            self._in_connection, self._called = connection, True
            self._drop_stale()
            self._changed.notify_all()
        return True

    # -- the end -------------------------------------------------------------------------------------------------------

    def lose(self, error: TensordError) -> None:
        """The node is lost for good: present and later transfers fail."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            calls = self._protocol.broken(error)
            self._cut()
        make_calls(calls)

    def join(self, timeout: float) -> bool:
        """Wait for the thread of a lost link; False if it has not ended in time."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _end_life(self, why: str, life: int) -> None:
        """The link broke in our life `life`: end that life, unless it is over already."""
        with self._lock:
            if life != self._pairing.own or self._lost is not None:
                return
            self._why = why
            calls = self._protocol.broken(self._error()) if self._protocol.up else []
            self._cut()
        make_calls(calls)
        self._report("a link is broken", why)

    def _cut(self) -> None:
        """Begin a new life without connections. The caller holds the lock."""
        self._pairing.broke()
        self._down_since = time.monotonic()
        self._drop_stale()
        self._changed.notify_all()
        self._another_life.ring()

    def _drop_stale(self) -> None:
        """Cut the connections that no longer belong to the link."""
        if not self._pairing.has_out:
            self._drop(self._out_connection)
            self._out_connection = None
        if not self._pairing.has_in:
            self._drop(self._in_connection)
            self._in_connection = None

    def _drop(self, connection: Connection | None) -> None:
        if connection is not None:
            connection.cut()
            self._dropped.append(connection)

    def _error(self) -> NodeLost:
        return node_lost(self.node, f"the link to it is broken: {self._why}")

    # -- the writer ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Dial, carry values until the link breaks, and begin again."""
        pause = MIN_PAUSE
        while self._lost is None:
            try:
                carried = self._dialled() and self._paired() and self._carry()
            except Exception as error:  # unexpected
                LOG.error("the link to %s goes on after an error", self.node, exc_info=error)
                carried = False
                if self._pairing.up:
                    self._end_life(f"{type(error).__name__}: {error}", self._pairing.own)
            self._close_dropped()
            self._end_waits()
            pause = MIN_PAUSE if carried else min(2 * pause, MAX_PAUSE)
            with self._lock:
                self._changed.wait_for(lambda: self._lost is not None or self._called, pause)
        self._close_dropped()

    def _dialled(self) -> bool:
        """Dial if necessary; returns whether there is a connection to write on."""
        with self._lock:
            life, self._called = self._pairing.own, False
        try:
            connection, peer = self._dial(life)
        except (OSError, TensordError) as error:
            self._failed_to_dial(str(error))
            return False
        with self._lock:
            verdict = Verdict.STALE if self._lost is not None else self._pairing.dialled(life, peer)
            if verdict is Verdict.FITS:
                self._out_connection = connection
                self._drop_stale()
                return True
        connection.close()
        return False

    def _failed_to_dial(self, why: str) -> None:
        if why != self._why and self._lost is None:
            self._why = why
            self._report("a node cannot be reached", why)

    def _paired(self) -> bool:
        """Wait for the peer's connection; returns whether it has come."""
        with self._lock:
            pairing = self._pairing
            self._changed.wait_for(lambda: pairing.up or not pairing.has_out, self._patience)
            if pairing.up:
                return True
            pairing.gave_up()
            self._drop_stale()
        self._failed_to_dial("it has not dialled back")
        return False

    def _carry(self) -> bool:
        """Carry values until the link breaks."""
        with self._lock:
            life, outgoing, incoming = self._pairing.own, self._out_connection, self._in_connection
            if outgoing is None or incoming is None:
                return False
            self._protocol.connected()
        reader = threading.Thread(
            target=self._read, args=(incoming, life), name=f"tensord-from-{self.node}", daemon=True
        )
        reader.start()
        self._report("a node is linked", "")
        self._why = ""
        try:
            self._write(outgoing, life)
        except OSError as error:
            self._end_life(str(error) or type(error).__name__, life)
        reader.join()
        return True

    def _write(self, connection: Connection, life: int) -> None:
        """Write everything that is due, and heartbeats while nothing is."""
        protocol = self._protocol
        while True:
            with self._lock:
                if not self._is_due(life):
                    self._changed.wait_for(lambda: self._is_due(life), self._patience / BEATS_PER_PATIENCE)
                if self._writing:
                    self._queue()
                if life != self._pairing.own:
                    return
                out, self._writing = protocol.next() or Out([BEAT], None), True
            try:
                if self._bandwidth and out.half is not None:
                    self._pace(len(out.buffers[-1]), life)
                connection.write(out.buffers)
            finally:
                with self._lock:
                    self._writing = False
                    calls = protocol.written(out.half)
                if calls:
                    make_calls(calls)

    def _is_due(self, life: int) -> bool:
        """Return whether the writer has something to do."""
        return life != self._pairing.own or (self._protocol.has_output and not self._writing)

    def _queue(self) -> None:
        """Wait until no other thread writes. The caller, the writer, holds the lock."""
        self._queueing = True
        self._changed.wait_for(lambda: not self._writing)
        self._queueing = False

    def _pace(self, nbytes: int, life: int) -> None:
        """Wait as long as the simulated link takes for these bytes."""
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + nbytes / self._bandwidth
        while life == self._pairing.own and (left := self._free_at - time.monotonic()) > 0:
            self._another_life.sleep(left)

    def _close_dropped(self) -> None:
        """Close the connections that no thread uses any more."""
        with self._lock:
            self._queue()
            dropped, self._dropped = self._dropped, []
        for connection in dropped:
            connection.close()

    def _end_waits(self) -> None:
        """Fail the transfers that have waited too long for a connection."""
        with self._lock:
            if self._lost is not None or time.monotonic() - self._down_since < self._patience:
                return
            error = node_lost(self.node, f"it cannot be reached: {self._why or 'its connection does not come back'}")
            calls = self._protocol.broken(error)
        make_calls(calls)

    # -- the reader ----------------------------------------------------------------------------------------------------

    def _read(self, connection: Connection, life: int) -> None:
        """Read frames until the link breaks, and break it."""
        why = "a fault of this daemon, see its log"
        try:
            self._frames(connection, life)
        except (OSError, TensordError) as error:
            why = str(error) or type(error).__name__
        except Exception as error:
            LOG.error("the link to %s is broken by an error", self.node, exc_info=error)
        finally:
            self._end_life(why, life)
            with self._lock:
                calls = self._protocol.let_go()
            make_calls(calls)

    def _frames(self, connection: Connection, life: int) -> None:
        protocol, header = self._protocol, memoryview(bytearray(HEADER.size))
        while True:
            connection.read_into(header)
            head = Frame.of(bytes(header))
            payload = bytearray()
            if head.kind is HeaderKind.PIECE:
                with self._lock:
                    if life != self._pairing.own:
                        return
                    target = protocol.target(head)
                connection.read_into(target)
                protocol.merge(head.length)
            elif head.length:
                payload = bytearray(head.length)
                connection.read_into(memoryview(payload))
            with self._lock:
                if life != self._pairing.own:
                    return
                calls = (
                    protocol.filled(head.length)
                    if head.kind is HeaderKind.PIECE
                    else protocol.take(head, bytes(payload))
                )
                at_once = self._take_frames()
            if at_once is not None:
                self._write_now(*at_once)
            if calls:
                make_calls(calls)


def make_calls(calls: list[Any]) -> None:
    """Make calls that became due under the lock. An error that a call raises is logged, and does not break the link."""
    for callback, error in calls:
        try:
            callback(error)
        except Exception as fault:
            LOG.error("a transfer's end could not be told", exc_info=fault)


def _piece(bandwidth: float, patience: float) -> int:
    """The bytes of a piece: few enough that a slow simulated link still shows signs of life."""
    return (
        max(1024, min(PIECE_BYTES, int(bandwidth * patience / (2 * BEATS_PER_PATIENCE)))) if bandwidth else PIECE_BYTES
    )
