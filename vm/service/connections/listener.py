"""A listener: one address that the daemon listens on, its socket, and the socket's monitor.

A peer that fails in the handshake never reaches ZAP (ZeroMQ's authentication), and never sends a message. The
monitor reports why the handshake failed, and, in the very next event, which connection has ended.

The monitor also bounds a burst. libzmq's own thread accepts connections, and waits while `MONITOR_EVENTS` events of the
monitor are unread. So at most that many connections are open that the daemon's thread does not know yet; further ones
wait in the kernel's queue, and their clients in `connect` (see `descriptors`).
"""

from __future__ import annotations

import itertools
import socket as sockets
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple

import zmq

from ....interpreter.wire.limits import Limits
from ....interpreter.wire.monitor import FAILURES, SocketEvent, read_events
from ..access.guard import connection_of
from ..access.listen_address import ListenAddress
from ..access.refusals import RefusalLog
from ..access.zap import RefusedPeer

NOW: Final = int(zmq.NOBLOCK)  # a plain int, since operations on enum members take longer than a send
QUEUE_LENGTH = 64  # messages that libzmq queues for one peer, in each direction
MONITOR_EVENTS: Final = 1_001  # events of a monitor: 1,000 in libzmq's fixed queue at its end, and one at ours
MISSED_HEARTBEATS = 10  # heartbeats until a peer counts as lost; libzmq's thread answers them even in a busy client
LINGER_MS = 500
HANDSHAKE_MS = 5_000
WATCHED_EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(FAILURES)
_CREDENTIALS: Final = struct.Struct("3i")  # of SO_PEERCRED: pid, uid, gid
_numbers = itertools.count(1)  # numbers of connections (over all listeners) and of monitors


class PeerCredentials(NamedTuple):
    """The process behind a connection, and the connection.

    `uid`, `pid`: reported by the kernel; the defaults on tcp, where it cannot know them.
    """

    uid: int = -1
    pid: int = 0
    fd: int = -1  # of the daemon's end, which names the connection in events of the monitor
    number: int = 0  # of the connection, unique among all listeners, since descriptors are reused
    key: str = ""  # the name of the peer's key in the allow list; "" without keys


class Listener:
    """A bound ROUTER. `local`: an ipc address, whose peers the kernel identifies."""

    def __init__(
        self, context: zmq.Context[Any], listen_address: ListenAddress, limits: Limits, *, heartbeat: float
    ) -> None:
        self.address = listen_address.address
        self.most = limits.frames + 2  # frames: header, payloads, and one that shows that there are too many
        self.local = listen_address.local
        self.keyed = zmq.CURVE_SERVER in listen_address.options
        self.connections: dict[int, int] = {}  # our fd -> the number of the connection, since fds are reused
        self.origins: dict[int, str] = {}  # our fd -> the peer's address, for the log
        self.refusals = RefusalLog()
        # Set by the gatekeeper: why it refused a peer.
        self.refusal_of: Callable[[str], RefusedPeer | None] = lambda _origin: None
        self._failure: SocketEvent | None = None  # of the connection that ends next
        self._watching = False
        self.accepted: list[Callable[[int], object]] = []  # called with the fd of a new connection
        self.disconnected: list[Callable[[int], object]] = []
        with ExitStack() as undo:  # otherwise terminating the context would wait for a socket for ever
            self.socket = socket = undo.enter_context(context.socket(zmq.ROUTER))
            self._configure(listen_address, limits, heartbeat)
            self.monitor = undo.enter_context(open_monitor(context, socket))
            socket.bind(listen_address.endpoint)
            undo.pop_all()
        self.bound: str = socket.last_endpoint.decode().rstrip("\0")

    def _configure(self, listen_address: ListenAddress, limits: Limits, heartbeat: float) -> None:
        """Set the socket's options."""
        socket = self.socket
        socket.linger = LINGER_MS
        socket.router_mandatory = True
        socket.rcvhwm = socket.sndhwm = QUEUE_LENGTH
        socket.maxmsgsize = limits.frame
        socket.handshake_ivl = HANDSHAKE_MS
        if not self.local:
            socket.heartbeat_ivl = int(heartbeat * 1000)
            socket.heartbeat_timeout = socket.heartbeat_ttl = MISSED_HEARTBEATS * int(heartbeat * 1000)
        for option, value in listen_address.options.items():
            socket.setsockopt(option, value)

    def credentials(self, frame: Any) -> PeerCredentials:
        """The sender of a frame, as reported by libzmq, and on ipc by the kernel."""
        fd = frame.get(zmq.SRCFD)
        uid, pid = -1, 0
        if self.local:
            _, uid_text, _, pid_text = str(frame.get("Peer-Address")).rsplit(":", 3)
            uid, pid = int(uid_text), int(pid_text)
        key = str(frame.get("User-Id")).removeprefix("key:") if self.keyed else ""
        return PeerCredentials(uid, pid, fd, self.connections.get(fd, 0), key)

    def receive(self) -> tuple[bytes, list[Any]]:
        """A message: its sender's routing id, and its first `most` frames; the rest is dropped. zmq.Again if no
        message waits."""
        receive = self.socket.recv
        identity = receive(NOW)
        frame = receive(NOW, False)
        frames = [frame]
        while frame.more and len(frames) < self.most:
            frame = receive(NOW, False)
            frames.append(frame)
        while frame.more and self.socket.getsockopt(zmq.RCVMORE):
            receive(NOW)  # dropped
        return identity, frames

    def watch(self) -> None:
        """Process the monitor's events."""
        if self._watching:  # an event has made a callback cut a connection
            return
        self._watching = True
        try:
            for event in read_events(self.monitor):
                self.handle_event(event)
        finally:
            self._watching = False

    def handle_event(self, event: SocketEvent) -> None:
        if event.kind == zmq.EVENT_ACCEPTED:
            self.connection_accepted(event.value)
        elif event.kind == zmq.EVENT_DISCONNECTED:
            self.connection_closed(event.value)
        else:
            self._failure = event

    def connection_accepted(self, fd: int) -> None:
        """Number a new connection, and note the address of its peer."""
        self.connections[fd] = next(_numbers)
        self.origins[fd] = origin_of(fd)
        for callback in self.accepted:
            callback(fd)

    def connection_closed(self, fd: int) -> None:
        """Forget a connection that has ended; log the reason if its handshake failed."""
        self.connections.pop(fd, None)
        peer = self.origins.pop(fd, "")
        failure, self._failure = self._failure, None
        if failure is not None:
            self.tell_refusal(failure, peer)
        for callback in self.disconnected:
            callback(fd)

    def tell_refusal(self, failure: SocketEvent, peer: str) -> None:
        """Log the refusal of a peer, if that is why its handshake failed."""
        if failure.kind != zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            reason = self.reason_of(failure)
            if reason:
                self.refusals.tell("a peer was refused", reason=reason, peer=peer, address=self.address)
            return
        refusal = self.refusal_of(peer)
        if refusal is not None:  # otherwise the gatekeeper has logged an error of its own
            about = {"peer": peer or refusal.host, "address": self.address, **refusal.about}
            self.refusals.tell("a peer was refused", reason=refusal.reason, **about)

    def reason_of(self, failure: SocketEvent) -> str:
        """Why a handshake failed before the gatekeeper was asked; "" if the peer was not refused."""
        if failure.kind == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:  # on ipc: a client that looks for a daemon
            keys = "has no keys" if self.keyed else "uses keys"
            why = f"the peer did not complete the handshake: it {keys}, is not a tensord client, or was too slow"
            return "" if self.local else why
        if failure.value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            if self.keyed:
                return "the peer has no keys, but this address requires them"
            return "the peer uses keys, but this address does not"
        if failure.value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
            return "the peer expects another daemon: the server.key that it was given is not this daemon's"
        return f"the peer speaks another protocol (ZeroMQ's error {failure.value:#x})"

    def cut(self, fd: int, number: int) -> None:
        """Shut down a connection, unless its fd has been reused. libzmq then drops any incomplete message from it.

        libzmq reports the end of a connection before it closes the fd. So if the duplicate made here is of a later
        connection, the unread events say so.
        """
        with suppress(OSError), connection_of(fd) as connection:
            self.watch()
            if self.connections.get(fd) == number:
                del self.connections[fd]
                connection.shutdown(sockets.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket and its monitor. Messages already sent have `LINGER_MS` to go out.

        The monitor ends with its socket. We do not disable the monitor: that would wait for libzmq's thread, which
        may be waiting for us to read events. Terminating the context wakes that thread.
        """
        self.monitor.close(0)
        self.socket.close()


def open_monitor(context: zmq.Context[Any], socket: Any) -> Any:
    """The socket that receives the events of `socket`, of which at most `MONITOR_EVENTS` are queued."""
    endpoint = f"inproc://monitor-{next(_numbers)}"
    socket.monitor(endpoint, WATCHED_EVENTS)
    with ExitStack() as undo:
        monitor = undo.enter_context(context.socket(zmq.PAIR))
        monitor.rcvhwm = 1
        monitor.connect(endpoint)
        undo.pop_all()
    return monitor


def origin_of(fd: int) -> str:
    """The peer of a connection: "HOST:PORT", or its process over ipc; "" if the connection is gone."""
    with suppress(OSError), connection_of(fd) as connection:
        if connection.family == sockets.AF_UNIX:
            found = connection.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _ = _CREDENTIALS.unpack(found)
            return f"process {pid} of uid {uid}"
        host, port = connection.getpeername()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ""
