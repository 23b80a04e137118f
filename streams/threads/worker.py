"""The streams of cpu and sim devices: an in-order queue with one thread behind it.

Theory of operation
    The driving thread puts whole batches into a SimpleQueue; the stream's thread, started by the first batch, takes
    them out, runs their tasks one after the other and hands finished tasks to the sink in lists. A SimpleQueue is
    a list and a lock used as a binary semaphore, in C: putting costs 0.1 us and wakes the thread only if it sleeps;
    the thread blocks in it without spinning.

Guarantees
    - Tasks execute in the order of submission and are reported in that order, each exactly once, also when they
      fail, and also when the stream is closed.
    - Finished tasks are reported when the queue drains, after a task that took long, 100 us after the last report, and
      before anything that may take long: a task that is not `quick`, a held stream, a wait for an event, a task that is
      intercepted. So a chain of small tasks is reported in few lists, and no thread waits for a successor of the task
      that it needs.
    - `close` lets the queue run empty, cuts every artificial delay short, and returns in time even if a task hangs.
      After the timeout the remaining tasks fail instead of executing, since their targets may have other users by then.
    - While its queue is empty the thread holds no reference to a task.
    - An exception outside of a task (a sink, a late error that cannot be described) is logged and fails the rest of the
      batch; the thread goes on.

Who owns what
    Only the stream's thread touches `_done` and `_late`, writes `_current` and calls the sink; any thread may read
    `_current`. `held`, `interfered`, `intercepted` and `inline` are written under the lock of the device's interceptor,
    and read without that lock: a change takes effect at the next task.

Rejected
    - A condition variable around a deque: 1.1 us per batch where SimpleQueue takes 0.1, for the same semantics.
    - Reporting each task: the driver wakes for every task of a chain, 12 us each and the GIL with it.
    - Reporting by time alone: a finished task would wait for a slow, or hung, successor.
    - One pool of threads for all streams: an in-order stream would need a second queue, and a hung kernel would
      no longer cost one known stream.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic, perf_counter, perf_counter_ns
from typing import NamedTuple, Protocol

import numpy as np

from ...interpreter.errors import KernelError
from ..stream import LOG, Sink, Stream, StreamKind, Task
from .events import EXECUTED, LAUNCH_CONDITION

# A task that took longer than SLOW_NS is reported at once. A finished one waits at most STALE_NS after the last report.
SLOW_NS = 50_000
STALE_NS = 100_000


class Interceptor(Protocol):
    """The interface for interfering with a stream's tasks, implemented by `faults.Faults`."""

    def execute(self, stream: WorkerStream, task: Task) -> int | None:
        """Execute the task, or the fault in its place. Returns what `Task.execute` does; 0 for a fault."""

    def release_hangs(self) -> None:
        """Let every hanging task continue."""


class TaskPace(NamedTuple):
    """The least seconds that tasks take: per task, per byte that it moves, and per operation of its kernel."""

    task: float
    byte: float
    operation: float

    def of(self, nbytes: int, work: int) -> float:
        """The least seconds of a task that moves `nbytes` bytes, or whose kernel has `work` operations."""
        return max(self.task + nbytes * self.byte, work * self.operation)


class WorkerStream(Stream):
    """An in-order queue with a thread. `may_inline`: the value of `inline` while nothing interferes.

    `pace`: the least time of its tasks; a task whose kernel does not run takes none. `held`: the thread stops before
    its next task. `interfered`: the interceptor executes the tasks. `abandoned`: closing has given up on the running
    task, and no other task is executed. `intercepted`: paced, interfered or abandoned, so all tasks pass `intercept`.
    """

    def __init__(
        self,
        device: str,
        kind: StreamKind,
        index: int,
        sink: Sink,
        interceptor: Interceptor,
        *,
        may_inline: bool = True,
        pace: TaskPace | None = None,
    ) -> None:
        super().__init__(device, kind, index)
        self.may_inline = may_inline
        self.pace = pace
        self.interfered = False
        self.inline = may_inline
        self.held = False
        self.abandoned = False
        self._sink = sink
        self._interceptor = interceptor
        self._inbox: SimpleQueue[Sequence[Task] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: Task | None = None
        self._done: list[Task] = []
        self._reported = 0  # the time of the last report, or of a later wake-up
        self._late: tuple[Task, BaseException] | None = None  # a task whose error surfaces with the next report
        self._late_until = 0  # no report with fewer tasks than this, unless the queue drains
        self._resumed = threading.Event()
        self._closing = threading.Event()

    # -- the driving thread ------------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[Task]) -> None:
        """Append tasks in order, and take over the sequence. RuntimeError if the stream is closed."""
        if self._closing.is_set():
            raise RuntimeError(f"{self.name} is closed")
        self._inbox.put(tasks)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        """Start the thread with the first tasks. In a process that is ending, which cannot start threads, run them
        here."""
        thread = threading.Thread(target=self._loop, name=f"tensord {self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._drain()
        else:
            self._thread = thread

    def _drain(self) -> None:
        with np.errstate(all="ignore"):
            while not self._inbox.empty():
                batch = self._inbox.get()
                if batch is not None:
                    self._take(batch)

    def running(self) -> tuple[Task, int] | None:
        """The running task and its start, or None. A task that waits for an event, or is held, does not count."""
        task = self._current
        return None if task is None else (task, task.started)

    def refresh(self, *, interfered: bool) -> None:
        """Derive `intercepted` and `inline` from the stream's state and `interfered`. Called under the interceptor's
        lock."""
        self.interfered = interfered
        self.intercepted = interfered or self.pace is not None or self.abandoned
        self.inline = self.may_inline and not (self.held or self.intercepted)

    def hold(self) -> None:
        """Stop before the next task."""
        self._resumed.clear()
        self.held = True

    def resume(self) -> None:
        """Continue after `hold`."""
        self.held = False
        self._resumed.set()

    def close(self, timeout: float) -> bool:
        """Finish the queued tasks, without artificial delays, then end the thread; False if it did not end in time."""
        self.begin_close()
        return self.end_close(monotonic() + timeout)

    def begin_close(self) -> None:
        """Ask the thread to end once the queue is empty, so that several streams can close concurrently."""
        if not self._closing.is_set():
            self._closing.set()
            self._inbox.put(None)
        self.resume()

    def end_close(self, deadline: float) -> bool:
        """Wait for the thread until `deadline` (`time.monotonic`); then give up on its tasks."""
        if self._thread is None or self._thread is threading.current_thread():
            return self._thread is None
        self._thread.join(max(0.0, deadline - monotonic()))
        if not self._thread.is_alive():
            return True
        self.abandoned = self.intercepted = True
        LAUNCH_CONDITION.notify()
        self._interceptor.release_hangs()
        return False

    # -- the stream's thread -----------------------------------------------------------------------------------

    def _loop(self) -> None:
        np.seterr(all="ignore")  # per thread; the array API wants infinities and NaNs, not warnings
        while (batch := self._inbox.get()) is not None:
            self._take(batch)
            del batch
        self._report(drained=True)

    def _take(self, batch: Sequence[Task]) -> None:
        if not self._done:
            self._reported = perf_counter_ns()
        try:
            self._run(batch)
            if self._inbox.empty():
                self._report(drained=True)
        except BaseException as error:
            self._rescue(batch, error)

    def _rescue(self, batch: Sequence[Task], error: BaseException) -> None:
        """The last resort: an exception outside of a task fails the rest of the batch, and the thread goes on."""
        LOG.error("%s goes on after an error outside of its tasks", self.name, exc_info=error)
        for task in batch:
            if not task.finished:
                with suppress(BaseException):
                    task.fail(KernelError(f"{self.name} failed at {task.label}: {type(error).__name__}"))
                task.finished = perf_counter_ns()
                self._done.append(task)
            if self.events and task.event is None:
                task.event = EXECUTED
        self._current = None
        LAUNCH_CONDITION.notify()
        with suppress(BaseException):
            self._report(drained=True)

    def _run(self, batch: Sequence[Task]) -> None:
        """The hot loop: 0.3 us per quick task besides the task itself."""
        clock = perf_counter_ns
        started = 0
        for task in batch:
            if self._done and not getattr(task, "quick", False):
                self._report()
            try:
                if self.held or task.event_sources:
                    self._wait_turn(task)
                task.started = started = clock()
                self._current = task
                if self.intercepted:
                    self._report()
                    self._execute(task)
                else:
                    task.execute()
            except BaseException as error:  # a broken task must not affect the stream's other tasks
                task.fail(error)
            task.finished = now = clock()
            self._done.append(task)
            self._current = None
            if self.events:
                task.event = EXECUTED
                if LAUNCH_CONDITION.waiting:
                    LAUNCH_CONDITION.notify()
            if now - started > SLOW_NS or now - self._reported > STALE_NS:
                self._report()

    def _report(self, *, drained: bool = False) -> None:
        if not self._done:
            return
        if self._late is not None:
            if len(self._done) < self._late_until and not drained:
                return
            task, error = self._late
            self._late = None
            task.fail(error)
        done, self._done = self._done, []
        self._reported = perf_counter_ns()
        self._sink(done)

    def _wait_turn(self, task: Task) -> None:
        """Wait until the stream is not held, and every source of the task has executed."""
        while self.held and not self._closing.is_set():
            self._report()
            self._resumed.wait()
        for source in task.event_sources:
            if source.event is None:
                self._report()
                if not LAUNCH_CONDITION.wait(source, lambda: self.abandoned):
                    raise KernelError(f"{self.name} was closed before {source.label} ran, which {task.label} follows")
            if source.event is not EXECUTED:
                source.event.synchronize()  # a source on a CUDA device may be launched, but not executed

    def _execute(self, task: Task) -> None:
        """Execute a task while something interferes. For a composite task, delays and faults apply to its parts."""
        if task.composite:
            task.execute()
        else:
            self.intercept(task)

    def intercept(self, task: Task) -> None:
        """Execute a task, or a part of one, with all delays and faults."""
        if self.abandoned:
            task.fail(KernelError(f"{self.name} was closed before {task.label} ran"))
            return
        begun = perf_counter()
        work = self._interceptor.execute(self, task) if self.interfered else task.execute()
        if self.pace is not None and work is not None:
            self.pause(begun + self.pace.of(task.bytes_moved, work) - perf_counter())

    def pause(self, seconds: float) -> None:
        """Sleep on the stream's thread, at most until the stream is closed."""
        if seconds > 0:
            self._closing.wait(seconds)

    def hold_back(self, task: Task, error: BaseException, after: int) -> None:
        """Report nothing until `after` more tasks have executed or the queue drains; then `task` fails."""
        self._late = (task, error)
        self._late_until = len(self._done) + 1 + after
