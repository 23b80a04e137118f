"""A connection to a daemon: the socket, the handshake, the end.

ZeroMQ must not reconnect by itself: a lost connection is an event, and `reopen` begins a new one with a handshake. All
errors of the handshake name the cause and the remedy.
"""

from __future__ import annotations

import os
import socket as sockets
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import ceil
from typing import Any, Final, NamedTuple

import zmq

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ConnectionLost, NoDaemon, ProtocolError, TensordError
from ...interpreter.wire.addresses import parse, pid_of
from ...interpreter.wire.codec import Encoder, decode
from ...interpreter.wire.descriptors import require_descriptors
from ...interpreter.wire.frames import BYE, ERRORS, GOODBYE, HELLO, REFUSED, VERSION, WELCOME, host_identity
from ...interpreter.wire.monitor import FAILURES, SocketEvent, read_events

HELLO_TIMEOUT = 5.0  # seconds for the daemon to answer HELLO
ANSWER_TIMEOUT: Final = 30.0  # seconds for the daemon to answer a command; even a busy one needs far less
LINGER_MS = 500
NO_WAIT: Final = int(zmq.NOBLOCK)  # a plain int: combining the members of an enum takes longer than sending
NO_ANSWER_CAUSES: Final = "it hangs, its process is stopped, or its machine is overloaded"
NEEDED_DESCRIPTORS = 24  # for a context, its sockets and threads: a dozen, and some for other threads
NEVER_MS = 24 * 3600 * 1000
MAX_HEADER = 1 << 30  # bytes of a header from the daemon: long answers come in slices
END_EVENTS = frozenset({zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED, *FAILURES})
WATCHED_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECT_RETRIED | sum(END_EVENTS)
HUNG_UP = "has closed the connection: it has too many connections, or is shutting down; its log says which"
MISMATCH = zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH


class Welcome(NamedTuple):
    """The daemon's answer to HELLO."""

    session: int
    token: bytes | None
    devices: dict[str, frozenset[str]]
    settings: dict[str, Any]
    received: int


class DealerSocket:
    """A DEALER and its monitor. Not safe to use from two threads at once.

    `name`: the session's name, None for a connection that only asks. `patience`: seconds for the daemon to answer
    HELLO.
    """

    def __init__(
        self, address: str, options: Mapping[int, Any], name: str | None, *, strict: bool, patience: float | None = None
    ) -> None:
        self.until = time.monotonic() + (HELLO_TIMEOUT if patience is None else patience)
        self.address = address
        self.local = address.startswith("ipc://")
        self.name = name
        self.strict = strict
        self.encoder = Encoder()
        self.options = options
        check_reachable(address, self.until)
        require_descriptors(NEEDED_DESCRIPTORS)  # libzmq aborts the process if it runs out of them
        self.context: zmq.Context[Any] = zmq.Context()
        with ExitStack() as undo:
            undo.callback(self.context.term)
            self.open()
            undo.push(self.abandon_handshake)
            self.welcome = self.greet()
            undo.pop_all()

    def open(self) -> None:
        """Make the sockets and connect. OSError if that fails; the previous sockets are then kept.

        ZeroMQ must not reconnect by itself, since it would send queued messages before HELLO. With reconnecting turned
        off (-1), it would drop messages not yet read when a connection ends; so it reconnects later than any caller
        waits.
        """
        try:
            with ExitStack() as undo:
                socket = undo.enter_context(self.context.socket(zmq.DEALER))
                self.configure(socket)
                monitor = undo.enter_context(socket.get_monitor_socket(WATCHED_EVENTS))
                socket.connect(self.address)
                undo.pop_all()
        except zmq.ZMQError as error:
            raise OSError(error.errno, error.strerror) from None
        self.socket, self.monitor, self.monitor_fd = socket, monitor, int(monitor.get(zmq.FD))

    def configure(self, socket: Any) -> None:
        socket.linger = LINGER_MS
        socket.sndhwm = socket.rcvhwm = 0  # credit bounds both; nothing here may block on a queue
        socket.reconnect_ivl = NEVER_MS
        if not self.local:
            socket.ipv6 = True
            socket.heartbeat_ivl, socket.heartbeat_timeout = 1_000, 10_000
        for option, value in self.options.items():
            socket.setsockopt(option, value)

    def reopen(self) -> None:
        """Connect again after a lost connection. As `open` if that fails."""
        require_descriptors(NEEDED_DESCRIPTORS)
        socket, monitor = self.socket, self.monitor
        self.open()
        close_sockets(socket, monitor, 0)

    # -- the handshake ---------------------------------------------------------------------------------------------

    def greet(self) -> Welcome:
        """Say HELLO and wait for WELCOME; ConnectionLost with the reason if it does not come."""
        self.hello(None, 0)
        while True:
            poller = zmq.Poller()
            poller.register(self.socket, zmq.POLLIN)
            poller.register(self.monitor, zmq.POLLIN)
            with SHIELD.interruptible:
                ready = dict(poller.poll(ceil(max(self.until - time.monotonic(), 0) * 1000)))
            if self.socket in ready:
                return self.read_welcome(self.receive())
            if not ready:
                raise ConnectionLost(no_answer_text(self.address))
            events = self.events()
            for event in events:
                with suppress(zmq.Again):  # a refusal comes before the end
                    return self.read_welcome(self.receive())
                if why := self.reason_of(event):
                    raise (NoDaemon if event.kind == zmq.EVENT_CLOSED else ConnectionLost)(why)
            if self.local and any(event.kind == zmq.EVENT_CLOSED for event in events):
                self.connect_again()

    def connect_again(self) -> None:
        """Connect again if the kernel's queue was full; ZeroMQ itself would retry in `NEVER_MS`."""
        check_reachable(self.address, self.until)
        self.reopen()
        self.hello(None, 0)

    def reason_of(self, event: SocketEvent) -> str:
        """The reason why there is no connection, and the remedy; "" for events that do not end it."""
        if event.kind not in END_EVENTS or (self.local and event.kind == zmq.EVENT_CLOSED):
            return ""
        if self.local:
            another = event.kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH
            return f"the daemon at {self.address} {'belongs to another user' if another else HUNG_UP}"
        keyed = zmq.CURVE_SERVERKEY in self.options
        if event.kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            add = "add it with `tensord keygen --allow`" if keyed else "see its log"
            return f"the daemon at {self.address} refuses the client's key, which is not in its allow list; {add}"
        if event.kind == zmq.EVENT_CLOSED:
            return f"no daemon answers at {self.address}: start one with `tensord serve`, or see `tensord doctor`"
        if event.kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and event.value == MISMATCH:
            if keyed:
                return f"the daemon at {self.address} uses no keys: leave keys= out, and unset $TENSORD_KEYS"
            return (
                f"the daemon at {self.address} requires keys: name yours with keys= or $TENSORD_KEYS (`tensord keygen`)"
            )
        if event.kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            return f"the process at {self.address} is not a tensord daemon"
        if keyed:
            return (
                f"the process at {self.address} has closed the connection: server.key, next to the client's key, is "
                "not its key (copy the daemon's server.key again), or the process is not a tensord daemon"
            )
        return (
            f"the process at {self.address} has closed the connection: it requires keys (see `tensord keygen`), "
            "or is not a tensord daemon"
        )

    def hello(self, token: bytes | None, received: int) -> None:
        self.send([HELLO, VERSION, self.name, os.getpid(), host_identity(), self.strict, token, received])

    def read_welcome(self, frames: Sequence[Any]) -> Welcome:
        """The WELCOME in the frames; raises the error that came instead."""
        header = decode(frames[0].buffer, MAX_HEADER)
        if header[0] == REFUSED:
            kind = ERRORS.get(header[1], ConnectionLost)
            raise kind(f"the daemon at {self.address} refuses the session: {header[2]}")
        if header[0] != WELCOME or header[1] != VERSION:
            raise ProtocolError(f"{self.address} answered HELLO with a header of kind {header[0]}")
        _, _, session, token, devices, settings, received = header
        known = {name: frozenset(missing) for name, missing in devices.items()}
        return Welcome(session, token, known, settings, received)

    # -- traffic ---------------------------------------------------------------------------------------------------

    def send(self, header: Any, payloads: Sequence[Any] = ()) -> list[Any]:
        """Send a header and payload frames; returns the frames, since they may have to be sent again."""
        frames = [self.encoder.encode(header), *payloads]
        self.send_frames(frames)
        return frames

    def send_frames(self, frames: list[Any]) -> None:
        """Send frames, large ones without a copy. If the daemon is gone they are lost, and an event follows."""
        try:
            if len(frames) == 1:
                self.socket.send(frames[0], NO_WAIT)
            else:
                self.socket.send_multipart(frames, NO_WAIT, copy=False)
        except zmq.Again:
            return

    def receive(self) -> list[Any]:
        """The next message's frames; zmq.Again if there is none."""
        receive = self.socket.recv
        frame = receive(NO_WAIT, False)
        frames = [frame]
        while frame.more:  # `recv_multipart` would ask the socket, which takes as long as receiving
            frame = receive(NO_WAIT, False)
            frames.append(frame)
        return frames

    def watch(self, bell: int) -> list[SocketEvent]:
        """Make `poll` watch that descriptor, too; returns the connection's events so far.

        The monitor's descriptor signals an event only if all earlier events were read.
        """
        self.poller = poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.monitor_fd, zmq.POLLIN)  # asking ZeroMQ costs more than asking the kernel
        poller.register(bell, zmq.POLLIN)
        return self.events()

    def poll(self, timeout_ms: int | None) -> list[tuple[Any, int]]:
        """Sleep until a message, an event or a ring of the bell comes, at most `timeout_ms` milliseconds."""
        return self.poller.poll(timeout_ms)

    def events(self) -> list[SocketEvent]:
        return list(read_events(self.monitor))

    # -- the end ---------------------------------------------------------------------------------------------------

    def bye(self) -> None:
        self.send([BYE])

    def close(self, linger: int = LINGER_MS) -> None:
        """Close the sockets; messages already sent have `linger` milliseconds to leave."""
        close_sockets(self.socket, self.monitor, linger)
        self.context.term()

    def abandon_handshake(self, kind: type[BaseException] | None, *_: object) -> None:
        """Give up the handshake. After an interrupt, send BYE: the daemon may have received HELLO, and would otherwise
        keep a session for a client that might come back."""
        interrupted = kind is not None and not issubclass(kind, TensordError | OSError)
        if interrupted:
            self.bye()
        close_sockets(self.socket, self.monitor, LINGER_MS if interrupted else 0)


def close_sockets(socket: Any, monitor: Any, linger: int) -> None:
    socket.disable_monitor()
    monitor.close(0)
    socket.close(linger)


def ending_error(header: Sequence[Any]) -> TensordError | None:
    """The error with which a header ends the connection; None for other headers."""
    if header[0] == GOODBYE:
        return ConnectionLost(f"the daemon has ended: {header[1]}")
    if header[0] == REFUSED:
        return ERRORS.get(header[1], ConnectionLost)(f"the daemon ended the connection: {header[2]}")
    return None


@contextmanager
def connecting(address: str) -> Iterator[None]:
    """Turn errors of the system, such as missing descriptors or an unknown host, into ConnectionLost."""
    try:
        yield
    except TensordError:  # a lost connection is an OSError, too
        raise
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {address}: {error.strerror or error}") from None


def check_reachable(address: str, until: float) -> None:
    """Raise NoDaemon if no daemon can listen at the address: ZeroMQ itself would wait for one.

    If too many others connect at the same time, wait for room, but not beyond `until`.
    """
    parsed = parse(address)
    if parsed.kind == "ipc":
        check_socket(address, parsed.path, max(until - time.monotonic(), 0.001))
        return
    try:
        with SHIELD.interruptible:
            sockets.getaddrinfo(parsed.host, parsed.port, type=sockets.SOCK_STREAM)
    except OSError as error:
        why = error.strerror or error
        raise NoDaemon(f"the host of {address} is not known here ({why}): check its name, or write its IP") from None


def check_socket(address: str, path: str, seconds: float) -> None:
    """Raise NoDaemon if no process listens on the socket of an ipc address."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))  # the kernel's format of a time
        probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDTIMEO, limit)
        try:
            with SHIELD.interruptible:
                probe.connect(path)
        except BlockingIOError:
            raise ConnectionLost(f"the daemon at {address} accepts no connections now: too many are waiting") from None
        except PermissionError as error:
            raise ConnectionLost(
                f"this user may not connect to {address} ({error.strerror}): over ipc a daemon serves the user that "
                "started it; be that user, or connect over tcp, with keys"
            ) from None
        except OSError as error:
            raise NoDaemon(not_listening(address, error.strerror or str(error))) from None


def no_answer_text(address: str) -> str:
    """The message for a listener that does not answer with WELCOME."""
    pid = pid_of(address)
    if pid is None:
        return f"the process at {address} does not answer like a tensord daemon"
    process = f"process {pid}" if pid else "in another container"
    return f"the daemon at {address} ({process}) does not answer: {NO_ANSWER_CAUSES}; see its log"


def hanging_error(address: str, seconds: float) -> ConnectionLost:
    """The error for a daemon that has not answered for that long."""
    return ConnectionLost(
        f"the daemon at {address} has not answered for {seconds:g} s: {NO_ANSWER_CAUSES}; "
        "see its log, or end it with `tensord stop --now`"
    )


def not_listening(address: str, why: str) -> str:
    """The message if no socket listens. A starting daemon has its lock before its socket."""
    if pid_of(address) is not None:
        return (
            f"a daemon is starting at {address}, and does not listen yet: connect(wait=10) waits for it, and so does "
            "`tensord status --wait 10`"
        )
    return f"no daemon listens at {address} ({why}): start one with `tensord serve --address {address}`"
