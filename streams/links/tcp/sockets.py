"""Connections of one link: plain or TLS, with a bound on silence.

A read that gets no byte for `patience` seconds, or a write that can write none, raises TimeoutError. Any thread may
call `cut`, which ends both. `close` is called once no thread uses the connection any more.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

READ_AHEAD_BYTES: Final = (
    4 << 10
)  # bytes that are read together: several small frames, or a header and the beginning of a piece
TLS_PIECE: Final = 256 << 10  # bytes of one write: takes less than `patience` on the slowest network
_TIME: Final = struct.Struct("ll")

Wrap = Callable[[socket.socket], Any]  # wraps a connection in TLS


class Tls(NamedTuple):
    """The encryption of connections. `accept` wraps an accepted connection. `dial` wraps a dialled one, and raises
    OSError if the other side's certificate does not have the given fingerprint. `fingerprint`: of our own
    certificate."""

    accept: Wrap
    dial: Callable[[socket.socket, str], Any]
    fingerprint: str


class Connection:
    """Reads and writes whole buffers. `_ahead`: bytes that were read beyond the last request."""

    def __init__(self, inner: Any, patience: float, *, tls: bool) -> None:
        self._inner = inner
        self._tls = tls
        self._buffer = memoryview(bytearray(READ_AHEAD_BYTES))
        self._ahead = self._buffer[:0]
        inner.settimeout(patience if tls else None)
        if not tls:  # set in the kernel, since a timeout of Python's would double the system calls
            span = _TIME.pack(int(patience), int(patience % 1 * 1e6))
            inner.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
            inner.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)

    def read_into(self, view: memoryview) -> None:
        """Fill the view. ConnectionError at the end of the connection."""
        done, size = 0, len(view)
        while done < size:
            if not self._ahead and size - done >= READ_AHEAD_BYTES:
                done += self._receive(view[done:], socket.MSG_WAITALL)
                continue
            if not self._ahead:
                self._ahead = self._buffer[: self._receive(self._buffer, 0)]
            some = min(size - done, len(self._ahead))
            view[done : done + some], self._ahead = self._ahead[:some], self._ahead[some:]
            done += some

    def _receive(self, view: memoryview, flags: int) -> int:
        """Receive at least one byte."""
        try:
            some: int = self._inner.recv_into(view, 0, 0 if self._tls else flags)
        except BlockingIOError:
            raise TimeoutError("the other side is silent") from None
        if not some:
            raise ConnectionResetError("the other side has hung up")
        return some

    def write(self, buffers: Sequence[Any]) -> None:
        """Write all buffers."""
        try:
            if self._tls:
                for buffer in buffers:
                    self._write_tls(buffer)
            else:
                self._write_plain(buffers)
        except BlockingIOError:
            raise TimeoutError("the other side does not read") from None

    def write_now(self, data: bytes) -> bytes:
        """Write what fits in the kernel's buffer, on any thread; returns the rest. Writes nothing over TLS."""
        if self._tls:
            return data
        try:
            return data[self._inner.send(data, socket.MSG_DONTWAIT) :]
        except OSError:  # full; or broken, which the next writer notices
            return data

    def _write_plain(self, buffers: Sequence[Any]) -> None:
        sent = self._inner.sendmsg(buffers)
        for buffer in buffers:
            if sent < len(buffer):
                self._inner.sendall(memoryview(buffer)[sent:])
            sent = max(sent - len(buffer), 0)

    def _write_tls(self, buffer: Any) -> None:
        view = memoryview(buffer)
        for begin in range(0, len(view), TLS_PIECE):
            self._inner.sendall(view[begin : begin + TLS_PIECE])

    def cut(self) -> None:
        """End the reads and writes of other threads, without TLS's closing message, which would need those threads."""
        with suppress(OSError):
            socket.socket.shutdown(self._inner, socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._inner.close()


def dial(host: str, port: int, timeout: float) -> socket.socket:
    """A connection to a node."""
    return tuned(socket.create_connection((host, port), timeout))


def tuned(connection: socket.socket) -> socket.socket:
    """Configure the connection to send small frames at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def listen(host: str, low: int, high: int) -> socket.socket:
    """A socket that listens at the first free port; OSError if none is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    error: OSError | None = None
    for port in range(low, high + 1):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(128)
        except OSError as failure:
            listener.close()
            error = failure
        else:
            return listener
    raise error or OSError(f"no port from {low} to {high}")
