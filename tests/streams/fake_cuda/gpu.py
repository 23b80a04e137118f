"""Devices whose streams are queues: the seed chooses the next queue to go on, the host's waits decide when.

The fake keeps the promises of CUDA's documentation, and no others: the items of a stream run in order; a stream that
waits for an event waits for the work that the event had recorded at the time of that call; anything else may run in
any order. An error of a kernel surfaces at a later call, and sticks: after it every call on that device fails. A wait
that cannot end is an AssertionError, unless the test holds an item, for which the wait goes on.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Self
from weakref import WeakValueDictionary

PATIENCE = 30.0  # seconds until a test that hangs is given up
NOT_READY = 600  # cudaErrorNotReady
# Calls that a thread may not make while it captures in thread-local mode (cudaThreadExchangeStreamCaptureMode).
UNSAFE = {"malloc", "hostAlloc", "moduleLoad", "cublasCreate"}
WAITING = {"streamSynchronize", "eventSynchronize"}  # unsafe also in relaxed mode


class CUDARuntimeError(RuntimeError):
    """CuPy's error of a runtime call; `status` is CUDA's number."""

    def __init__(self, status: int, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.status = status


class IllegalAddress(Exception):  # noqa: N818 - what happened
    """Raised in a kernel: the device's context is broken from then on."""


def out_of_memory() -> CUDARuntimeError:
    return CUDARuntimeError(2, "cudaErrorMemoryAllocation", "out of memory")


def illegal_address() -> CUDARuntimeError:
    return CUDARuntimeError(700, "cudaErrorIllegalAddress", "an illegal memory access was encountered")


class Recorded:
    """One recording of an event: done once its stream gets there."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.done = False

    def __call__(self) -> None:
        self.done = True


class Item:
    """A piece of a stream's work, which runs once `ready()`."""

    def __init__(self, run: Callable[[], object], ready: Callable[[], bool]) -> None:
        self.run = run
        self.ready = ready


class Queue:
    """The work of one CUDA stream; `ptr` 0 is the null stream, whose work is done at once."""

    def __init__(self, device: int, ptr: int) -> None:
        self.device = device
        self.ptr = ptr
        self.items: deque[Item] = deque()
        self.launched = 0
        self.capture: Any = None  # `graphs.Capture`, while it captures


def always() -> bool:
    return True


class Gpu:
    """All devices of one system. `calls` counts the calls of the runtime, `blocked` those in which the host waited, by
    the name of its thread."""

    def __init__(
        self, seed: int = 0, devices: int = 2, memory: int = 1 << 28, *, peers: bool = True, nccl: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.changed = threading.Condition(threading.RLock())
        self.queues: dict[int, Queue] = {}
        self.broken: list[CUDARuntimeError | None] = [None] * devices
        self.free = [memory] * devices
        self.total = memory
        self.peers = {(a, b): peers for a in range(devices) for b in range(devices) if a != b}
        self.enabled: set[tuple[int, int]] = set()  # (device, peer device)
        self.calls: Counter[str] = Counter()
        self.blocked: Counter[str] = Counter()
        self.bugs: list[BaseException] = []  # errors of kernels when they ran: a fault of the fake or of its user
        self.nccl = nccl  # whether NCCL is installed
        self.lacks_peer: Callable[[], bool] = lambda: False  # whether a kernel of NCCL waits for a broken GPU
        self.ipc = True  # whether there is CUDA IPC
        self.opened: dict[int, Any] = {}  # blocks of other processes, by address
        self.held: set[str] = set()
        self.kept: list[Any] = []  # memory that lives as long as the devices
        self.threads = threading.local()
        self.next_ptr = 0
        self.events: WeakValueDictionary[int, Event] = WeakValueDictionary()  # by `ptr`

    # -- the host's side -------------------------------------------------------------------------------------------

    @property
    def device(self) -> int:
        """The current device of this thread."""
        return getattr(self.threads, "device", 0)

    @device.setter
    def device(self, ordinal: int) -> None:
        self.threads.device = ordinal

    def call(self, name: str, device: int | None = None) -> None:
        """Count a call of the runtime; raise the error that broke the device, if any."""
        with self.changed:
            self.calls[name] += 1
            self.refuse_broken(self.device if device is None else device)
            if name in WAITING or (name in UNSAFE and not self.relaxed):
                self.refuse_capturing()

    @property
    def captures(self) -> list[Any]:
        """The captures that this thread has begun, and not ended."""
        found: list[Any] = self.threads.__dict__.setdefault("captures", [])
        return found

    @property
    def relaxed(self) -> bool:
        """Whether this thread may allocate while it captures."""
        return bool(getattr(self.threads, "relaxed", False))

    def refuse_capturing(self) -> None:
        """Raise if this thread captures, and invalidate its captures: the call could wait, or cannot be recorded."""
        if self.captures:
            for capture in self.captures:
                capture.valid = False
            raise CUDARuntimeError(
                900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"
            )

    def refuse_broken(self, device: int) -> None:
        """Raise the error that broke the device, if any."""
        if (error := self.broken[device]) is not None:
            raise error

    def new_queue(self) -> Queue:
        with self.changed:
            self.next_ptr += 16
            queue = self.queues[self.next_ptr] = Queue(self.device, self.next_ptr)
            return queue

    def enqueue(self, queue: Queue, run: Callable[[], object], ready: Callable[[], bool] = always) -> None:
        """Append work to a stream; that of the null stream, for which no other stream waits, is done now."""
        with self.changed:
            if queue.ptr == 0:
                run()
                return
            if queue.capture is not None:
                queue.capture.add(run)
                return
            queue.launched += 1
            queue.items.append(Item(run, ready))
            self.changed.notify_all()

    def record(self, queue: Queue) -> Recorded:
        if queue.capture is not None:
            self.refuse_capturing()
        recorded = Recorded(queue.device)
        self.enqueue(queue, recorded)
        return recorded

    def is_over(self, recorded: Recorded) -> bool:
        """Whether waits for the event may end. No device waits for one that is broken."""
        return recorded.done or self.broken[recorded.device] is not None

    def await_recorded(self, recorded: Recorded) -> None:
        """Block until that was reached; the device's error if it never will be."""
        self.drive(lambda: recorded.done, recorded.device)

    def drain(self, queue: Queue) -> None:
        """Block until the stream is empty."""
        self.drive(lambda: not queue.items, queue.device)

    def drive(self, over: Callable[[], bool], device: int) -> None:
        """Let the devices work until `over()`."""
        self.refuse_capturing()
        with self.changed:
            if not over():
                self.blocked[threading.current_thread().name] += 1
                self.changed.notify_all()
            while not over():
                if (error := self.broken[device]) is not None:
                    raise error
                if self.step():
                    continue
                assert self.held or self.lacks_peer(), "the host waits for work that waits for nothing that is queued"
                assert self.changed.wait(PATIENCE), f"nobody lets {self.held} go on"
            if (error := self.broken[device]) is not None:
                raise error

    # -- for tests -------------------------------------------------------------------------------------------------

    def runnable(self) -> list[Queue]:
        return [queue for queue in self.queues.values() if queue.items and queue.items[0].ready()]

    def can_step(self) -> bool:
        return bool(self.runnable())

    def step(self) -> bool:
        """Run one item of a stream that the seed chooses; False if none can go on."""
        with self.changed:
            runnable = self.runnable()
            if not runnable:
                return False
            queue = self.rng.choice(runnable)
            item = queue.items.popleft()
            self.run(queue, item)
            self.changed.notify_all()
            return True

    def run(self, queue: Queue, item: Item) -> None:
        try:
            item.run()
        except IllegalAddress:
            self.broken[queue.device] = illegal_address()
            for other in self.queues.values():
                if other.device == queue.device:
                    other.items.clear()
        except BaseException as error:
            self.bugs.append(error)

    def hold(self, name: str) -> Callable[[], bool]:
        """A condition for an item that is not ready before `release(name)`."""
        self.held.add(name)
        return lambda: name not in self.held

    def release(self, name: str) -> None:
        with self.changed:
            self.held.discard(name)
            self.changed.notify_all()


class Stream:
    """`cupy.cuda.Stream`."""

    null: Stream

    def __init__(self, gpu: Gpu, *, non_blocking: bool = False, queue: Queue | None = None) -> None:
        assert queue is not None or non_blocking, "a blocking stream waits for the null stream, which no one uses"
        self.gpu = gpu
        self.queue = queue if queue is not None else gpu.new_queue()
        self.ptr = self.queue.ptr
        self.device_id = -1 if queue is not None else gpu.device

    @property
    def before(self) -> list[Stream | None]:
        """The streams that were current on this thread before `with` blocks."""
        found: list[Stream | None] = self.gpu.threads.__dict__.setdefault("before", [])
        return found

    def use(self) -> Stream:
        if self.device_id not in {-1, self.gpu.device}:
            raise RuntimeError(f"the stream is of device {self.device_id}, the current one is {self.gpu.device}")
        current_streams(self.gpu)[self.gpu.device] = self
        return self

    def __enter__(self) -> Self:
        self.before.append(current_streams(self.gpu).get(self.gpu.device))
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        before, streams = self.before.pop(), current_streams(self.gpu)
        if before is None:
            del streams[self.gpu.device]
        else:
            streams[self.gpu.device] = before

    def wait_event(self, event: Event) -> None:
        self.gpu.call("streamWaitEvent", self.queue.device)
        if self.queue.capture is not None:
            self.gpu.refuse_capturing()  # a capture does not wait for work outside of it
        if (recorded := event.recorded) is None:
            return
        if self.ptr == 0:
            self.gpu.await_recorded(recorded)
        else:
            self.gpu.enqueue(self.queue, lambda: None, partial(self.gpu.is_over, recorded))

    @property
    def done(self) -> bool:
        """False on a broken device, too: CuPy raises no error here."""
        self.gpu.calls["streamQuery"] += 1
        self.gpu.refuse_capturing()
        with self.gpu.changed:  # another thread may be at the last item
            if self.queue.items:
                self.gpu.step()
            return not self.queue.items and self.gpu.broken[self.queue.device] is None

    def synchronize(self) -> None:
        self.gpu.call("streamSynchronize", self.queue.device)
        self.gpu.drain(self.queue)


class Event:
    """`cupy.cuda.Event`. One that was never recorded is done."""

    def __init__(self, gpu: Gpu, *, block: bool = False, disable_timing: bool = False) -> None:
        gpu.call("eventCreate")
        assert block, "synchronize would spin"
        self.gpu = gpu
        self.timed = not disable_timing
        self.recorded: Recorded | None = None
        self.ptr = id(self)
        gpu.events[self.ptr] = self

    def record(self, stream: Stream) -> None:
        self.gpu.call("eventRecord", stream.queue.device)
        self.recorded = self.gpu.record(stream.queue)
        self.gpu.events[self.ptr] = self  # again: a finalizer may have brought it back to life

    @property
    def done(self) -> bool:
        """False on a broken device, too: CuPy raises no error here."""
        return self.query() == 0

    def query(self) -> int:
        """The result of cudaEventQuery."""
        recorded = self.recorded
        if recorded is None:
            return 0
        self.gpu.calls["eventQuery"] += 1
        self.gpu.refuse_capturing()
        if not recorded.done:
            self.gpu.step()
        if (error := self.gpu.broken[recorded.device]) is not None:
            return error.status
        return 0 if recorded.done else NOT_READY

    def synchronize(self) -> None:
        if (recorded := self.recorded) is not None:
            self.gpu.call("eventSynchronize", recorded.device)
            self.gpu.await_recorded(recorded)


class CurrentDevice:
    """`cupy.cuda.Device`."""

    def __init__(self, gpu: Gpu, device: int | None = None) -> None:
        self.gpu = gpu
        self.id = gpu.device if device is None else device
        self.before: list[int] = []
        self.compute_capability = "90"

    def __enter__(self) -> Self:
        self.before.append(self.gpu.device)
        self.gpu.device = self.id
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.device = self.before.pop()


def current_streams(gpu: Gpu) -> dict[int, Any]:
    """The current stream of each device on this thread, unless it is the null stream."""
    streams: dict[int, Any] | None = getattr(gpu.threads, "streams", None)
    if streams is None:
        streams = gpu.threads.streams = {}
    return streams


def current_queue(gpu: Gpu) -> Queue:
    """The queue of the stream that is current on this thread."""
    stream = current_streams(gpu).get(gpu.device)
    return Queue(gpu.device, 0) if stream is None else stream.queue
