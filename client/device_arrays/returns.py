"""Gives borrowed values back, once their last array is gone, and the GPU has finished reading them.

The last array of a value may be gone while kernels that read the value are still queued, on streams that only their
launcher knows. So a thread waits for all streams of the device before the machine is told that the memory is free. The
thread runs while anything is borrowed.

Rejected: an event on the consumer's stream, since the later streams of an array are unknown; waiting on the thread that
drops the array, which may be any thread at any point.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ...interpreter.concurrency.finalisers import LastReference
from ...interpreter.concurrency.interrupts import SHIELD
from ..process.forks import FORKS


class Returns:
    """The values that this process has borrowed, and the thread that gives them back."""

    def __init__(self) -> None:
        self._begin()
        FORKS.child_resets.append(self._begin)

    def _begin(self) -> None:
        """Reset in a forked child: borrowed values belong to the parent, and CUDA does not survive a fork."""
        self._lock = threading.RLock()
        self._gone: SimpleQueue[Any] = SimpleQueue()
        self._lent: dict[int, LastReference] = {}
        self._thread: threading.Thread | None = None

    def watch(self, owner: Any, give_back: Callable[[], None]) -> None:
        """Make the thread call `give_back` once the owner is gone."""
        with self._lock, SHIELD:
            LastReference.of(owner, self._gone.put, give_back, self._lent)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tensord returns", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            last = self._gone.get()
            last.what()
            with self._lock:
                del self._lent[id(last)]
                if not self._lent:
                    self._thread = None
                    return


RETURNS = Returns()
