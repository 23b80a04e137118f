"""Devices whose streams have no threads: a submitted task executes, and is reported, when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tensord.interpreter.opcodes import Opcode
from tensord.streams.device import Buffer
from tensord.streams.disk.store import StoreDevice, StoreOptions
from tensord.streams.faults import Faults
from tensord.streams.host.cpu import CpuDevice, CpuOptions
from tensord.streams.sim.sim import SimDevice, SimOptions
from tensord.streams.stream import Sink, Stream, StreamKind
from tensord.streams.threads.events import EXECUTED
from tensord.vm.routines.compiling.recipe import fill

from .steps import lines_of

Clock = Callable[[], int]


class Injected(Exception):  # noqa: N818 - what happened
    """The exception of a call named in `Steering.failing`."""


class Steering:
    """The state that the streams of one machine share. `failing`: (session, location) of the calls that fail."""

    def __init__(self, clock: Clock, failing: frozenset[tuple[int, int]], *, inline: bool, events: bool) -> None:
        self.clock = clock
        self.failing = failing
        self.inline = inline
        self.events = events


class ModelStream(Stream):
    """An in-order queue that executes one task, or reports some, on command."""

    def __init__(
        self, device: str, kind: StreamKind, index: int, sink: Sink, faults: Faults, steering: Steering, *, late: bool
    ) -> None:
        super().__init__(device, kind, index)
        self.sink = sink
        self.faults = faults
        self.steering = steering
        self.may_inline = self.inline = steering.inline
        self.late_errors = late
        self.waiting: deque[Any] = deque()
        self.executed: list[Any] = []
        self.late: dict[int, list[tuple[Any, BaseException]]] = {}  # by the task with which they surface

    def submit(self, tasks: Sequence[Any]) -> None:
        self.waiting.extend(tasks)

    def running(self) -> None:
        return None

    def close(self, timeout: float) -> bool:  # noqa: ARG002 - nothing to wait for
        return not self.waiting

    def can_execute(self) -> bool:
        """Whether there is a task, and its event sources have executed."""
        return bool(self.waiting) and all(source.event is not None for source in self.waiting[0].event_sources)

    def execute(self) -> None:
        """Execute the next task."""
        task = self.waiting.popleft()
        task.started = self.steering.clock()
        try:
            for source in task.event_sources:
                if source.event is not EXECUTED:
                    source.event.synchronize()  # a source on a device that launches
            self.act(task)
        except BaseException as error:
            task.fail(error)
        task.finished = self.steering.clock()
        if self.events:
            task.event = EXECUTED
        self.executed.append(task)

    def act(self, task: Any) -> None:
        fails = task.opcode is Opcode.CALL and (task.author.id, task.location) in self.steering.failing
        if not fails:
            self.meet_faults(task)
        elif self.late_errors:
            task.execute()
            if task.error is None:
                self.late[task.id] = [(task, Injected())]
        elif task.error is None and task.poisoned_operand() is None:
            task.fail(Injected())
        else:
            task.execute()

    def meet_faults(self, task: Any) -> None:
        if task.composite:
            task.execute()
        else:
            self.intercept(task)

    def report(self, count: int) -> None:
        """Report the first `count` executed tasks."""
        batch, self.executed = self.executed[:count], self.executed[count:]
        for task in batch:
            for part, error in self.late.pop(task.id, ()):
                part.fail(error)
        self.sink(batch)

    def intercept(self, task: Any) -> None:
        stream: Any = self  # not a worker, but it holds tasks back like one
        self.faults.execute(stream, task)

    # -- methods that `Faults` calls

    def pause(self, seconds: float) -> None:
        pass

    def hold_back(self, task: Any, error: BaseException, after: int) -> None:  # noqa: ARG002 - any number may follow
        self.late.setdefault(task.id, []).append((task, error))

    def refresh(self, *, interfered: bool) -> None:
        self.intercepted = interfered
        self.inline = self.may_inline and not interfered

    def begin_close(self) -> None:
        pass

    def end_close(self, deadline: float) -> bool:  # noqa: ARG002
        return not self.waiting


class Peak:
    """A device that remembers the most bytes that were ever allocated."""

    peak = 0
    allocated: int

    def allocate(self, nbytes: int) -> Buffer | None:
        buffer: Buffer | None = super().allocate(nbytes)  # type: ignore[misc]
        self.peak = max(self.peak, self.allocated)
        return buffer

    def set_aside(self, nbytes: int) -> bool:
        fits: bool = super().set_aside(nbytes)  # type: ignore[misc]
        self.peak = max(self.peak, self.allocated)
        return fits


class ModelCpu(Peak, CpuDevice):
    """A cpu device with model streams."""

    def __init__(self, name: str, sink: Sink, options: CpuOptions, steering: Steering) -> None:
        self.steering = steering
        super().__init__(name, sink, options)

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> Any:
        return ModelStream(self.name, kind, index, sink, self.faults, self.steering, late=self.options.late_errors)


class ModelSim(Peak, SimDevice):
    """A sim device with model streams."""

    def __init__(self, name: str, sink: Sink, options: SimOptions, steering: Steering) -> None:
        self.steering = steering
        super().__init__(name, sink, options)

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> Any:
        stream = ModelStream(self.name, kind, index, sink, self.faults, self.steering, late=self.options.late_errors)
        stream.events = self.steering.events
        return stream


class ModelStore(Peak, StoreDevice):
    """A store with model streams."""

    def __init__(self, name: str, sink: Sink, options: StoreOptions, steering: Steering) -> None:
        self.steering = steering
        super().__init__(name, sink, options)

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> Any:
        return ModelStream(self.name, kind, index, sink, self.faults, self.steering, late=False)


def failing_inside(compile_segment: Any, failing: frozenset[tuple[int, int]]) -> Any:
    """Compile segments in which the `failing` calls (session, line) fail. None of these is in a block."""

    def compile_failing(program: Any, piece: Any, plans: Any, blocks: Any, passes: Any) -> Any:
        session = plans[0].session
        doomed = {n for n in piece if (session, program.steps[n].location) in failing}
        sound = [block for block in blocks if doomed.isdisjoint(block.steps)]
        recipe = compile_segment(program, piece, plans, sound, passes)
        if recipe is None:
            return None
        fails = [call.step in doomed and call.kernel is not fill for call in recipe.calls]
        calls = [call._replace(kernel=inject) if f else call for call, f in zip(recipe.calls, fails, strict=True)]
        return recipe._replace(calls=tuple(calls))

    return compile_failing


def sparing(passes_of: Any, failing: frozenset[tuple[int, int]]) -> Any:
    """Apply passes, except to programs with failing calls: passes assume that such ops never fail."""
    lines = {line for _, line in failing}

    def of(program: Any, passes: Any) -> Any:
        return passes_of(program, passes if lines.isdisjoint(lines_of(program)) else frozenset())

    return of


def inject(*_arrays: Any) -> None:
    """The kernel of a failing call."""
    raise Injected
