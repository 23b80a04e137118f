"""Threads that help with large kernels: parts of one kernel run side by side.

Theory of operation
    The caller of a kernel in parts puts the parts in a deque, offers the deque to the helpers, and takes parts out
    itself until none is left. A helper does the same. So the caller never waits for a helper that has not begun: if no
    processor is free for one, the caller computes all parts alone. At the end the caller waits for the parts that
    helpers are still computing, each of which takes no longer than one of its own.

Guarantees
    - `run` returns when all parts have run, and raises the first error of a part.
    - There are no more helpers than the device has threads that its streams leave idle.
    - An idle helper holds no reference to a kernel or to an array.

Rejected
    - Giving parts to other streams of the device: streams are in order, and tasks that wait there need not be short.
    - Threads for each call: starting one takes as long as a kernel on 100,000 elements.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from ..stream import Stream

Part: TypeAlias = Callable[..., Any]


class Job:
    """The parts of one kernel. Each part that has run is reported in `ended`, with its error or None."""

    def __init__(self, parts: Sequence[Part], arrays: Sequence[Any]) -> None:
        self.left = deque(parts)
        self.arrays = arrays
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def work(self) -> None:
        """Run parts until none is left."""
        while self.left:
            try:
                part = self.left.popleft()
            except IndexError:  # another thread took the last part
                return
            try:
                part(*self.arrays)
            except BaseException as error:
                self.ended.put(error)
            else:
                self.ended.put(None)

    def wait(self, count: int) -> None:
        """Wait until `count` parts have run, drop the arrays, and raise the first error."""
        errors = [error for error in [self.ended.get() for _ in range(count)] if error is not None]
        self.arrays = ()
        if errors:
            raise errors[0]


class HelperPool:
    """Up to `size` helper threads of a device, started when they are first needed. `streams`: the streams of its
    kernels."""

    def __init__(self, device: str, size: int, streams: Sequence[Stream]) -> None:
        self.size = size
        self._name = f"tensord {device}/helpers"
        self._streams = streams
        self._offers: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # guards the list of threads
        self._closed = False

    def run(self, parts: Sequence[Part], arrays: Sequence[Any]) -> None:
        """Call each part with these arrays. Called by any thread."""
        job = Job(parts, arrays)
        helpers = min(self.idle(), len(parts) - 1)
        if helpers > 0 and self._started(helpers):
            for _ in range(helpers):
                self._offers.put(job)
        job.work()
        job.wait(len(parts))

    def idle(self) -> int:
        """The number of helpers that may run besides the tasks of the streams."""
        busy = sum(stream.running() is not None for stream in self._streams)
        return min(self.size, self.size + 1 - busy)

    def _started(self, count: int) -> bool:
        """Start threads until there are `count`. False if the process is ending or the device is closed."""
        if len(self._threads) >= count:
            return True
        with self._lock:
            while len(self._threads) < count and not self._closed:
                name = f"{self._name}{len(self._threads)}"
                thread = threading.Thread(target=self._loop, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._threads.append(thread)
            return not self._closed

    def _loop(self) -> None:
        np.seterr(all="ignore")  # per thread, as on a stream's thread
        while (job := self._offers.get()) is not None:
            job.work()
            del job

    def begin_close(self) -> None:
        """Ask the threads to end."""
        with self._lock:
            self._closed = True
            for _ in self._threads:
                self._offers.put(None)

    def end_close(self, deadline: float) -> bool:
        """Wait for the threads until `deadline` (`time.monotonic`); False if one did not end in time."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


class InParts:
    """A kernel in parts, each called with the same arguments. `scratch`: the bytes that a call needs besides them."""

    def __init__(self, parts: Sequence[Any], helpers: HelperPool) -> None:
        self.parts = parts
        self.helpers = helpers
        self.scratch = sum(part.scratch for part in parts)

    def __call__(self, *arrays: Any) -> None:
        self.helpers.run(self.parts, arrays)
