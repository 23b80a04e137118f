"""Events: a stream waits until a task of another stream was launched, without the host's scheduler in between.

A task's `event` is None until the task is launched. Then a stream that can be waited for sets it: to EXECUTED where
launching is executing (sim), to a device event where it is not (cuda). A source need not have been submitted yet when
its dependent reaches the head of a stream: the driving thread hands over one stream's batch after the other.

One turnstile serves the whole process. A launching stream pays one attribute test unless a stream waits. No wake-up is
lost: the waiter counts itself before it checks the source, and the launcher sets the event before it checks the count.
The launcher can only notify while the waiter either sleeps or has not checked yet, since both hold the lock.

Rejected: a threading.Event per task, which costs 3 us on every task, and few tasks are ever waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from .stream import Task


class Executed:
    """The type of EXECUTED."""

    def __repr__(self) -> str:
        return "EXECUTED"


EXECUTED: Final = Executed()


class Turnstile:
    """Lets streams wait for each other's launches. `waiting` is the number of waiting threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self.waiting = 0

    def wait(self, source: Task, given_up: Callable[[], bool]) -> bool:
        """Block until `source` was launched (True), or until `given_up()` after a `notify` (False)."""
        with self._changed:
            self.waiting += 1
            while source.event is None and not given_up():
                self._changed.wait()
            self.waiting -= 1
        return source.event is not None

    def notify(self) -> None:
        """Make every waiter check again."""
        with self._changed:
            self._changed.notify_all()


TURNSTILE: Final = Turnstile()
