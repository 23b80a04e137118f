"""The interface between the virtual machine and the streams that execute its instructions.

A stream is an in-order queue of one device. The virtual machine appends batches of tasks; the stream executes them
in that order on its own thread and reports each finished task, in that order, to its sink. The virtual machine
never waits on a stream; a stream never looks into the virtual machine.

Who owns what: `submit` is called by the thread that drives the virtual machine, one call at a time. `Task.execute`
runs on the stream's thread, or on the driving thread if the virtual machine runs the task inline, which it does
only while the stream is drained. The sink is called on the stream's thread and must not block.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from ..interpreter.compilation import mypyc_attr

LOG: Final = logging.getLogger("tensord.streams")  # for errors that belong to no instruction


class StreamKind(StrEnum):
    """The purpose of a stream."""

    COMPUTE = "compute"
    H2D = "h2d"
    D2H = "d2h"
    P2P = "p2p"
    READ = "read"  # from the store
    WRITE = "write"  # to the store
    SAVE = "save"  # to users' files, and to checkpoints
    LINK = "link"  # to and from other nodes
    CLIENT = "client"  # functions of clients
    JOINT = "joint"  # launches of a library on several devices


class Task(Protocol):
    """A unit of work, as a stream sees it. The virtual machine's Instruction is one."""

    id: int
    # The op's name, or the opcode if there is no op. Faults select tasks by it, and reports of hangs show it.
    label: str
    # Bytes that a transfer moves over the link; 0 for kernels.
    bytes_moved: int
    # Bounded and small: certain to finish within some tens of microseconds. Before any other task starts, a stream
    # reports its finished tasks, so that no thread waits for a slow successor of the task that it needs.
    quick: bool
    # Tasks on other streams with events that must have executed before this task does; submitted before it or after it.
    event_sources: Sequence[Task]
    # None until the task is launched; then the stream sets it to an object by which another stream can wait for the
    # task.
    event: Any
    # `time.perf_counter_ns`; the stream sets both.
    started: int
    finished: int

    @property
    def blocking(self) -> bool:
        """Return whether the kernel waits for the device, for example for a shape that depends on data."""

    @property
    def reports(self) -> bool:
        """Return whether a refusal of the kernel is known only after the kernel. `fail_late` then reports it."""

    @property
    def composite(self) -> bool:
        """Return whether the task has parts. While the stream is intercepted, the task passes each part to the stream's
        `intercept`."""

    @property
    def cancelled(self) -> bool:
        """Return whether the kernel certainly will not run. The task keeps its position, and no fault hits it."""

    def execute(self) -> int | None:
        """Run the kernel, unless an operand is poisoned. Never raises: the error stays with the task.

        Returns the element operations of the kernel, as far as known, 0 if there is no op; None if the kernel did not
        run.
        """

    def fail_late(self, error: BaseException) -> None:
        """Fail the task with its kernel's refusal, which was found after the kernel."""

    def fail(self, error: BaseException) -> None:
        """Fail the task for a reason outside its kernel (an injected fault, a late device error)."""


Sink: TypeAlias = Callable[[Sequence[Task]], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Stream(ABC):
    """An in-order queue of one device.

    `queued`: number of tasks submitted and not yet retired; only the driving thread touches it.
    `inline`: a small bounded task may run on the driving thread while the stream is drained.
    `events`: the stream can be ordered after a task of another such stream without the host.
    `late_errors`: a task's error may surface after its successors were executed.
    `unwatched`: fences that only the driving thread checks.
    `ordered`: tasks execute and end in the order of submission.
    `intercepted`: something interferes with the stream's tasks, such as a delay or a fault; set from any thread.
    """

    def __init__(self, device: str, kind: StreamKind, index: int) -> None:
        self.device = device
        self.kind = kind
        self.index = index
        self.name = f"{device}/{kind.value}{index}"
        self.queued = 0
        self.inline = False
        self.events = False
        self.late_errors = False
        self.intercepted = False
        self.ordered = True
        self.merge_buffer: Any = None  # memory for pieces of merges on this stream (`merging`)
        self.unwatched: deque[Any] = deque()  # fences that only the driving thread checks

    @abstractmethod
    def submit(self, tasks: Sequence[Task]) -> None:
        """Append tasks, in order; wake the stream's thread only if it sleeps."""

    def intercept(self, task: Task) -> None:
        """Execute a task, or a part of one, with all delays and faults. Called on the stream's thread."""
        task.execute()

    def fence(self, task: Task) -> None:
        """Execute a task on the driving thread, and mark its position after everything launched there. The task is
        reported when the device has reached that position. For the first compute stream of a device that `launches`."""
        raise NotImplementedError(self.name)

    def is_free(self) -> bool:
        """Return whether all submitted tasks were launched, so that the driving thread may launch after them."""
        return False

    def wait_for(self, task: Task) -> None:  # noqa: B027 - as `watch`
        """Make later launches on this stream wait for a launched task of another stream."""

    def poll(self) -> Sequence[Task]:
        """The unwatched fences that the device has passed. They are not reported again."""
        return ()

    def watch(self) -> None:  # noqa: B027 - most streams have no fences
        """Have the stream's own thread wait for the unwatched fences, and report them."""

    @abstractmethod
    def running(self) -> tuple[Task, int] | None:
        """The task now executing and since when (perf_counter_ns), or None. May be called from any thread."""

    def waits_for(self, task: Task) -> str:  # noqa: ARG002 - most wait for no other node
        """The wait of a running task for other nodes, as text for people; "" if no such wait is known."""
        return ""

    def timed(self) -> Sequence[tuple[Task, int]]:
        """The running tasks that may take too long, and their starts. May be called from any thread."""
        found = self.running()
        return () if found is None else (found,)

    @abstractmethod
    def close(self, timeout: float) -> bool:
        """Finish the queued tasks, then end the thread; False if it did not end within `timeout` seconds."""

    def __repr__(self) -> str:
        return f"<stream {self.name}>"
