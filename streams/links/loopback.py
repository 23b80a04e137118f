"""The links of a machine that knows no other node: it may send to itself. Large values are copied on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from ..stream import LOG
from .exchange import Exchange
from .in_memory import InMemory
from .link import SMALL_BYTES


class CopyThread:
    """Copies on a thread of its own, which the first large value starts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the thread's start and end
        self._thread: threading.Thread | None = None
        self._closed = False

    def __call__(self, nbytes: int, step: Callable[[], None]) -> None:
        if nbytes <= SMALL_BYTES or not self._started():
            step()
        else:
            self._steps.put(step)

    def close(self, timeout: float) -> bool:
        """Copy everything that is queued, then end the thread; False if it did not end in time."""
        with self._lock:
            self._closed = True
            self._steps.put(None)
        if self._thread is None or self._thread is threading.current_thread():
            return self._thread is None
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _started(self) -> bool:
        """Return whether there is a thread. There is none after `close`, and none can be started while the process
        ends."""
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._loop, name=f"tensord {self._name}/loopback", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            return not self._closed

    def _loop(self) -> None:
        while (step := self._steps.get()) is not None:
            try:
                step()
            except BaseException as error:
                LOG.error("the loopback of %s goes on after an error", self._name, exc_info=error)
            del step


class Loopback(InMemory):
    """The links of a single machine."""

    def __init__(self, node: str) -> None:
        self._copy_thread = CopyThread(node)
        super().__init__(node, {node: Exchange(self._copy_thread)})

    def close(self, timeout: float = 5.0) -> bool:
        """End the thread; False if it did not end in time. The machine was closed before."""
        return self._copy_thread.close(timeout)
