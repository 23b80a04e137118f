"""A proxy in front of a node that takes values; it holds the traffic at a given frame until it may go on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tensord.streams.links.tcp.frames import HEADER, Frame, HeaderKind

WAIT = 20.0  # seconds until a test that hangs fails


class HoldingProxy:
    """Forwards the frames that dialing nodes send to a target. After `hold_at`, the next connection's frame of that
    kind, or the nth, is held, and all frames behind it; of a PIECE, half has passed.
    """

    def __init__(self) -> None:
        self.target = ""
        self.held, self._go = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._wanted: tuple[HeaderKind, int] | None = None
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def hold_at(self, kind: HeaderKind, nth: int = 1) -> None:
        self.held.clear()
        self._go.clear()
        with self._lock:
            self._wanted = (kind, nth)

    def go(self) -> None:
        """Let all frames pass."""
        with self._lock:
            self._wanted = None
        self._go.set()

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.go()

    def _is_wanted(self, kind: HeaderKind) -> bool:
        with self._lock:
            if self._wanted is None or self._wanted[0] != kind:
                return False
            self._wanted = None if self._wanted[1] == 1 else (kind, self._wanted[1] - 1)
            return self._wanted is None

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                host, _, port = self.target.rpartition(":")
                try:
                    outer = socket.create_connection((host, int(port)))
                except (OSError, ValueError):
                    inner.close()
                    continue
                thread = threading.Thread(target=self._serve, args=(inner, outer))
                self._threads.append(thread)
                thread.start()

    def _serve(self, inner: socket.socket, outer: socket.socket) -> None:
        with inner, outer:
            for end in (inner, outer):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {inner, outer}
            back = threading.Thread(target=self._pump, args=(self._answers, outer, inner))
            back.start()
            self._pump(self._frames, inner, outer)
            back.join(WAIT)
            with self._lock:
                self._open -= {inner, outer}

    def _pump(self, pump: Callable[[socket.socket, socket.socket], None], *ends: socket.socket) -> None:
        with suppress(OSError, EOFError):
            pump(*ends)
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _answers(self, source: socket.socket, target: socket.socket) -> None:
        while some := source.recv(1 << 16):
            target.sendall(some)

    def _frames(self, source: socket.socket, target: socket.socket) -> None:
        length = taken(source, 4)
        target.sendall(length + taken(source, int.from_bytes(length, "little")))
        while True:
            header = taken(source, HEADER.size)
            frame = Frame.of(header)
            payload = taken(source, frame.length)
            if self._is_wanted(frame.kind):
                if frame.kind is HeaderKind.PIECE:
                    target.sendall(header + payload[: frame.length // 2])
                    header, payload = b"", payload[frame.length // 2 :]
                self.held.set()
                assert self._go.wait(WAIT)
            target.sendall(header + payload)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(WAIT)
        self._listener.close()


def taken(source: socket.socket, size: int) -> bytes:
    """Read so many bytes; EOFError at the end of the connection."""
    parts = []
    while size:
        some = source.recv(min(size, 1 << 16))
        if not some:
            raise EOFError
        parts.append(some)
        size -= len(some)
    return b"".join(parts)
