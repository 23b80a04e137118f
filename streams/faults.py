"""Fault injection on one device: makes chosen tasks or allocations fail, slow down or hang.

A fault is armed by `inject` and counts the tasks (or allocations) that match it: the first `nth - 1` pass, the next
`count` are hit, then the fault is spent. While a fault is armed, no task of the device runs inline, so every task
passes `Faults.execute` on its stream's thread. A task that was cancelled before it started matches no fault.

Faults are armed and spent under one lock, which also guards the derived flags (`inline`, `intercepted`), because tests
inject from any thread. No fault is carried out under the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, Protocol, Self

from ..interpreter.errors import KernelError, MetadataError, TensordError
from .pool import PooledDevice
from .stream import StreamKind, Task
from .threads.worker import WorkerStream

FOREVER: Final = 1 << 60  # as a `count`: the fault is never spent


class FaultKind(StrEnum):
    """The kind of a fault."""

    FAIL = "fail"  # the task fails instead of executing
    ALLOCATION = "allocation"  # `allocate` or `adopt` reports that the memory does not fit
    SLOW = "slow"  # the task takes `seconds` longer
    HANG = "hang"  # the task hangs until `release_hangs`, or until closing its stream times out
    LATE = "late"  # the task executes, and fails after `after` more tasks executed or the queue drained
    LOST = "lost"  # the task, and every later one on the device, fails, and so does every allocation


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. It hits tasks with the given `label` (None: any) on the given `stream` (a kind, a name, or None:
    any)."""

    kind: FaultKind
    label: str | None = None
    stream: str | None = None
    nth: int = 1
    count: int = 1
    seconds: float = 0.0
    after: int = 0

    def __post_init__(self) -> None:
        if not (self.nth >= 1 and self.count >= 1 and self.seconds >= 0 and self.after >= 0):
            raise MetadataError(f"{self}: nth and count start at 1, seconds and after at 0")

    @classmethod
    def of(cls, table: Mapping[str, object] | Self) -> Self:
        """A fault from a table, such as a configuration file's; MetadataError if the table does not describe one."""
        if isinstance(table, cls):
            return table
        if not isinstance(table, Mapping):
            raise MetadataError(f"a fault must be a table, not {table!r}")
        names = [field.name for field in fields(cls)]
        if unknown := sorted(set(table) - set(names)):
            raise MetadataError(f"unknown fault option {unknown[0]!r} (known: {', '.join(names)})")
        kind = table.get("kind")
        if kind not in list(FaultKind):
            raise MetadataError(f"unknown fault {kind!r} (known: {', '.join(FaultKind)})")
        try:
            return cls(**{**table, "kind": FaultKind(kind)})  # type: ignore[arg-type]
        except TypeError as error:
            raise MetadataError(f"fault {kind}: {error}") from None

    def matches(self, stream: Intercepted, label: str) -> bool:
        """Return whether the fault may hit a task of that label. Allocation faults hit no task."""
        if self.kind is FaultKind.ALLOCATION or self.label not in (None, label):
            return False
        return self.stream in (None, stream.kind, stream.name)


class Intercepted(Protocol):
    """A stream as the faults of its device see it."""

    @property
    def kind(self) -> StreamKind: ...

    @property
    def name(self) -> str: ...

    def refresh(self, *, interfered: bool) -> None:
        """Note whether faults or holds interfere with the stream's tasks. Called under the lock of the faults."""

    def hold(self) -> None:
        """Stop before the next task."""

    def resume(self) -> None:
        """Continue after `hold`."""


class _Armed:
    """An armed fault, and the number of tasks or allocations that it has counted."""

    __slots__ = ("fault", "seen")

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0

    def hits(self) -> bool:
        """Count one more, and return whether it is hit."""
        self.seen += 1
        return self.seen >= self.fault.nth

    @property
    def spent(self) -> bool:
        return self.seen >= self.fault.nth + self.fault.count - 1


class Faults:
    """The faults armed on one device, and the interception of its streams' tasks."""

    def __init__(self, device: PooledDevice, *, late_errors: bool) -> None:
        self.hanging = threading.Event()  # set while a task hangs
        self._device = device
        self._late_errors = late_errors
        self.armed = False  # is any fault not spent?
        self._streams: tuple[Intercepted, ...] = ()
        self._armed: list[_Armed] = []
        self._lock = threading.Lock()
        self._hang = threading.Event()

    def attach(self, streams: tuple[Intercepted, ...]) -> None:
        """Set the device's streams; called once."""
        with self._change():
            self._streams = streams

    def inject(self, fault: Fault) -> None:
        """Arm a fault. MetadataError for a late one on a device without late errors."""
        if fault.kind is FaultKind.LATE and not self._late_errors:
            raise MetadataError(f"{self._device.name} has no late errors; open it with late_errors = true")
        with self._change():
            self._armed.append(_Armed(fault))

    def hold(self, which: str) -> None:
        """Stop the streams of that kind or name before their next task."""
        with self._change():
            for stream in self._select(which):
                stream.hold()

    def resume(self, which: str) -> None:
        """Let the streams of that kind or name continue."""
        with self._change():
            for stream in self._select(which):
                stream.resume()

    def release_hangs(self) -> None:
        """Let every hanging task execute. Later hangs are not affected."""
        with self._lock:
            hang, self._hang = self._hang, threading.Event()
            self.hanging.clear()
        hang.set()

    def refuses_allocation(self) -> bool:
        """Return whether this allocation must fail. Called only while the device is `refusing`."""
        if self._device.lost is not None:
            return True
        with self._change():
            return self._take(lambda fault: fault.kind is FaultKind.ALLOCATION) is not None

    def hits(self, stream: Intercepted, label: str) -> Fault | None:
        """The fault that hits a task of that label, if any. The task counts for every fault that it matches."""
        with self._change():
            return self._take(lambda fault: fault.matches(stream, label))

    def execute(self, stream: WorkerStream, task: Task) -> int | None:
        """Execute the task, or the fault that hits it. Called on the stream's thread.

        Returns the element operations of the kernel; 0 for a fault, None if the kernel did not run.
        """
        if task.cancelled:
            return task.execute()
        fault = self.hits(stream, task.label)
        if self._device.lost is not None:
            task.fail(self._error("lost", task))
            return 0
        return task.execute() if fault is None else self._act(fault, stream, task)

    def _act(self, fault: Fault, stream: WorkerStream, task: Task) -> int | None:
        match fault.kind:
            case FaultKind.FAIL:
                task.fail(self._error("injected", task))
            case FaultKind.LOST:
                error = self._error("lost", task)
                self._lose(error)
                task.fail(error)
            case FaultKind.SLOW:
                stream.pause(fault.seconds)
                return task.execute()
            case FaultKind.HANG:
                self._hang_until_released(stream)
                return task.execute()
            case FaultKind.LATE:
                work = task.execute()
                stream.hold_back(task, self._error("late", task), fault.after)
                return work
            case FaultKind.ALLOCATION:  # hits allocations only
                return task.execute()
        return 0

    def _hang_until_released(self, stream: WorkerStream) -> None:
        hang = self._hang  # read before `abandoned`: `end_close` sets `abandoned` first and then releases the hangs
        if stream.abandoned:
            return
        self.hanging.set()
        hang.wait()

    def _lose(self, error: TensordError) -> None:
        with self._change():
            self._device.lost = error

    def _error(self, what: str, task: Task) -> KernelError:
        message = {
            "lost": f"device {self._device.name} is lost, with or before {task.label}",
            "late": f"{task.label} failed on {self._device.name}; the error surfaced late (injected)",
            "injected": f"{task.label} failed on {self._device.name} (injected)",
        }[what]
        return KernelError(message, op=task.label, instruction=task.id)

    # -- under the lock ----------------------------------------------------------------------------------------

    def _take(self, concerned: Callable[[Fault], bool]) -> Fault | None:
        """The first armed fault that hits, after all matching ones have counted. Spent faults are dropped."""
        hit = None
        for armed in [a for a in self._armed if concerned(a.fault)]:
            if armed.hits() and hit is None:
                hit = armed.fault
            if armed.spent:
                self._armed.remove(armed)
        return hit

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Hold the lock, then update the flags of the device and its streams."""
        with self._lock:
            yield
            lost, self.armed = self._device.lost is not None, bool(self._armed)
            self._device.refusing = lost or any(a.fault.kind is FaultKind.ALLOCATION for a in self._armed)
            for stream in self._streams:
                stream.refresh(interfered=lost or self.armed)

    def _select(self, which: str) -> list[Intercepted]:
        chosen = [s for s in self._streams if which in (s.kind, s.name, s.name.rpartition("/")[2])]
        if not chosen:
            known = ", ".join(s.name for s in self._streams)
            raise MetadataError(f"{self._device.name} has no stream {which!r} (known: {known})")
        return chosen
