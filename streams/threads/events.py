"""Events: a stream waits until a task of another stream was launched, without the host's scheduler in between.

A task's `event` is None until the task is launched. Then a stream that can be waited for sets it: to EXECUTED where
launching is executing (sim), to a device event where it is not (cuda). A source need not have been submitted yet when
its dependent reaches the head of a stream: the driving thread hands over one stream's batch after the other.

One condition variable serves the whole process, and every kind of stream. A thread that can do nothing else sleeps in
`wait`. A thread that has a place to sleep of its own, as a launcher has its inbox, registers with `awaited` how it is
woken. A launching stream pays one attribute test unless a stream waits. No wake-up is lost: the waiter counts itself
before it checks the source, and the launching stream sets the event before it checks the count. A thread in `wait` can
only be notified while it either sleeps or has not checked yet, since both hold the lock.

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
    """Lets streams wait for each other's launches. `waiting` is the number of waiting threads."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, in a forked child: no thread waits there, and another thread may have held the lock."""
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
        """Have `wake` called after each launch while entered. It must not block, and has to remember an early call."""
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
