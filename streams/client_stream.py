"""The stream of what waits for clients: the functions of theirs that the machine calls.

As a link stream, it has no thread, and its tasks begin when they are submitted and end in any order. A function that
does not return holds up no other one; the oldest is told of as what runs for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from .links.link_stream import LinkStream
from .stream import Sink, StreamKind, Task


class ClientStream(LinkStream):
    """A stream whose tasks wait for clients. They end on the driving thread alone."""

    def __init__(self, device: str, sink: Sink, clock: Callable[[], int] = perf_counter_ns) -> None:
        super().__init__(device, sink, clock, StreamKind.CLIENT)
        self._waiting: dict[int, Task] = {}  # by number, the oldest first

    def submit(self, tasks: Sequence[Any]) -> None:
        self._waiting.update((task.id, task) for task in tasks)
        super().submit(tasks)

    def running(self) -> tuple[Task, int] | None:
        """The task that has waited for longest, and since when. May be called on any thread."""
        task = next(iter(list(self._waiting.values())), None)
        return None if task is None or not task.started else (task, task.started)

    def _report(self, task: Task) -> None:
        self._waiting.pop(task.id, None)
        super()._report(task)
