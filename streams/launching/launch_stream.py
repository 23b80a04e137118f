"""Streams of a device that launches: one thread launches for all of them, and one thread per stream waits for
completions.

Theory of operation
    `submit` puts (stream, batch) into the launcher's inbox. The launcher (`launcher`), one thread per device,
    launches bursts of tasks: it makes the CUDA stream wait for the tasks' sources, runs the kernels, and records one
    event behind the burst, its fence. The burst goes to the stream's own thread, which waits for the fence and reports.
    A task that would make the launcher wait goes to that thread unlaunched, and is launched there once all tasks before
    it are done: a kernel whose result's shape depends on data, a copy that the host has to stage, a copy of pageable
    memory. Meanwhile no later task of that stream is launched, and all other streams go on.

Guarantees
    - Tasks of one stream are launched, and reported, in the order of submission, each exactly once.
    - A burst has several tasks only while all are `quick`, so no thread waits for a slow successor of its task. A task
      that waits for another stream begins a burst.
    - The memory that a launch needs (pinned staging, host arrays) is kept until its fence has passed.
    - An exception on one of these threads outside of a task is logged and counts as the loss of the device: present and
      later tasks of the device fail.
    - An asynchronous error is sticky in CUDA: the device is lost. Every task launched and not yet reported fails, and
      so does every later one. Errors surface late, so a task reported before may have been hit as well.
    - Times: a burst begins when its stream is free and its sources have ended, at the earliest, and ends when the host
      notices its end. Its tasks share that time evenly, since only the device knows their own times.
    - All threads are started when the device opens, since a process that is ending starts none (Python 3.12 and later).
      So tasks submitted at the end, such as copies for pending prints, run as always.

Who owns what
    The launcher owns the backlogs; a stream's thread owns its reports. One of the two launches each task. `deferred` is
    set by the launcher and cleared by the stream's thread. `device.lost` is set once, by the first thread that sees
    the error.

Rejected
    - An event, a wait and a report for each task: they cost more than most launches.
    - Waiting in launch order in one thread: a copy's completion would wait behind a long kernel's.
    - cudaLaunchHostFunc: the callback needs the GIL on the driver's thread, and may call nothing of CUDA.
    - Polling `event.done`: spins, or adds the polling period to each completion.
    - One launching thread per stream: chains that cross streams would switch threads at each crossing.
    - Threads that start with their first task, with tasks run by the submitter if that fails: a second way to launch
      and to wait, to save some microseconds on a device that takes a second to open.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ...interpreter.errors import KernelError
from ...interpreter.ops.positions import Check
from ..stream import LOG, Sink, Stream, StreamKind, Task
from ..threads.events import EXECUTED
from .stream_fences import StreamFence

if TYPE_CHECKING:
    from .launcher import Launcher


class StreamOwner(Protocol):
    """The device, as its streams see it."""

    name: str
    lost: BaseException | None

    def current(self) -> AbstractContextManager[object]:
        """Make the device current on this thread, with its own allocator, within a `with` block."""

    def enter(self) -> Any:
        """Make the device, its allocator and its first compute stream current on this thread; returns the argument of
        `leave`."""

    def leave(self, before: Any) -> None:
        """Restore the thread's state from before `enter`."""

    def tell_late(self, task: Task, checks: Sequence[Check]) -> None:
        """Fail the task if one of the checks of its launch fails, once the device has reached the launch."""

    def has_passed(self, event: Any) -> bool:
        """Return whether the device has reached an event. One call of the driver; raises the device's error."""

    def lose(self, error: BaseException) -> None:
        """Mark the device as lost after an asynchronous error."""

    def give_back_blocks(self) -> None:
        """Wait for the streams, and give unused blocks back to the driver."""

    def close(self, timeout: float) -> bool:
        """End the threads; False if they did not end in time."""


class Burst:
    """Tasks with one fence behind them; no fence if the launch failed. `keep` lives until the fence has passed."""

    __slots__ = ("deferred", "fence", "finish", "keep", "tasks")

    def __init__(self, *, deferred: bool = False) -> None:
        self.tasks: list[Task] = []
        self.deferred = deferred  # not launched yet: the stream's thread launches it
        self.fence: StreamFence | None = None
        self.keep: list[Any] = []
        self.finish: list[Callable[[], None]] = []


class LaunchStream(Stream):
    """A non-blocking CUDA stream; `raw` is CuPy's object."""

    def __init__(self, name: str, kind: StreamKind, index: int, sink: Sink, *, launcher: Launcher, raw: Any) -> None:
        super().__init__(name, kind, index)
        self.events = True
        self.late_errors = True
        self.raw = raw
        self.backlog: deque[Task] = deque()
        self.deferred = False  # its thread has a task to launch, and nothing else may be launched
        self.launched: SimpleQueue[Burst | None] = SimpleQueue()
        self.flying: deque[Task] = deque()  # launching or launched, and not done, in order
        self.last: StreamFence | None = None
        self._sink = sink
        self._launcher = launcher
        self._thread = threading.Thread(target=self._run, name=f"tensord {self.name}", daemon=True)
        self._done: list[Task] = []  # not yet reported
        self.handed = 0  # tasks submitted; counted by the driving thread
        self.taken = 0  # submitted tasks that were launched; counted by the launching thread
        self._freed = 0  # the time when the previous burst was done

    def start(self) -> None:
        """Start the thread that waits for completions."""
        self._thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        self.handed += len(tasks)
        self._launcher.submit(self, tasks)

    def fence(self, task: Task) -> None:
        burst = Burst()
        self._launcher.launch_fence(self, burst, task)
        self.unwatched.append(burst)

    def is_free(self) -> bool:
        return self.handed == self.taken

    def wait_for(self, task: Task) -> None:
        owner = self._launcher.owner
        if isinstance(task.event, StreamFence) and owner.lost is None:
            try:
                self.raw.wait_event(task.event.event)
            except Exception as error:
                owner.lose(error)

    def poll(self) -> Sequence[Task]:
        done: list[Task] = []
        while self.unwatched and self._is_over(self.unwatched[0]):
            burst = self.unwatched.popleft()
            self._settle(burst)
            done += self._stamp(burst)
        return done

    def _is_over(self, burst: Burst) -> bool:
        fence, owner = burst.fence, self._launcher.owner
        if fence is None or owner.lost is not None:
            return True
        try:
            return fence.passed()
        except BaseException as error:
            owner.lose(error)
            return True

    def watch(self) -> None:
        while self.unwatched:
            self.launched.put(self.unwatched.popleft())

    def running(self) -> tuple[Task, int] | None:
        """The first task that is not done, and its start; it may still be launching, since a first launch compiles."""
        try:
            head = self.flying[0]
        except IndexError:
            return None
        return head, head.started

    def close(self, timeout: float) -> bool:
        """End the stream. Streams of one device end together, so this also ends the launcher."""
        deadline = monotonic() + timeout
        ended = self._launcher.close(deadline)
        return self.join(deadline) and ended

    def join(self, deadline: float) -> bool:
        """Wait for the thread, which ends after the launcher; False if it did not end in time."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - monotonic()))
        return not self._thread.is_alive()

    # -- the stream's thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        run_to_the_end(self._launcher.owner, self.name, self._follow_all)

    def _follow_all(self) -> None:
        while (burst := self.launched.get()) is not None:
            self.follow(burst)
            del burst
            if self.launched.empty():
                self.report()
        self.report()

    def report(self) -> None:
        """Report the done tasks."""
        done, self._done = self._done, []
        if done:
            self._sink(done)

    def follow(self, burst: Burst) -> None:
        """Launch the burst if it was deferred, and wait until it is done. Before a wait, done tasks are reported."""
        if burst.deferred:
            self.report()
            self._launcher.launch_deferred(self, burst)
        self._await(burst)
        self._done += self._stamp(burst)

    def _await(self, burst: Burst) -> None:
        if self._done and not self._is_over(burst):
            self.report()
        self._settle(burst)

    def _settle(self, burst: Burst) -> None:
        fence, owner = burst.fence, self._launcher.owner
        if fence is not None and owner.lost is None:
            try:
                fence.synchronize()
            except BaseException as error:
                owner.lose(error)

    def _stamp(self, burst: Burst) -> list[Task]:
        """Set the times of a done burst's tasks, and fail them if necessary. Returns the tasks."""
        owner, fence, tasks = self._launcher.owner, burst.fence, burst.tasks
        end = self._launcher.clock() if fence is None or not fence.time else fence.time
        time = max(self._freed, *(began_after(source) for source in tasks[0].event_sources), 0)
        left = len(tasks)
        for task in tasks:
            if owner.lost is not None:
                task.fail(lost_error(owner, task))
            task.started = max(time, task.started)
            task.finished = time = task.started + max(0, end - task.started) // left
            left -= 1
            self.flying.remove(task)  # the first task, or an early one: fences come from another thread
        self._freed = max(self._freed, time)
        return tasks


def began_after(source: Task) -> int:
    """The time when the source was done, as far as that is known."""
    event = source.event
    return 0 if event is EXECUTED or event is None else int(event.time)


def run_to_the_end(owner: StreamOwner, who: str, work: Callable[[], None]) -> None:
    """Do the work of a thread until it is over. An exception loses the device; the work then fails all remaining tasks.

    No function of CUDA is called on a lost device.
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


def lost_error(owner: StreamOwner, task: Task) -> KernelError:
    """The error of a task that the loss of its device may have hit, or that came after the loss."""
    message = f"{owner.lost} (with {task.label}, or before)"
    return KernelError(message, op=task.label, instruction=task.id)
