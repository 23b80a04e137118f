"""The stream of instructions that wait for other nodes. Tasks begin when they are submitted, and end in any order.

Theory of operation
    A task calls a link, which calls back once the other node has done its part: on a thread of the link, or within the
    call. Then the task is reported. The stream has no thread and no queue, so no task waits for another one.

Guarantees
    Each task is reported once. `submit` returns as soon as the link has accepted the calls of the tasks.

Who owns what
    `submit` is called on the driving thread. A task is reported on the thread on which the link calls back.

Rejected
    Waiting threads, one for each transfer: thousands may wait for a peer. A stream for each link: transfers need no
    order, and an instruction's stream belongs to its device.

A launch on several devices runs on such a stream, too (JOINT). Once its devices have begun it, the launch may hang as
any kernel may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

from ..stream import Sink, Stream, StreamKind, Task


class TransferProgress(Protocol):
    """The progress of a task that waits for other nodes. `since`: nanoseconds since which a long wait counts as a hang;
    0 while none does."""

    since: int

    def waits_for(self) -> str:
        """The awaited event, as text for people."""


class LinkStream(Stream):
    """A stream whose tasks have a method `start(report)`, which calls `report` once, when the task has ended."""

    def __init__(
        self,
        device: str,
        sink: Sink,
        clock: Callable[[], int] = perf_counter_ns,
        kind: StreamKind = StreamKind.LINK,
    ) -> None:
        super().__init__(device, kind, 0)
        self.ordered = False
        self._sink = sink
        self._clock = clock
        self._limited: dict[int, Task] = {}  # by number: tasks with a limit of time
        self._joint: dict[int, Task] = {}  # by number: tasks of a joint stream
        self.progress: dict[int, TransferProgress] = {}  # by number: of tasks that report it

    def submit(self, tasks: Sequence[Any]) -> None:
        for task in tasks:
            task.started = self._clock()
            if task.limit:
                self._limited[task.id] = task
            if self.kind is StreamKind.JOINT:
                self._joint[task.id] = task
            task.start(partial(self._report, task))

    def running(self) -> tuple[Task, int] | None:
        """The launch that its devices have run for the longest time. A wait for another node does not count as a
        hang."""
        begun = [(task, since) for task in list(self._joint.values()) if (since := self._since(task))]
        return min(begun, key=lambda one: one[1], default=None)

    def _since(self, task: Task) -> int:
        telling = self.progress.get(task.id)
        return task.started if telling is None else telling.since

    def waits_for(self, task: Task) -> str:
        telling = self.progress.get(task.id)
        return "" if telling is None else telling.waits_for()

    def timed(self) -> Sequence[tuple[Task, int]]:
        return [(task, task.started) for task in list(self._limited.values())]

    def close(self, timeout: float) -> bool:  # noqa: ARG002 - nothing to wait for
        return not self.queued

    def _report(self, task: Task) -> None:
        task.finished = self._clock()
        for known in (self._limited, self._joint, self.progress):
            known.pop(task.id, None)
        self._sink((task,))
