"""The work of one stream of a sim device that launches: items are computed when a thread waits for them, or looks.

Queues take the place of CUDA's streams and events (`launch_stream`, `stream_fences`), with the same promises. The items
of a queue run in order. A queue that waits for an event waits for what the event had recorded by then. An error of an
item is sticky: it breaks the device, and surfaces in the next call.

Items are computed by the thread that waits for a place in the order, or looks whether it is reached. A thread that only
looks computes what is small and due, for a moment. If no thread asks, nothing is computed.

Each queue has its own clock. An item begins when the one before it has ended, but not before its launch, nor before
what it waits for has ended. It takes its span, and is computed once that is over. A thread that oversleeps computes all
that has come due, so a chain takes the sum of its spans.

An item is a plain tuple, since one is made for each launch: what to call, its arguments, its span in nanoseconds, when
it was launched, its number among the launches at admission, or 0, and whether it is large.
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
MOMENT: Final = 200_000  # nanoseconds for which a thread computes that only looks
Run: TypeAlias = Callable[..., object]
Item: TypeAlias = tuple[Run, Sequence[Any], int, int, int, bool]


class Breakable(Protocol):
    """A device as its queues see it. `broken`: the error of an item, which every later call raises."""

    broken: BaseException | None


class Obstacle(Protocol):
    """What stands in the way of a queue."""

    def reach(self, *, wait: bool) -> bool:
        """Is it out of the way? `wait`: until it is."""


class Gate:
    """What a queue waits for that a test, or a fault, holds up."""

    def __init__(self) -> None:
        self.time = 0
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def reach(self, *, wait: bool) -> bool:
        """Is it open?"""
        return self._open.wait(None if wait else 0)


class Delay:
    """What takes time: until then, or until a hurry."""

    def __init__(self, hurry: threading.Event, until: int) -> None:
        self._hurry = hurry
        self._until = until

    def reach(self, *, wait: bool) -> bool:
        """Is it over?"""
        left = self._until - perf_counter_ns()
        return left <= 0 or self._hurry.wait(left / 1e9 if wait else 0)


class QueuePosition:
    """A place in the order of a queue. `time`: when it was reached, on the queue's own clock."""

    __slots__ = ("done", "queue", "time")

    def __init__(self, queue: SimQueue) -> None:
        self.queue = queue
        self.done = False
        self.time = 0

    def reach(self, *, wait: bool) -> bool:
        """Compute what is before it, as far as that is due; `wait`: until it is reached. True then, and where it never
        will be, since its device is broken."""
        return self.done or self.queue.reach(self, wait=wait)


class SimEvent:
    """What `cupy.cuda.Event` is to CUDA. One that was never recorded is done."""

    __slots__ = ("place",)

    def __init__(self) -> None:
        self.place: QueuePosition | None = None

    def record(self, queue: SimQueue) -> None:
        self.place = queue.record()

    @property
    def done(self) -> bool:
        """Is it reached? Computes what is small and due before it."""
        place = self.place
        if place is None:
            return True
        reached = place.reach(wait=False)
        place.queue.check()
        return reached

    def synchronize(self) -> None:
        """Wait until it is reached. Raises what the device is broken by."""
        if self.place is not None:
            self.place.reach(wait=True)
            self.place.queue.check()


class SimQueue:
    """The work of one stream. Any thread may append to it; one at a time computes."""

    def __init__(self, owner: Breakable) -> None:
        self.owner = owner
        self.time = 0  # when that was over which was computed last
        self.held: Gate | None = None  # before the next item
        self.items: deque[Item] = deque()
        self._computed = 0  # the highest number of a launch that was computed
        self._poisons: dict[int, list[Memory]] = {}  # by the number of the launch behind which memory is free
        self._working = threading.Lock()
        self._freeing = threading.Lock()
        self._hurry = threading.Event()  # nothing takes time any more

    # -- launching -------------------------------------------------------------------------------------------------

    def launch(
        self, run: Run, arguments: Sequence[Any], span: int = 0, number: int = 0, *, large: bool = False
    ) -> None:
        """Append a call. `span`: nanoseconds that it takes at the least. `large`: no thread does it that only looks."""
        self.items.append((run, arguments, span, perf_counter_ns() if span else 0, number, large))

    def wait_event(self, event: SimEvent) -> None:
        """Have what follows wait for what the event has recorded by now."""
        if event.place is not None:
            self.wait_for(event.place)

    def wait_for(self, what: QueuePosition | Gate) -> None:
        """Have what follows wait for a place in the order of another queue, or for a gate."""
        self.items.append((await_it, (what,), 0, 0, 0, False))

    def record(self) -> QueuePosition:
        """A place behind everything that was launched so far."""
        place = QueuePosition(self)
        self.items.append((record_it, (place,), 0, 0, 0, False))
        return place

    def use(self) -> None:
        """As CuPy's streams have it; launches name their queue here."""

    def synchronize(self) -> None:
        """Wait until everything launched so far is computed. Raises what the device is broken by."""
        self.record().reach(wait=True)
        self.check()

    def check(self) -> None:
        """Raise what the device is broken by."""
        if self.owner.broken is not None:
            raise self.owner.broken.with_traceback(None)  # it is raised again and again

    def poison(self, memory: Memory, number: int) -> None:
        """Memory was freed that launches up to that number use: overwrite it behind them."""
        with self._freeing:
            if number > self._computed and self.owner.broken is None:
                self._poisons.setdefault(number, []).append(memory)
                if number > self._computed:  # else the thread that computes may not have seen this
                    return
            for each in (memory, *self._poisons.pop(number, ())):
                each.fill(POISON)

    def hurry(self) -> None:
        """Let nothing take time, or be held, any more."""
        self._hurry.set()
        if (held := self.held) is not None:
            held.open()

    # -- computing -------------------------------------------------------------------------------------------------

    def reach(self, place: QueuePosition, *, wait: bool) -> bool:
        """Compute what is before a place. Another thread may be at it: then only one that waits takes its turn.

        No thread waits for another queue, or sleeps, while it holds the lock: others, which only have to see that they
        are there, would wait for it, and it perhaps for them.
        """
        while not place.done and self.owner.broken is None and self._working.acquire(blocking=wait):
            try:
                obstacle = self.compute(place, perf_counter_ns() + MOMENT, wait=wait)
            finally:
                self._working.release()
            if not wait:
                break
            if obstacle is not None:
                obstacle.reach(wait=True)
        return place.done or self.owner.broken is not None

    def compute(self, place: QueuePosition, until: int, *, wait: bool) -> Obstacle | None:
        """Do what is before a place; what stands in the way of that, if anything. A thread that only looks does no more
        items after `until`. An error breaks the device. Called by one thread at a time."""
        clock, step = perf_counter_ns, self._step
        try:
            with np.errstate(all="ignore"):
                while not place.done and self.owner.broken is None:
                    obstacle = step(place, wait)
                    if obstacle is not None or (not wait and clock() > until):
                        return obstacle
        except BaseException as error:
            self.owner.broken = error
            self.items.clear()
        return None

    def _step(self, place: QueuePosition, wait: bool) -> Obstacle | None:
        """Do the next item, or say what stands in the way."""
        held = self.held
        if held is not None and not held.reach(wait=False):
            return held
        run, arguments, span, launched, number, large = self.items[0]
        begin = max(self.time, launched)
        if run is await_it:
            (what,) = arguments
            if not what.reach(wait=False):
                return what  # type: ignore[no-any-return]  # a place, or a gate
            self.time = max(begin, what.time)
        elif run is record_it:
            arguments[0].time, arguments[0].done = begin, True
        else:
            if large and not wait:
                return place
            if span and begin + span > perf_counter_ns() and not self._hurry.is_set():
                return Delay(self._hurry, self._due(begin, place))
            run(*arguments)
            self.time = begin + span
        self.items.popleft()
        if number:
            self._pass(number)
        return None

    def _due(self, begin: int, place: QueuePosition) -> int:
        """When a place is due, as far as that is known, if the next item begins then."""
        for run, arguments, span, *_ in list(self.items):
            if run is await_it or (run is record_it and arguments[0] is place):
                break
            begin += span
        return begin

    def _pass(self, number: int) -> None:
        """A launch was computed: poison the memory that is free behind it."""
        self._computed = number
        if self._poisons:
            with self._freeing:
                for memory in self._poisons.pop(number, ()):
                    memory.fill(POISON)


def await_it(_what: QueuePosition | Gate) -> None:
    """Stands for waiting for another queue, or for a gate."""


def record_it(_place: QueuePosition) -> None:
    """Stands for a place in the order."""
