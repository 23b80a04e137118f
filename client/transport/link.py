"""A connection to a daemon: the socket, the greeting, the end."""

from __future__ import annotations

import os
import socket as sockets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from ...interpreter.errors import ConnectionLost, ProtocolError
from ...interpreter.wire.codec import Encoder, decode
from ...interpreter.wire.frames import BYE, ERRORS, HELLO, REFUSED, VERSION, WELCOME, host_identity

GREETING = 5.0  # seconds for the daemon to answer HELLO
LINGER_MS = 500
NEVER_MS = 24 * 3600 * 1000
LONGEST = 1 << 30  # bytes of a header from the daemon: long answers come in slices
EVENTS = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_CLOSED
)
FAILURES = frozenset(
    {
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    }
)


class Welcome(NamedTuple):
    """The daemon's answer to HELLO."""

    session: int
    token: bytes | None
    devices: dict[str, frozenset[str]]
    settings: dict[str, Any]
    received: int


class Link:
    """A DEALER and its monitor. Not safe to use from two threads at once."""

    def __init__(self, address: str, options: Mapping[int, Any], name: str, *, strict: bool) -> None:
        self.address = address
        self.local = address.startswith("ipc://")
        self.name = name
        self.strict = strict
        self.encoder = Encoder()
        self.options = options
        check_reachable(address)
        self.context: zmq.Context[Any] = zmq.Context()
        try:
            self.open()
            self.welcome = self.greet()
        except BaseException:
            self.close(0)
            raise

    def open(self) -> None:
        """Make the sockets and connect.

        ZeroMQ must not reconnect by itself: it would send queued messages before HELLO. With reconnecting turned off
        (-1), it would drop messages not yet read when a connection ends; so it reconnects later than any caller waits.
        """
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = LINGER_MS
        self.socket.sndhwm = self.socket.rcvhwm = 0  # credit bounds both; nothing here may block on a queue
        self.socket.reconnect_ivl = NEVER_MS
        if not self.local:
            self.socket.ipv6 = True
            self.socket.heartbeat_ivl, self.socket.heartbeat_timeout = 1_000, 10_000
        for option, value in self.options.items():
            self.socket.setsockopt(option, value)
        self.monitor = self.socket.get_monitor_socket(EVENTS)
        self.monitor_fd = int(self.monitor.get(zmq.FD))
        self.socket.connect(self.address)

    def reopen(self) -> None:
        """Connect anew, after the connection was lost."""
        self.close_sockets(0)
        self.open()

    # -- the greeting ----------------------------------------------------------------------------------------------

    def greet(self) -> Welcome:
        """Say HELLO and wait for WELCOME; ConnectionLost with the reason if there is none."""
        self.hello(None, 0)
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.monitor, zmq.POLLIN)
        deadline = time.monotonic() + GREETING
        while True:
            ready = dict(poller.poll(ceil(max(deadline - time.monotonic(), 0) * 1000)))
            if self.socket in ready:
                return self.read_welcome(self.receive())
            if not ready:
                raise ConnectionLost(f"what listens at {self.address} does not answer as a tensord daemon does")
            for event in self.events():
                with suppress(zmq.Again):  # a refusal comes before the end
                    return self.read_welcome(self.receive())
                self.explain(event)

    def explain(self, event: int) -> None:
        """Raise ConnectionLost if that event means that there will be no WELCOME."""
        if event in FAILURES and not (self.local and event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL):  # it has just died
            raise ConnectionLost(
                f"the daemon at {self.address} refused the connection: "
                + ("it belongs to another user" if self.local else "it does not know our key; see `tensord keygen`")
            )
        if event == zmq.EVENT_DISCONNECTED and not self.local:
            raise ConnectionLost(
                f"what listens at {self.address} has hung up on us: it wants keys (see `tensord keygen`), "
                "or is no tensord daemon"
            )
        if event in {zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL}:
            raise ConnectionLost(
                f"nobody answers at {self.address}: start a daemon there with `tensord serve`, or see `tensord doctor`"
            )

    def hello(self, token: bytes | None, received: int) -> None:
        """Send HELLO."""
        self.send([HELLO, VERSION, self.name, os.getpid(), host_identity(), self.strict, token, received])

    def read_welcome(self, frames: Sequence[Any]) -> Welcome:
        """WELCOME from the wire, or the error that came in its place."""
        header = decode(frames[0].buffer, LONGEST)
        if header[0] == REFUSED:
            raise ERRORS.get(header[1], ConnectionLost)(f"the daemon at {self.address} refused us: {header[2]}")
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
        """Send frames; large ones without a copy. If the daemon is gone the frames are lost; an event follows soon."""
        with suppress(zmq.Again):
            if len(frames) == 1:
                self.socket.send(frames[0], zmq.NOBLOCK)
            else:
                self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def receive(self) -> list[Any]:
        """The next message's frames; zmq.Again if there is none."""
        frames: list[Any] = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        return frames

    def watch(self, bell: int) -> list[int]:
        """Have `poll` watch that descriptor, too; returns the connection's events so far.

        The monitor's descriptor signals an event only if all earlier events were read.
        """
        self.poller = poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.monitor_fd, zmq.POLLIN)  # asking ZeroMQ costs more than asking the kernel
        poller.register(bell, zmq.POLLIN)
        return self.events()

    def poll(self, timeout_ms: int | None) -> list[tuple[Any, int]]:
        """Sleep until a message, an event or the bell comes, for `timeout_ms` milliseconds at most."""
        return self.poller.poll(timeout_ms)

    def events(self) -> list[int]:
        """The connection's events that were not read yet."""
        found = []
        while self.monitor.get(zmq.EVENTS) & zmq.POLLIN:
            found.append(recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"])
        return found

    # -- the end ---------------------------------------------------------------------------------------------------

    def bye(self) -> None:
        """Say goodbye."""
        self.send([BYE])

    def close(self, linger: int = LINGER_MS) -> None:
        """Close the sockets; messages already sent have `linger` milliseconds to leave."""
        self.close_sockets(linger)
        self.context.term()

    def close_sockets(self, linger: int) -> None:
        """Close the sockets."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(linger)


def check_reachable(address: str) -> None:
    """Raise ConnectionLost if no daemon listens at the address: ZeroMQ itself would wait for one."""
    if not address.startswith("ipc://"):
        return
    path = address.removeprefix("ipc://")
    probe = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK)
    with probe:
        try:
            probe.connect(path)
        except OSError as error:
            raise ConnectionLost(
                f"no daemon listens at {address} ({error.strerror or error}): start one with "
                f"`tensord serve --address {address}`"
            ) from None


def program_name() -> str:
    """The name of this process, for the daemon's list of sessions."""
    arguments = [argument for argument in sys.orig_argv[1:] if not argument.startswith("-")]
    return Path(arguments[0]).name if arguments else Path(sys.executable).name
