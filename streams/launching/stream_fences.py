"""Fences: positions in the order of a stream, behind bursts of tasks.

Other streams, and the host, wait for fences. A fence holds an event, and the work of the host once the event has passed
(copying staged bytes to their destination): a host that reads after a fence waits for this work, too.

Events are reused. That is safe once the host knows that the event has passed, and nothing refers to its fence any
more: `cudaStreamWaitEvent` waits for what the event had recorded at the time of the call, whatever it records later
(CUDA Runtime API, cudaEventRecord), so reuse could only mislead future calls, and these need the fence.

The time of a fence is when the host first noticed that it has passed. The thread that notices this also stamps all
earlier fences at once, since the threads that wait for those may be late. So nothing ends after its successor's
beginning.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

_MOST_FREE: Final = 64  # unused events of one device that are kept
_STAMP_LOCK: Final = threading.Lock()


class Losable(Protocol):
    """A device as a fence sees it."""

    lost: BaseException | None

    def has_passed(self, event: Any) -> bool:
        """Return whether the device has reached an event. One call of the driver; raises the device's error."""


class Events:
    """The events of one device: made by `new`, and reused. Any thread may take and give."""

    def __init__(self, new: Callable[[], Any], clock: Callable[[], int]) -> None:
        self.clock = clock
        self._new = new
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            return self._new()

    def give(self, event: Any) -> None:
        if len(self._free) < _MOST_FREE:
            self._free.append(event)


class StreamFence:
    """A position in a stream's order. `event` has been recorded there; `time` is 0 until the host knows that it passed.

    `after`: fences that have passed when this one has; empty once `time` is known. `finish`: the host's part. `sound`:
    the fence's own device had no error when the fence passed; a later fence of another device does not prove that.
    """

    __slots__ = ("_events", "_finish", "_finishing", "after", "event", "owner", "sound", "time")

    def __init__(
        self, owner: Losable, events: Events, event: Any, after: Iterable[StreamFence], finish: list[Callable[[], None]]
    ) -> None:
        self.owner = owner
        self.event = event
        self.time = 0
        self.sound = False
        self._events = events
        self.after = tuple(after)
        self._finish = finish
        self._finishing = threading.Lock() if finish else None

    def passed(self) -> bool:
        """Return whether the device has reached the fence. One call of CUDA; raises the device's error."""
        return self.sound or self.owner.has_passed(self.event)

    def synchronize(self) -> None:
        """Wait until the device has reached the fence and the host has done its part. Any thread; raises the device's
        error."""
        if not self.sound:
            self.event.synchronize()
        if self._finishing is not None:
            with self._finishing:
                for finish in self._finish:
                    finish()
                self._finish = []
        if not self.sound:
            self._stamp()

    def _stamp(self) -> None:
        with _STAMP_LOCK:
            now = self._events.clock()
            unknown = [self]
            while unknown:
                fence = unknown.pop()
                fence.sound |= fence.owner is self.owner
                if not fence.time:
                    fence.time = now
                    unknown += fence.after
                    fence.after = ()

    def __del__(self) -> None:
        if self.time:
            self._events.give(self.event)
