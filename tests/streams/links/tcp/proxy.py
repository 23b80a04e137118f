"""A proxy between two nodes that cuts its connections after so many bytes, or forwards nothing for a while."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Any, Self


class Proxy:
    """Forwards bytes to a target. `cut_after`: cut all connections once, after this many bytes of all of them together,
    counted from when it is set."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self.left: int | None = None
        self.stalled = False
        self.cuts = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut_after(self, nbytes: int) -> None:
        self.left = nbytes

    def stall(self, *, on: bool) -> None:
        """Forward nothing, and keep all connections."""
        self.stalled = on
        self._wake.send(b"x")

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(0.02 if self.stalled else None):
                self._act(key.fileobj)

    def _act(self, ready: Any) -> None:
        if ready is self._woken:
            self._woken.recv(1024)
        elif ready is self._listener:
            self._accept()
        elif ready in self._pairs and not self.stalled:
            self._forward(ready)

    def _accept(self) -> None:
        inner, _ = self._listener.accept()
        host, _, port = self._target.rpartition(":")
        try:
            outer = socket.create_connection((host, int(port)))
        except OSError:
            inner.close()
            return
        for one, other in ((inner, outer), (outer, inner)):
            one.settimeout(5.0)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, ready: socket.socket) -> None:
        try:
            some = ready.recv(1 << 16)
            left = self.left
            if left is not None:
                some = some[:left]
                self.left = left - len(some)
            if some:
                self._pairs[ready].sendall(some)
        except OSError:
            some = b""
        if self.left == 0:
            self.left = None
            self.cuts += 1
            for one in list(self._pairs):
                self._end(one)
        elif not some:
            self._end(ready)

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other is None:
            return
        del self._pairs[other]
        for end in (one, other):
            self._selector.unregister(end)
            end.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._wake.send(b"x")
        self._thread.join(10)
        for one in list(self._pairs):
            self._end(one)
        self._selector.close()
        for end in (self._listener, self._wake, self._woken):
            with suppress(OSError):
                end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
