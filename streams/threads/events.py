"""Events: a stream waits until a task of another stream was launched, without help of the host's scheduler.

A task's `event` is None until the task is launched. Then its stream sets the event: to EXECUTED if a launch is the
execution (sim), or to a device event (cuda). When a dependent task reaches the head of its stream, its source may not
be submitted yet, since the driving thread submits the batches of streams one after the other.

One condition variable serves the whole process, and every kind of stream. A thread that has nothing else to do sleeps
in `wait`. A thread that sleeps elsewhere, as a launcher does in its inbox, registers a wake-up function with `awaited`.
A launching stream pays one attribute test unless a stream waits. No wake-up is lost: the waiter counts itself before it
checks the source, and the launching stream sets the event before it checks the count. A thread in `wait` can only be
notified while it either sleeps or has not checked yet, since both hold the lock.

Rejected: a threading.Event per task, which costs 3 us on every task, and few tasks are ever waited for. A list of the
waiting streams of each kind: a stream of one kind was not woken by those of another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ..stream import Task


class Executed:
    """The type of EXECUTED."""

    def __repr__(self) -> str:
        return "EXECUTED"


EXECUTED: Final = Executed()


class LaunchCondition:
    """Lets streams wait for each other's launches. `waiting`: the number of waiting threads."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Reset the condition in a forked child, where no thread waits, and a thread of the parent may have held the
        lock."""
        self._changed = threading.Condition(threading.Lock())
        self._wakers: list[Callable[[], None]] = []
        self.waiting = 0

    def wait(self, source: Task, given_up: Callable[[], bool]) -> bool:
        """Block until `source` was launched (True), or until `given_up()` after a `notify` (False)."""
        with self._changed:
            self.waiting += 1
            try:
                while source.event is None and not given_up():
                    self._changed.wait()
            finally:
                self.waiting -= 1
        return source.event is not None

    @contextmanager
    def awaited(self, wake: Callable[[], None]) -> Iterator[None]:
        """Inside the block, call `wake` after each launch. `wake` must not block, and must remember calls that come
        early."""
        with self._changed:
            self._wakers.append(wake)
            self.waiting += 1
        try:
            yield
        finally:
            with self._changed:
                self._wakers.remove(wake)
                self.waiting -= 1

    def notify(self) -> None:
        """Make every waiter check again."""
        with self._changed:
            self._changed.notify_all()
            for wake in self._wakers:
                wake()


LAUNCH_CONDITION: Final = LaunchCondition()
os.register_at_fork(after_in_child=LAUNCH_CONDITION.renew)
