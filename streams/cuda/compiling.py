"""Compiles kernels in the background, on a thread of the device's own that starts when it is needed.

NVIDIA's compiler takes some 0.3 s for a kernel, and releases the interpreter lock meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import TypeAlias

Work: TypeAlias = Callable[[], None]


class Compiling:
    """The thread that compiles for one device. Its work must not raise."""

    def __init__(self, device: str) -> None:
        self._name = f"tensord {device}/compiling"
        self._asked: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Work) -> None:
        """Queue work. The work is dropped if the device is closed, or no thread can be started."""
        if self._closed:
            return
        self._asked.put(work)
        if self._thread is None:
            thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process is ending
                return
            self._thread = thread

    def _loop(self) -> None:
        while (work := self._asked.get()) is not None:
            if not self._closed:
                work()

    def close(self, deadline: float) -> bool:
        """End the thread, and drop work that has not begun; False if the thread does not end before `deadline`."""
        self._closed = True
        self._asked.put(None)
        if self._thread is None:
            return True
        self._thread.join(max(0.0, deadline - monotonic()))
        return not self._thread.is_alive()
