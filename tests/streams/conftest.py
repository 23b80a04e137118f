"""A task and a sink for the streams' tests, and devices that are closed, with no thread left, after each test."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tensord.streams.catalogue import open_devices

WAIT = 30.0  # seconds until a test that hangs is given up; never slept


class FakeTask:
    """A unit of work that runs `body` and remembers its error."""

    def __init__(self, id_: int, body: Callable[[], object] | None = None, label: str = "add", **fields: Any) -> None:
        self.id = id_
        self.label = label
        self.bytes_moved = 0
        self.work = 0
        self.quick = True
        self.blocking = self.reports = False
        self.composite = False
        self.event_sources: Sequence[FakeTask] = ()
        self.event: Any = None
        self.started = 0
        self.finished = 0
        self.body = body
        self.executed = False
        self.cancelled = False
        self.error: BaseException | None = None
        for name, value in fields.items():
            setattr(self, name, value)

    def execute(self) -> int | None:
        if self.body is not None:
            self.body()
        self.executed = True
        return None if self.cancelled else self.work

    def fail(self, error: BaseException) -> None:
        self.error = error


class Reports:
    """A sink that keeps the lists it gets, and lets a test wait for tasks."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []
        self._changed = threading.Condition()

    def __call__(self, tasks: Sequence[Any]) -> None:
        with self._changed:
            self.lists.append([task.id for task in tasks])
            self._changed.notify_all()

    @property
    def ids(self) -> list[int]:
        return [id_ for ids in self.lists for id_ in ids]

    def wait(self, count: int) -> list[int]:
        """Block until that many tasks were reported; their ids in order."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ids) >= count, WAIT), f"only {self.ids} were reported"
            return self.ids


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def open_device(reports: Reports) -> Iterator[Callable[..., Any]]:
    """Open devices by name and options; checks that closing them leaves no thread."""
    before = set(threading.enumerate())
    opened: list[Any] = []

    def open_one(name: str = "sim:0", **options: object) -> Any:
        opened.extend(open_devices([{"name": name, **options}], reports).values())
        return opened[-1]

    yield open_one
    for device in opened:
        device.close(WAIT)
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT)
    assert set(threading.enumerate()) <= before
