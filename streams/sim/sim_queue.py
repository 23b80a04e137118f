"""The work of one stream of a launching sim device: items are computed when a thread waits for them, or checks them.

Queues replace CUDA's streams and events (`launch_stream`, `stream_fences`) and give the same guarantees. The items of a
queue run in order. A queue that waits for an event waits for what the event had recorded at that time. An error of an
item is sticky: it breaks the device, and the next call raises it.

A thread that waits for a position in the order, or checks whether the position is reached, computes the items before
it. A thread that only checks computes small items that are due, for a short time. Without such a thread, nothing is
computed.

Each queue has its own clock. An item begins after the end of the item before it, after its launch, and after the end of
everything that it waits for. It takes its span of time, and is computed when the span is over. A thread that oversleeps
computes all items that have come due, so a chain takes the sum of its spans.

An item is a plain tuple, since each launch makes one: the function, its arguments, its span in nanoseconds, the time of
the launch, its number among the launches at admission or 0, and whether it is large.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from ..host.host import Memory

POISON: Final = 0xA5
CHECK_NS: Final = 200_000  # nanoseconds for which a thread that only checks may compute
Run: TypeAlias = Callable[..., object]
Item: TypeAlias = tuple[Run, Sequence[Any], int, int, int, bool]


class Breakable(Protocol):
    """A device, as its queues see it. `broken`: the error of an item, which every later call raises."""

    broken: BaseException | None


class Obstacle(Protocol):
    """A reason why a queue cannot go on."""

    def reach(self, *, wait: bool) -> bool:
        """Return whether the obstacle is gone. `wait`: wait until it is."""


class Gate:
    """An obstacle that a test or a fault removes."""

    def __init__(self) -> None:
        self.time = 0
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def reach(self, *, wait: bool) -> bool:
        """Return whether the gate is open."""
        return self._open.wait(None if wait else 0)


class Delay:
    """An obstacle that ends at a time, or when the queue is told to hurry."""

    def __init__(self, hurry: threading.Event, until: int) -> None:
        self._hurry = hurry
        self._until = until

    def reach(self, *, wait: bool) -> bool:
        """Return whether the time is over."""
        left = self._until - perf_counter_ns()
        return left <= 0 or self._hurry.wait(left / 1e9 if wait else 0)


class QueuePosition:
    """A position in the order of a queue. `time`: when it was reached, on the queue's own clock."""

    __slots__ = ("done", "queue", "time")

    def __init__(self, queue: SimQueue) -> None:
        self.queue = queue
        self.done = False
        self.time = 0

    def reach(self, *, wait: bool) -> bool:
        """Compute the due items before the position; with `wait`, all of them. Returns True if the position is
        reached, or never will be because the device is broken."""
        return self.done or self.queue.reach(self, wait=wait)


class SimEvent:
    """Stands in for `cupy.cuda.Event`. An event that was never recorded is done."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: QueuePosition | None = None

    def record(self, queue: SimQueue) -> None:
        self.position = queue.record()

    @property
    def done(self) -> bool:
        """Compute small due items before the event; returns whether it is reached."""
        position = self.position
        if position is None:
            return True
        reached = position.reach(wait=False)
        position.queue.check()
        return reached

    def synchronize(self) -> None:
        """Wait until the event is reached. Raises the error that has broken the device."""
        if self.position is not None:
            self.position.reach(wait=True)
            self.position.queue.check()


class SimQueue:
    """The work of one stream. Any thread may append items; one thread at a time computes."""

    def __init__(self, owner: Breakable) -> None:
        self.owner = owner
        self.time = 0  # the end of the last computed item
        self.held: Gate | None = None  # before the next item
        self.items: deque[Item] = deque()
        self._computed = 0  # the highest number of a computed launch
        self._poisons: dict[int, list[Memory]] = {}  # memory to poison, by the number of the last launch that uses it
        self._working = threading.Lock()
        self._freeing = threading.Lock()
        self._hurry = threading.Event()  # set: items take no time any more

    # -- launching -------------------------------------------------------------------------------------------------

    def launch(
        self, run: Run, arguments: Sequence[Any], span: int = 0, number: int = 0, *, large: bool = False
    ) -> None:
        """Append a call. `span`: the least nanoseconds that it takes. `large`: threads that only check do not compute
        it."""
        self.items.append((run, arguments, span, perf_counter_ns() if span else 0, number, large))

    def wait_event(self, event: SimEvent) -> None:
        """Make later items wait for what the event has recorded so far."""
        if event.position is not None:
            self.wait_for(event.position)

    def wait_for(self, what: QueuePosition | Gate) -> None:
        """Make later items wait for a position in the order of another queue, or for a gate."""
        self.items.append((await_it, (what,), 0, 0, 0, False))

    def record(self) -> QueuePosition:
        """A position after all items launched so far."""
        position = QueuePosition(self)
        self.items.append((record_it, (position,), 0, 0, 0, False))
        return position

    def use(self) -> None:
        """Nothing: part of the interface of CuPy's streams; launches here name their queue."""

    def synchronize(self) -> None:
        """Wait until all items launched so far are computed. Raises the error that has broken the device."""
        self.record().reach(wait=True)
        self.check()

    def check(self) -> None:
        """Raise the error that has broken the device, if any."""
        if self.owner.broken is not None:
            raise self.owner.broken.with_traceback(None)  # the same error may be raised many times

    def poison(self, memory: Memory, number: int) -> None:
        """Overwrite freed memory after the launches up to that number, which use it."""
        with self._freeing:
            if number > self._computed and self.owner.broken is None:
                self._poisons.setdefault(number, []).append(memory)
                if number > self._computed:  # otherwise the computing thread may have missed this entry
                    return
            for each in (memory, *self._poisons.pop(number, ())):
                each.fill(POISON)

    def hurry(self) -> None:
        """Let no item take time, or be held, any more."""
        self._hurry.set()
        if (held := self.held) is not None:
            held.open()

    # -- computing -------------------------------------------------------------------------------------------------

    def reach(self, position: QueuePosition, *, wait: bool) -> bool:
        """Compute the items before a position. If another thread computes them, only a thread that waits takes over
        from it.

        No thread waits for another queue, or sleeps, while it holds the lock. Otherwise threads that only check would
        wait for that thread, and it might wait for them.
        """
        while not position.done and self.owner.broken is None and self._working.acquire(blocking=wait):
            try:
                obstacle = self.compute(position, perf_counter_ns() + CHECK_NS, wait=wait)
            finally:
                self._working.release()
            if not wait:
                break
            if obstacle is not None:
                obstacle.reach(wait=True)
        return position.done or self.owner.broken is not None

    def compute(self, position: QueuePosition, until: int, *, wait: bool) -> Obstacle | None:
        """Compute the items before a position; returns the obstacle, if any. A thread that only checks stops at the
        time `until`. An error breaks the device. One thread at a time calls this."""
        clock, step = perf_counter_ns, self._step
        try:
            with np.errstate(all="ignore"):
                while not position.done and self.owner.broken is None:
                    obstacle = step(position, wait)
                    if obstacle is not None or (not wait and clock() > until):
                        return obstacle
        except BaseException as error:
            self.owner.broken = error
            self.items.clear()
        return None

    def _step(self, position: QueuePosition, wait: bool) -> Obstacle | None:
        """Compute the next item, or return the obstacle before it."""
        held = self.held
        if held is not None and not held.reach(wait=False):
            return held
        run, arguments, span, launched, number, large = self.items[0]
        begin = max(self.time, launched)
        if run is await_it:
            (what,) = arguments
            if not what.reach(wait=False):
                return what  # type: ignore[no-any-return]  # a position, or a gate
            self.time = max(begin, what.time)
        elif run is record_it:
            arguments[0].time, arguments[0].done = begin, True
        else:
            if large and not wait:
                return position
            if span and begin + span > perf_counter_ns() and not self._hurry.is_set():
                return Delay(self._hurry, self._due(begin, position))
            run(*arguments)
            self.time = begin + span
        self.items.popleft()
        if number:
            self._pass(number)
        return None

    def _due(self, begin: int, position: QueuePosition) -> int:
        """The time at which a position is due, as far as it is known, if the next item begins at `begin`."""
        for run, arguments, span, *_ in list(self.items):
            if run is await_it or (run is record_it and arguments[0] is position):
                break
            begin += span
        return begin

    def _pass(self, number: int) -> None:
        """Poison the memory that is free once that launch is computed."""
        self._computed = number
        if self._poisons:
            with self._freeing:
                for memory in self._poisons.pop(number, ()):
                    memory.fill(POISON)


def await_it(_what: QueuePosition | Gate) -> None:
    """Marks an item that waits for another queue, or for a gate."""


def record_it(_position: QueuePosition) -> None:
    """Marks an item that is a position in the order."""
