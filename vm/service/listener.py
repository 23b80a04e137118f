"""A listener: one address that the daemon listens on, its socket, and the socket's monitor."""

from __future__ import annotations

import itertools
import os
import socket as sockets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from ...interpreter.wire.limits import Limits
from .listen_address import ListenAddress
from .peer import Credentials

QUEUE = 64  # messages that libzmq queues for one peer, in each direction
MISSED = 10  # heartbeats until a peer counts as lost; libzmq's own thread answers them, even if the client is busy
LINGER_MS = 500
HANDSHAKE_MS = 5_000


class Listener:
    """A bound ROUTER. `local`: an ipc address, whose peers the kernel identifies."""

    def __init__(
        self, context: zmq.Context[Any], listen_address: ListenAddress, limits: Limits, *, heartbeat: float
    ) -> None:
        self.address = listen_address.address
        self.most = limits.frames + 3  # frames of a message: routing id, header, payloads, and one to show an excess
        self.local = listen_address.local
        self.socket = socket = context.socket(zmq.ROUTER)
        socket.linger = LINGER_MS
        socket.router_mandatory = True
        socket.rcvhwm = socket.sndhwm = QUEUE
        socket.maxmsgsize = limits.frame
        socket.handshake_ivl = HANDSHAKE_MS
        if not self.local:
            socket.heartbeat_ivl = int(heartbeat * 1000)
            socket.heartbeat_timeout = socket.heartbeat_ttl = MISSED * int(heartbeat * 1000)
        for option, value in listen_address.options.items():
            socket.setsockopt(option, value)
        self.monitor = socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.connections: dict[int, int] = {}  # our fd -> the number of the connection, since fds are reused
        self._numbers = itertools.count(1)
        self.accepted: list[Callable[[int], object]] = []  # called with the fd of a new connection
        self.disconnected: list[Callable[[int], object]] = []
        socket.bind(listen_address.endpoint)
        self.bound: str = socket.last_endpoint.decode().rstrip("\0")

    def credentials(self, frame: Any) -> Credentials:
        """The sender of a frame, as libzmq reports it; on ipc libzmq has it from the kernel."""
        fd = frame.get(zmq.SRCFD)
        uid, pid = -1, 0
        if self.local:
            _, uid_text, _, pid_text = str(frame.get("Peer-Address")).rsplit(":", 3)
            uid, pid = int(uid_text), int(pid_text)
        return Credentials(uid, pid, fd)

    def receive(self) -> list[Any]:
        """A message's frames, without those beyond `most`; zmq.Again if there is no message."""
        frames = [self.socket.recv(zmq.NOBLOCK, copy=False)]
        while frames[-1].more and len(frames) < self.most:
            frames.append(self.socket.recv(zmq.NOBLOCK, copy=False))
        if frames[-1].more:
            self.drop_rest()
        return frames

    def drop_rest(self) -> None:
        """Receive and drop the rest of a message."""
        while self.socket.getsockopt(zmq.RCVMORE):
            self.socket.recv(zmq.NOBLOCK)

    def watch(self) -> None:
        """Process the monitor's events."""
        while self.monitor.get(zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)
            fd = int(event["value"])  # pyzmq takes it for a flag
            if event["event"] == zmq.EVENT_ACCEPTED:
                self.connections[fd] = next(self._numbers)
                callbacks = self.accepted
            else:
                self.connections.pop(fd, None)
                callbacks = self.disconnected
            for callback in callbacks:
                callback(fd)

    def cut(self, fd: int, number: int) -> None:
        """Shut down a connection, unless its fd has been reused. libzmq then drops what it has received of it."""
        if self.connections.get(fd) == number:
            del self.connections[fd]
            with suppress(OSError), sockets.socket(fileno=os.dup(fd)) as connection:
                connection.shutdown(sockets.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket and its monitor. Messages that were sent have `LINGER_MS` to leave."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close()
