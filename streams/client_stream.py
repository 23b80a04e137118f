"""The stream of host calls: instructions that wait until a client has called a function.

The stream has no thread, like a link stream: its tasks begin when they are submitted, and end in any order. A function
that does not return delays no other function. Reports of long tasks name the oldest one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from .links.link_stream import LinkStream
from .stream import Sink, StreamKind, Task


class ClientStream(LinkStream):
    """A stream whose tasks wait for clients. Tasks end on the driving thread only."""

    def __init__(self, device: str, sink: Sink, clock: Callable[[], int] = perf_counter_ns) -> None:
        super().__init__(device, sink, clock, StreamKind.CLIENT)
        self._waiting: dict[int, Task] = {}  # by number, oldest first

    def submit(self, tasks: Sequence[Any]) -> None:
        self._waiting.update((task.id, task) for task in tasks)
        super().submit(tasks)

    def running(self) -> tuple[Task, int] | None:
        """The task that has waited longest, and when it began. Any thread may call this."""
        task = next(iter(list(self._waiting.values())), None)
        return None if task is None or not task.started else (task, task.started)

    def _report(self, task: Task) -> None:
        self._waiting.pop(task.id, None)
        super()._report(task)
