"""Streams of a CUDA device: one thread launches for all of them, one thread per stream waits for completions.

Theory of operation
    `submit` puts (stream, batch) into the launcher's inbox. The launcher, one thread per device, appends the batch to
    the stream's backlog and launches from every backlog whose head is free: each event source has been launched, on
    any device. The launcher makes the CUDA stream wait for the sources' events, runs `task.execute()` with that stream
    current, records an event behind it and passes the task on to the stream's waiter, which sleeps in the event
    (blocking, GIL released), finishes the host's part (a staged copy) and reports.

Guarantees
    - Tasks of one stream are launched, and reported, in the order of submission, each exactly once.
    - The launcher never waits for a task of its own device: a blocked head only stops its own backlog. When no head is
      free, the launcher sleeps in its inbox; a launch on any other device wakes it (`events`).
    - An exception on one of these threads outside of a task is logged and counts as the loss of the device: what the
      device has, and what it is given later, fails.
    - The memory that a launch needs (pinned staging, host arrays) is kept until its event is done.
    - An asynchronous error is sticky in CUDA: the device is lost. Every task launched and not yet reported fails, and
      so does every later one. Errors surface late: a task reported before may have been hit as well.

Who owns what
    The launcher owns the backlogs and all calls of kernels; it appends to `flying`, and the stream's waiter removes
    from it. `device.lost` is set once, by the first thread that sees the error.

Rejected
    - Waiting in launch order in one thread: a copy's completion would stand behind a long kernel's.
    - cudaLaunchHostFunc: the callback needs the GIL on the driver's thread, and may call nothing of CUDA.
    - Polling `event.done`: spins, or adds the polling period to each completion.
    - Reusing events: a stream that has not waited yet would wait for the later recording.
    - One launching thread per stream: as many more threads that want the GIL for nothing but short launches.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from time import monotonic, perf_counter_ns
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..interpreter.errors import KernelError
from .events import EXECUTED, TURNSTILE
from .stream import LOG, Sink, Stream, StreamKind, Task


class Owner(Protocol):
    """The launcher's view of its device."""

    name: str
    lost: BaseException | None

    def current(self) -> AbstractContextManager[object]:
        """Make the device current on this thread, with its own allocator, within a `with` block."""

    def lose(self, error: BaseException) -> None:
        """Mark the device as lost after an asynchronous error."""


class Launched(NamedTuple):
    """A launched task; `event` is None if that failed. `keep` lives until the task is done; then `finish` runs."""

    task: Task
    event: Any
    keep: list[Any]
    finish: list[Callable[[], None]]


class CudaStream(Stream):
    """A non-blocking CUDA stream; `raw` is CuPy's object."""

    def __init__(self, name: str, kind: StreamKind, index: int, sink: Sink, *, launcher: Launcher, raw: Any) -> None:
        super().__init__(name, kind, index)
        self.events = True
        self.late_errors = True
        self.raw = raw
        self.backlog: deque[Task] = deque()
        self.launched: SimpleQueue[Launched | None] = SimpleQueue()
        self._sink = sink
        self._launcher = launcher
        self.flying: deque[Task] = deque()  # being launched, or launched and not yet done, in order
        self._waiter: threading.Thread | None = None
        self._done: list[Task] = []  # not yet reported

    def submit(self, tasks: Sequence[Task]) -> None:
        if self._waiter is None:
            self._waiter = threading.Thread(target=self._wait, name=f"tensord {self.name}", daemon=True)
            self._waiter.start()
        self._launcher.submit(self, tasks)

    def running(self) -> tuple[Task, int] | None:
        """The first task that is not done, and its start; it may still be launching, since a first launch compiles."""
        try:
            head = self.flying[0]
        except IndexError:
            return None
        return head, head.started

    def close(self, timeout: float) -> bool:
        """End the stream. Streams of one device end together, so this ends the launcher, too."""
        deadline = monotonic() + timeout
        ended = self._launcher.close(deadline)
        return self.join(deadline) and ended

    def join(self, deadline: float) -> bool:
        """Wait for the waiter, which ends after the launcher; False if the waiter did not end in time."""
        if self._waiter is not None:
            self._waiter.join(max(0.0, deadline - monotonic()))
        return self._waiter is None or not self._waiter.is_alive()

    # -- the waiter's thread -----------------------------------------------------------------------------------

    def _wait(self) -> None:
        run_to_the_end(self._launcher.owner, self.name, self._report_done)

    def _report_done(self) -> None:
        freed = 0  # the time when the task before was done
        while (item := self.launched.get()) is not None:
            if self._done and not _is_done(item.event):
                self._report()
            freed = self._complete(item, freed)
            self._done.append(item.task)
            del item
            if self.launched.empty():
                self._report()
        self._report()

    def _report(self) -> None:
        done, self._done = self._done, []
        if done:
            self._sink(done)

    def _complete(self, item: Launched, freed: int) -> int:
        """Wait until the task is done; returns the time."""
        task, owner = item.task, self._launcher.owner
        task.started = max(task.started, freed)
        try:
            if item.event is not None and owner.lost is None:
                item.event.synchronize()
                for finish in item.finish:
                    finish()
        except BaseException as error:
            owner.lose(error)
        if owner.lost is not None:
            task.fail(lost_error(owner, task))
        task.finished = perf_counter_ns()
        self.flying.popleft()
        return task.finished


Batch: TypeAlias = tuple[CudaStream, Sequence[Task]]


class Launcher:
    """The thread that launches for all streams of one device. `new_event` makes an event that the host can sleep on."""

    def __init__(self, owner: Owner, new_event: Callable[[], Any]) -> None:
        self.owner = owner
        self._new_event = new_event
        self.keep: list[Any] = []  # of the task being launched: objects that must live until it is done,
        self.finish: list[Callable[[], None]] = []  # and the host's work afterwards
        self.stream: CudaStream | None = None  # the one that is current on the thread
        self._streams: tuple[CudaStream, ...] = ()
        self._inbox: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._abandoned = False

    def serve(self, streams: tuple[CudaStream, ...]) -> None:
        """Set the device's streams; called once."""
        self._streams = streams

    def submit(self, stream: CudaStream, tasks: Sequence[Task]) -> None:
        """Append tasks to a stream. RuntimeError if the device is closed."""
        if self._closing:
            raise RuntimeError(f"{stream.name} is closed")
        self._inbox.put((stream, tasks))
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=f"tensord {self.owner.name} launcher", daemon=True)
            self._thread.start()

    def close(self, deadline: float) -> bool:
        """Launch the queued tasks, then end. False if `deadline` passes first: then the remaining tasks fail."""
        self._closing = True
        self._inbox.put(None)
        if self._thread is None:
            return True
        self._thread.join(max(0.0, deadline - monotonic()))
        self._abandoned = True
        self._inbox.put(None)
        return not self._thread.is_alive()

    # -- the launcher's thread ---------------------------------------------------------------------------------

    def _loop(self) -> None:
        run_to_the_end(self.owner, "the launcher", self._launch_all)
        for stream in self._streams:
            stream.launched.put(None)

    def _launch_all(self) -> None:
        while not (self._closing and self._inbox.empty() and self._drained()):
            self._accept(self._next())
            while not self._inbox.empty():
                self._accept(self._inbox.get())
            while any(self._launch_ready(stream) for stream in self._streams):
                pass

    def _drained(self) -> bool:
        return not any(stream.backlog for stream in self._streams)

    def _next(self) -> Batch | None:
        """Sleep until a batch arrives; None is a wake-up, for which a blocked launcher registers first."""
        if self._drained():
            return self._inbox.get()
        with TURNSTILE.awaited(self._nudge):
            if any(stream.backlog and self._is_free(stream.backlog[0]) for stream in self._streams):
                return None  # launched between the check and the registration
            return self._inbox.get()

    def _nudge(self) -> None:
        self._inbox.put(None)

    def _accept(self, batch: Batch | None) -> None:
        if batch is not None:
            stream, tasks = batch
            stream.backlog.extend(tasks)

    def _is_free(self, task: Task) -> bool:
        return self._abandoned or all(source.event is not None for source in task.event_sources)

    def _launch_ready(self, stream: CudaStream) -> bool:
        """Launch from one backlog until its head is blocked; returns whether any task was launched."""
        backlog = stream.backlog
        if not backlog or not self._is_free(backlog[0]):
            return False
        while backlog and self._is_free(backlog[0]):
            self._launch(stream, backlog.popleft())
        return True

    def _launch(self, stream: CudaStream, task: Task) -> None:
        task.started = perf_counter_ns()
        stream.flying.append(task)
        self.keep, self.finish = [], []
        event = self._execute(stream, task)
        stream.launched.put(Launched(task, event, self.keep, self.finish))
        task.event = EXECUTED if event is None else event
        if TURNSTILE.waiting:
            TURNSTILE.notify()

    def _execute(self, stream: CudaStream, task: Task) -> Any:
        """Execute the task and return the event behind it; None if it was not launched."""
        owner = self.owner
        if self._abandoned:
            task.fail(KernelError(f"{stream.name} was closed before {task.label} ran", op=task.label))
            return None
        if owner.lost is not None:
            return None  # the waiter fails the task
        try:
            if self.stream is not stream:
                stream.raw.use()
                self.stream = stream
            for source in task.event_sources:
                if source.event is not EXECUTED:
                    stream.raw.wait_event(source.event)
            task.execute()
            event = self._new_event()
            event.record(stream.raw)
        except BaseException as error:  # a kernel's own errors stay in `execute`: these are the device's
            owner.lose(error)
            return None
        return event


def run_to_the_end(owner: Owner, who: str, work: Callable[[], None]) -> None:
    """Do the work of a thread until it is over. An exception loses the device; then the work fails what is left.

    On a lost device nothing of CUDA is called any more.
    """
    context: AbstractContextManager[object] | None = None
    over = False
    while not over:
        try:
            with context or owner.current():
                work()
                over = True
        except BaseException as error:
            LOG.error("%s of %s lost its device by an error outside of its tasks", who, owner.name, exc_info=error)
            owner.lose(error)
            context = nullcontext()


def lost_error(owner: Owner, task: Task) -> KernelError:
    """The error of a task that may have been hit by, or came after, the loss of its device."""
    message = f"device {owner.name} is lost, with or before {task.label}: {owner.lost}"
    return KernelError(message, op=task.label, instruction=task.id)


def _is_done(event: Any) -> bool:
    try:
        return event is None or bool(event.done)
    except Exception:  # `synchronize` reports it
        return True
