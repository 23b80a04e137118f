"""The launcher: the thread that launches for all streams of one device. `launch_stream` explains how both work
together.

The launcher never waits for a task of its own device: a blocked head only stops its own backlog. When all heads are
blocked, the launcher sleeps in its inbox; a launch on any other device wakes it (`events`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from queue import SimpleQueue
from time import monotonic, perf_counter_ns
from typing import Any, Final, TypeAlias

from ...interpreter.errors import KernelError
from ...interpreter.ops.positions import LATE_CHECKS, Check
from ..stream import StreamKind, Task
from ..threads.events import EXECUTED, LAUNCH_CONDITION
from .launch_stream import Burst, LaunchStream, StreamOwner, run_to_the_end
from .stream_fences import Events, StreamFence

Batch: TypeAlias = tuple[LaunchStream | None, Any]  # a stream and tasks for it; or None and memory to be dropped

MAX_BURST_TASKS: Final = 32  # tasks of a burst


class Launching(threading.local):
    """The current launch of this thread: its stream, and the burst that keeps the objects which the launch needs."""

    stream: LaunchStream | None = None
    burst: Burst | None = None


class Launcher:
    """The thread that launches for all streams of one device. `new_event` makes an event that the host can sleep on."""

    def __init__(
        self, owner: StreamOwner, new_event: Callable[[], Any], clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        self.owner = owner
        self.clock = clock
        self.launching = Launching()
        self.events = Events(new_event, clock)
        self._streams: tuple[LaunchStream, ...] = ()
        self._inbox: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=f"tensord {owner.name} launcher", daemon=True)
        self._closing = False
        self._abandoned = False
        self._asked: deque[Callable[[], None]] = deque()  # work to do between launches
        self._short = False  # the scheduler found no memory, and did not wait for the device

    def serve(self, streams: tuple[LaunchStream, ...]) -> None:
        """Set the device's streams; called once."""
        self._streams = streams

    def start(self) -> None:
        """Start the thread and the threads of the streams; called once. RuntimeError if no thread can be started; the
        device is then closed."""
        try:
            self._thread.start()
            for stream in self._streams:
                stream.start()
        except RuntimeError:
            self.owner.close(1.0)
            raise

    def submit(self, stream: LaunchStream, tasks: Sequence[Task]) -> None:
        """Append tasks to a stream. RuntimeError if the device is closed."""
        if self._closing:
            raise RuntimeError(f"{stream.name} is closed")
        self._inbox.put((stream, tasks))

    def free_blocks(self) -> None:
        """Make the thread give unused blocks back to the driver soon, so that an allocation finds memory."""
        self._short = True
        self._inbox.put(None)

    def ask(self, work: Callable[[], None]) -> None:
        """Run `work` soon on this thread, between launches."""
        self._asked.append(work)
        self._inbox.put(None)

    def disposal(self, memory: Any) -> Callable[[], None]:
        """A C function after which this thread drops the last reference to the memory, since the driver may wait for
        that."""
        return partial(self._inbox.put, (None, memory))

    def exclusive(self) -> list[Any]:
        """CuPy's objects of the streams that only the calling thread may use: while it launches, or while the device is
        idle."""
        launching = self.launching
        if launching.stream is not None and launching.burst is not None and launching.burst.deferred:
            return [launching.stream.raw]
        return [stream.raw for stream in self._streams if not stream.deferred]

    def close(self, deadline: float) -> bool:
        """Launch the queued tasks, then end. False if `deadline` passes first: then the remaining tasks fail."""
        self._closing = True
        self._inbox.put(None)
        if self._thread.ident is None:
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
            self.make_room()
            self.do_asked()
            while any(self._launch_ready(stream) for stream in self._streams):
                pass

    def make_room(self) -> None:
        """Give blocks back to the driver if the scheduler lacks memory. Nothing is launched meanwhile."""
        if self._short:
            self._short = False
            self.owner.give_back_blocks()

    def do_asked(self) -> None:
        """Do the requested work, unless the device is lost or closing."""
        while self._asked:
            work = self._asked.popleft()
            if self.owner.lost is None and not self._closing:
                work()

    def _drained(self) -> bool:
        return not any(stream.backlog for stream in self._streams)

    def _next(self) -> Batch | None:
        """Sleep until a batch arrives. Returns None for a wake-up, for which a blocked launcher registers first."""
        if self._drained():
            return self._inbox.get()
        with LAUNCH_CONDITION.awaited(self._nudge):
            if any(self.is_free(stream) for stream in self._streams):
                return None  # launched between the check and the registration
            return self._inbox.get()

    def _nudge(self) -> None:
        self._inbox.put(None)

    def _accept(self, batch: Batch | None) -> None:
        if batch is not None:
            stream, tasks = batch
            if stream is not None:
                stream.backlog.extend(tasks)

    def is_free(self, stream: LaunchStream) -> bool:
        """Return whether the head of the stream's backlog may be launched."""
        if not stream.backlog or self._abandoned:
            return bool(stream.backlog)
        return not stream.deferred and all(source.event is not None for source in stream.backlog[0].event_sources)

    def _launch_ready(self, stream: LaunchStream) -> bool:
        """Launch from one backlog until its head is blocked; returns whether any task was launched."""
        launched = False
        while self.is_free(stream):
            launched = True
            self.launch_next(stream)
        return launched

    # -- launching: on the launcher's thread, or on the stream's own -------------------------------------------

    def launch_next(self, stream: LaunchStream) -> None:
        """Launch a burst from the stream's backlog, or leave its head to the stream's thread."""
        task = stream.backlog.popleft()
        if is_deferred(stream, task):
            burst = Burst(deferred=True)
            stream.deferred = True
            self._enter(stream, burst, task)
        else:
            burst = Burst()
            self._enter(stream, burst, task)
            self._launch(stream, burst)
            while extends(stream, burst):
                self._enter(stream, burst, stream.backlog.popleft())
                self._launch(stream, burst)
            self.end(stream, burst)
            stream.taken += len(burst.tasks)
        stream.launched.put(burst)

    def launch_deferred(self, stream: LaunchStream, burst: Burst) -> None:
        """Launch a task on its stream's thread: first wait for the sources, including the host's part of them."""
        for source in burst.tasks[0].event_sources:
            if source.event is not EXECUTED and not self._abandoned:
                with suppress(Exception):  # the stream of the source reports the error
                    source.event.synchronize()
        burst.tasks[0].started = self.clock()
        self._launch(stream, burst)
        self.end(stream, burst)
        stream.taken += 1
        stream.deferred = False
        self._inbox.put(None)

    def launch_fence(self, stream: LaunchStream, burst: Burst, task: Task) -> None:
        """Launch a task on the driving thread, and mark its position behind everything that this thread has launched
        there."""
        before = self.owner.enter()
        try:
            self._enter(stream, burst, task)
            self._launch(stream, burst)
            self.end(stream, burst)
        finally:
            self.launching.stream = None
            self.owner.leave(before)

    def _enter(self, stream: LaunchStream, burst: Burst, task: Task) -> None:
        task.started = self.clock()
        stream.flying.append(task)
        burst.tasks.append(task)

    def _launch(self, stream: LaunchStream, burst: Burst) -> None:
        """Launch the last task of a burst."""
        owner, task = self.owner, burst.tasks[-1]
        if self._abandoned:
            task.fail(KernelError(f"{stream.name} was closed before {task.label} ran", op=task.label))
        elif owner.lost is None:  # else the stream's thread fails the task
            try:
                self._make_current(stream, burst)
                for fence in fences_of([task]):
                    if fence.owner.lost is None:
                        stream.raw.wait_event(fence.event)
                self._execute(task)
            except BaseException as error:  # a kernel's own errors stay in `execute`: these are the device's
                owner.lose(error)

    def _execute(self, task: Task) -> None:
        """Run the task's kernel, which launches."""
        if not task.reports:
            task.execute()
            return
        checks: list[Check] = []
        LATE_CHECKS.checks = checks
        try:
            task.execute()
        finally:
            LATE_CHECKS.checks = None
        self.owner.tell_late(task, checks)

    def _make_current(self, stream: LaunchStream, burst: Burst) -> None:
        launching = self.launching
        launching.burst = burst
        if launching.stream is not stream:
            stream.raw.use()
            launching.stream = stream

    def end(self, stream: LaunchStream, burst: Burst) -> None:
        """Record the fence of a burst and let others follow it."""
        fence = None
        if self.owner.lost is None and not self._abandoned:
            try:
                fence = self._fence(stream, burst)
            except BaseException as error:
                self.owner.lose(error)
        burst.fence = fence
        self.launching.burst = None  # the burst's thread frees the kept objects
        for task in burst.tasks:
            task.event = EXECUTED if fence is None else fence
        if LAUNCH_CONDITION.waiting:
            LAUNCH_CONDITION.notify()

    def _fence(self, stream: LaunchStream, burst: Burst) -> StreamFence:
        event = self.events.take()
        event.record(stream.raw)
        sources = fences_of(burst.tasks)
        if burst.finish and sources:  # two copies to one destination: the later one must win
            burst.finish.insert(0, partial(settle, sources))
        before = () if stream.last is None else (stream.last,)
        stream.last = fence = StreamFence(self.owner, self.events, event, chain(before, sources), burst.finish)
        return fence


def is_deferred(stream: LaunchStream, task: Task) -> bool:
    """Return whether launching the task would make its thread wait.

    Kernels declare this themselves. The host stages every copy that is not small; and a copy from host memory must find
    the bytes that its sources wrote there.
    """
    kind = stream.kind
    if kind is StreamKind.COMPUTE or kind is StreamKind.P2P:
        return task.blocking
    if not task.quick:
        return True
    return kind is StreamKind.H2D and any(source.event is not EXECUTED for source in task.event_sources)


def extends(stream: LaunchStream, burst: Burst) -> bool:
    """Return whether the head of the backlog may be launched with the burst."""
    if not stream.backlog or not burst.tasks[-1].quick or len(burst.tasks) == MAX_BURST_TASKS:
        return False
    head = stream.backlog[0]
    return head.quick and not head.event_sources and not is_deferred(stream, head)


def fences_of(tasks: Iterable[Task]) -> list[StreamFence]:
    """The fences of the tasks' sources."""
    return [s.event for task in tasks for s in task.event_sources if s.event is not None and s.event is not EXECUTED]


def settle(fences: Iterable[StreamFence]) -> None:
    """Do the host's part of other fences. An error there belongs to their own streams."""
    for fence in fences:
        with suppress(Exception):
            fence.synchronize()
