"""A listener: one address that the daemon listens on, with its socket and the socket's monitor."""

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

QUEUE = 64  # messages that libzmq keeps for one peer, either way
MISSED = 10  # heartbeats, which libzmq's own thread answers however busy the peer's Python is
LINGER_MS = 500
HANDSHAKE_MS = 5_000


class Listener:
    """A bound ROUTER. `local`: an ipc address, whose peers the kernel identifies."""

    def __init__(
        self, context: zmq.Context[Any], listen_address: ListenAddress, limits: Limits, *, heartbeat: float
    ) -> None:
        self.address = listen_address.address
        self.most = limits.frames + 3  # of a message: the routing id, the header, payloads, and one to show the excess
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
        self.connections: dict[int, int] = {}  # fd of ours -> the number of the connection, since fds are used again
        self._numbers = itertools.count(1)
        self.accepted: list[Callable[[int], object]] = []  # who wants to know of a connection, by its fd
        self.disconnected: list[Callable[[int], object]] = []
        socket.bind(listen_address.endpoint)
        self.bound: str = socket.last_endpoint.decode().rstrip("\0")

    def credentials(self, frame: Any) -> Credentials:
        """Whose frame it is: libzmq tells, and for ipc it has it from the kernel."""
        fd = frame.get(zmq.SRCFD)
        uid, pid = -1, 0
        if self.local:
            _, uid_text, _, pid_text = str(frame.get("Peer-Address")).rsplit(":", 3)
            uid, pid = int(uid_text), int(pid_text)
        return Credentials(uid, pid, fd)

    def receive(self) -> list[Any]:
        """A message's frames; zmq.Again if there is none. Of one that has too many the others are dropped here."""
        frames = [self.socket.recv(zmq.NOBLOCK, copy=False)]
        while frames[-1].more and len(frames) < self.most:
            frames.append(self.socket.recv(zmq.NOBLOCK, copy=False))
        if frames[-1].more:
            self.drop_rest()
        return frames

    def drop_rest(self) -> None:
        """Read a message to its end."""
        while self.socket.getsockopt(zmq.RCVMORE):
            self.socket.recv(zmq.NOBLOCK)

    def watch(self) -> None:
        """Take what the monitor has to say."""
        while self.monitor.get(zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)
            fd = int(event["value"])  # pyzmq takes it for a flag
            if event["event"] == zmq.EVENT_ACCEPTED:
                self.connections[fd] = next(self._numbers)
                told = self.accepted
            else:
                self.connections.pop(fd, None)
                told = self.disconnected
            for tell in told:
                tell(fd)

    def cut(self, fd: int, number: int) -> None:
        """End that connection, if it is still that one: libzmq sees its end, and drops what it has of it."""
        if self.connections.get(fd) == number:
            del self.connections[fd]
            with suppress(OSError), sockets.socket(fileno=os.dup(fd)) as connection:
                connection.shutdown(sockets.SHUT_RDWR)

    def close(self) -> None:
        """End every connection; what was sent has a moment to leave."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close()
