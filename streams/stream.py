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

LOG: Final = logging.getLogger("tensord.streams")  # for what no instruction can be told


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
    JOINT = "joint"  # what several devices do together, by a library


class Task(Protocol):
    """A unit of work as a stream sees it. The virtual machine's Instruction is one."""

    id: int
    # The op's name, or the opcode of what is not an op: what a fault can name and what a hang is reported as.
    label: str
    # Bytes that a transfer moves over the link; 0 for kernels.
    bytes_moved: int
    # Bounded and small: certain to finish within some tens of microseconds. Before any other task starts, a stream
    # reports its finished tasks, so that no thread waits for a slow successor of the task that it needs.
    quick: bool
    # Tasks on other streams with events that must have executed before this one does; submitted before it or after.
    event_sources: Sequence[Task]
    # None until the task is launched; then set by the stream to whatever orders another stream after it.
    event: Any
    # Nanoseconds, `time.perf_counter_ns`; set by the stream.
    started: int
    finished: int

    @property
    def blocking(self) -> bool:
        """Does its kernel wait for the device, such as for a shape that depends on data?"""

    @property
    def work(self) -> int:
        """Element operations of its kernel, as far as known; 0 for what is no op."""

    @property
    def reports(self) -> bool:
        """Is what its kernel refuses known after the kernel? Then it is told by `fail_late`."""

    @property
    def composite(self) -> bool:
        """Has it parts, each of which it gives to the stream's `intercept` as a task while the stream is
        intercepted?"""

    @property
    def cancelled(self) -> bool:
        """Is it certain before execution that the kernel does not run? The task keeps its place, but takes no time."""

    def execute(self) -> None:
        """Run the kernel, unless an operand is poisoned. Never raises: the error stays with the task."""

    def fail_late(self, error: BaseException) -> None:
        """The kernel refuses its data, as was found after it."""

    def fail(self, error: BaseException) -> None:
        """The task failed for a reason outside its kernel (an injected fault, a late device error)."""


Sink: TypeAlias = Callable[[Sequence[Task]], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Stream(ABC):
    """An in-order queue of one device.

    `queued` counts tasks submitted and not yet retired; only the driving thread touches it.
    `inline`: a small bounded task may run on the driving thread while the stream is drained.
    `events`: the stream can be ordered after a task of another such stream without the host.
    `late_errors`: a task's error may surface after its successors were executed.
    `unwatched`: fences, so far as the driving thread looks for them itself, which no other thread does then.
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
        self.merge_buffer: Any = None  # memory for pieces of what is merged here (`merging`)
        self.unwatched: deque[Any] = deque()  # fences that the driving thread looks for itself

    @abstractmethod
    def submit(self, tasks: Sequence[Task]) -> None:
        """Append tasks, in order; wake the stream's thread only if it sleeps."""

    def intercept(self, task: Task) -> None:
        """Execute a task, or a part of one, with all that interferes. Called on the stream's thread."""
        task.execute()

    def fence(self, task: Task) -> None:
        """Execute a task on the driving thread, which launches what it has, and mark its place in the order. It is
        reported when the device has got there. For the first compute stream of a device that `launches`."""
        raise NotImplementedError(self.name)

    def is_free(self) -> bool:
        """Has all that was submitted been launched, so that the driving thread may launch behind it?"""
        return False

    def wait_for(self, task: Task) -> None:  # noqa: B027 - as `watch`
        """Have what is launched here from now on wait for a task of another stream that was launched."""

    def poll(self) -> Sequence[Task]:
        """Those of the fences that nobody watches which the device has passed by now; they are not reported again."""
        return ()

    def watch(self) -> None:  # noqa: B027 - most streams have no fences
        """Have the stream's own thread wait for the fences, and report them."""

    @abstractmethod
    def running(self) -> tuple[Task, int] | None:
        """The task now executing and since when (perf_counter_ns), or None. May be called from any thread."""

    def waits_for(self, task: Task) -> str:  # noqa: ARG002 - most wait for nobody
        """What a task that runs waits for on other nodes, for people; "" if for nothing that is known."""
        return ""

    def timed(self) -> Sequence[tuple[Task, int]]:
        """The tasks that run and may take too long, and since when. May be called from any thread."""
        found = self.running()
        return () if found is None else (found,)

    @abstractmethod
    def close(self, timeout: float) -> bool:
        """Finish what is queued, then end the thread; False if it did not end within `timeout` seconds."""

    def __repr__(self) -> str:
        return f"<stream {self.name}>"
