"""A sim device that launches, as a GPU does: calling a kernel appends it to a queue, and returns.

The threads, the launcher and the fences are those of a CUDA device (`launch_stream`); queues (`sim_queue`) replace
CUDA's streams. So the device behaves as a GPU does, except that NumPy computes its values. Ops are launched at
admission once their kernels have run before. Memory is freed, and poisoned, in the order of the stream. A reader of a
value waits for a fence; without the fence the value is wrong.

A launch of a kernel that may raise on some data waits for all launches before it, since the kernel looks at values. An
exception in any other kernel loses the device, as an asynchronous error of CUDA does.

A fault hits a task when it is launched. Its delay, or the loss of the device, happens when the task is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic, perf_counter_ns
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import KernelError
from ...interpreter.ops.positions import Check
from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.program import Program
from ...interpreter.schema.opdef import Array, BoundKernel
from ...interpreter.types.meta import Meta
from ..device import MAX_ATTEMPTS, STORE_PIECE_BYTES, Buffer, FusionKernel, KernelCall
from ..faults import Fault, FaultKind
from ..launching.launch_stream import LaunchStream
from ..launching.launcher import Launcher
from ..merging import merge_in_pieces
from ..pool import PooledBuffer
from ..stream import Sink, StreamKind, Task
from .sim import SimDevice, SimOptions, owner_of
from .sim_queue import Gate, SimEvent, SimQueue

LARGE_WORK: Final = 1_000_000  # element operations, or bytes of a copy, from which a check does not compute


class LaunchedFusion:
    """The kernel of a fusion; a call appends it to a queue. `scratch`: that of the wrapped kernel."""

    def __init__(self, launch: BoundKernel, scratch: int) -> None:
        self._launch = launch
        self.scratch = scratch

    def __call__(self, *arrays: Any) -> None:
        self._launch(*arrays)


class LaunchingStream(LaunchStream):
    """A stream of a sim device that launches; `raw` is its queue."""

    def __init__(
        self, name: str, kind: StreamKind, index: int, sink: Sink, *, launcher: Launcher, raw: SimQueue
    ) -> None:
        super().__init__(name, kind, index, sink, launcher=launcher, raw=raw)
        self.queue = raw

    # The interface that `Faults` needs of a stream.

    def refresh(self, *, interfered: bool) -> None:
        self.intercepted = interfered

    def hold(self) -> None:
        """Stop before the next item."""
        self.queue.held = Gate()

    def resume(self) -> None:
        """Continue after `hold`."""
        gate, self.queue.held = self.queue.held, None
        if gate is not None:
            gate.open()


class LaunchingSimDevice(SimDevice):
    """A simulated accelerator whose ops are launched at admission."""

    def __init__(self, name: str, sink: Sink, options: SimOptions | None = None) -> None:
        self.name = name  # for the launcher
        self.broken: BaseException | None = None
        self._launcher = Launcher(self, SimEvent)
        self._hangs: list[Gate] = []
        self._lanes: list[LaunchingStream] = []  # its streams, with their own type
        super().__init__(name, sink, options)
        self._launcher.serve(tuple(self._lanes))
        self._main = self._lanes[0].queue
        self.takes_numbers = False
        self.raises_late = True
        self.launches = self.segments = len(self._compute) == 1
        self._start()

    def _start(self) -> None:
        """Start the threads."""
        self._launcher.start()

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> Any:
        self._lanes.append(self._new_stream(kind, index, sink))
        return self._lanes[-1]

    def _new_stream(self, kind: StreamKind, index: int, sink: Sink) -> LaunchingStream:
        return LaunchingStream(self.name, kind, index, sink, launcher=self._launcher, raw=SimQueue(self))

    # -- launching: on the launcher's thread, on a stream's own, or on the driving thread --------------------------

    def bind_kernel(self, call: KernelCall) -> tuple[BoundKernel, int]:
        kernel, scratch = super().bind_kernel(call)
        total = call.op.never_raises(call.metas, call.attributes)
        return self.launching(kernel, call.op.name, call.work, total=total), scratch

    def launching(self, kernel: BoundKernel, label: str, work: int, *, total: bool) -> BoundKernel:
        """A kernel that appends the given one to the current stream. A kernel that may raise waits, and computes at
        once."""
        blocking, faults, main = self.options.launch_blocking, self.faults, self._main
        current, order, large = self._launcher.launching, self.order, work > LARGE_WORK
        delay = int(self.time_of(work) * 1e9)

        def launch(*arrays: Any) -> None:
            stream = current.stream
            number, queue = (order.issued + 1, main) if stream is None else (0, stream.raw)
            span = delay + self._meet(queue, label, number) if faults.armed else delay
            queue.items.append((kernel, arrays, span, perf_counter_ns() if span else 0, number, large))
            if blocking:
                queue.synchronize()

        def compute(*arrays: Any) -> Any:
            queue, span = self._queue(), delay
            if self.faults.armed:
                span += self._meet(queue, label)
            queue.launch(do_nothing, (), span)
            queue.synchronize()
            with np.errstate(all="ignore"):
                return kernel(*arrays)

        return launch if total else compute

    def fuse(self, program: Program, fusion: Fusion, work: int) -> FusionKernel:
        fused = super().fuse(program, fusion, work)
        return LaunchedFusion(self.launching(fused, "fusion", work, total=True), fused.scratch)

    def _queue(self) -> SimQueue:
        """The queue of this thread's current stream."""
        stream: Any = self._launcher.launching.stream
        return self._main if stream is None else stream.queue

    def _copy(self, target: Array, source: Array, kind: StreamKind) -> None:
        """Launch a copy, on the driving thread as one of its numbered launches."""
        span = int(self.options.pace(kind).of(target.nbytes, 0) * 1e9)
        stream, burst = self._launcher.launching.stream, self._launcher.launching.burst
        number = self.order.issued + 1 if stream is None else 0
        if self.faults.armed and stream is not None and burst is not None:
            span += self._meet(stream.raw, burst.tasks[-1].label)
        self._queue().launch(copy_array, (target, source), span, number, large=target.nbytes > LARGE_WORK)

    def _meet(self, queue: SimQueue, label: str, number: int = 0) -> int:
        """Apply the fault that hits a launch, if any; returns the nanoseconds that it adds. `number`: of a launch at
        admission."""
        stream = next(stream for stream in self._lanes if stream.queue is queue)
        fault = self.faults.hits(stream, label)
        return 0 if fault is None else self._act(fault, queue, label, number)

    def _act(self, fault: Fault, queue: SimQueue, label: str, number: int) -> int:
        match fault.kind:
            case FaultKind.FAIL:
                queue.launch(do_nothing, (), 0, number)
                raise KernelError(f"{label} failed on {self.name} (injected)", op=label)
            case FaultKind.LOST | FaultKind.LATE:
                queue.launch(raise_it, (KernelError(f"device {self.name} is lost, with or before {label}"),))
            case FaultKind.HANG:
                self._hangs.append(gate := Gate())
                self.faults.hanging.set()
                queue.wait_for(gate)
            case FaultKind.SLOW:
                return int(fault.seconds * 1e9)
            case FaultKind.ALLOCATION:  # hits allocations only
                pass
        return 0

    # -- memory ----------------------------------------------------------------------------------------------------

    def free(self, buffer: Buffer) -> None:
        """Free the buffer, and poison its memory after the launches that use it."""
        super().free(buffer)
        if buffer.free_list is not None:  # type: ignore[attr-defined]  # it is ours
            self._main.poison(buffer.raw, buffer.behind)

    def adopt(self, array: Array) -> Buffer | None:
        """Copy the array to memory that no launch may still use."""
        memory = self.new_memory(max(array.nbytes, 1))
        buffer = PooledBuffer(array.nbytes, memory, None)
        if self.account(buffer) is None:
            return None
        self.bind(buffer, Meta.of(array.shape, array.dtype))[...] = array
        return buffer

    # -- copies ----------------------------------------------------------------------------------------------------

    def copy(self, target: Array, source: Array) -> None:
        self._copy(target, source, StreamKind.COMPUTE)

    def copy_in(self, target: Array, source: NDArray[np.generic]) -> None:
        self._check("copy_in", target, self.name, source, "")
        self._copy(target, np.array(source), StreamKind.H2D)

    def copy_out(self, source: Array, target: NDArray[np.generic]) -> None:
        self._check("copy_out", target, "", source, self.name)
        self._copy(target, source, StreamKind.D2H)

    def copy_out_soon(self, source: Array, target: NDArray[np.generic]) -> bool:
        self._check("copy_out", target, "", source, self.name)
        queue, number = self._main, self.order.issued + 1
        if self.faults.armed:  # a fault hits the copy that has a fence
            queue.launch(do_nothing, (), 0, number)
            return False
        staged = np.empty_like(target)
        span = int(self.options.pace(StreamKind.D2H).of(target.nbytes, 0) * 1e9)
        queue.launch(copy_array, (staged, source), span, number)
        position = queue.record()
        try:
            for _ in range(MAX_ATTEMPTS):
                if position.reach(wait=False):
                    queue.check()
                    target[...] = staged
                    return True
        except Exception as error:
            self.lose(error)
        return False

    def peer_copy(self, target: Array, source: Array) -> None:
        self._check("peer_copy", target, self.name, source, owner_of(source) or "another sim device")
        self._copy(target, source, StreamKind.P2P)

    def merge(
        self,
        target: Array,
        base: Array,
        source: Array,
        function: str,
        receive: Callable[[Array, Array], None] | None = None,
    ) -> None:
        stream: Any = self._launcher.launching.stream
        merge = getattr(np, function)

        def launch(base: Array, piece: Array, out: Array) -> None:
            stream.queue.launch(partial(merge, out=out), (base, piece), large=out.nbytes > LARGE_WORK)

        if receive is None:
            span = self._span_of_reading(source)
            stream.queue.launch(partial(merge, out=target), (base, source), span, large=target.nbytes > LARGE_WORK)
        else:
            merge_in_pieces(self, (target, base, source), launch, receive, stream)

    def _span_of_reading(self, source: Array) -> int:
        """Nanoseconds that reading an array in place takes: those of a transfer, if the array lies on another
        device."""
        elsewhere = owner_of(source) != self.name
        return int(self.options.pace(StreamKind.P2P).of(source.nbytes, 0) * 1e9) if elsewhere else 0

    def drain(self, source: Array, write: Callable[[NDArray[np.uint8], int], None]) -> None:
        queue, flat = self._queue(), source.reshape(-1).view("uint8")
        staged: NDArray[np.uint8] = np.empty(min(source.nbytes, STORE_PIECE_BYTES), np.uint8)
        for begin in range(0, source.nbytes, STORE_PIECE_BYTES):
            piece = staged[: min(STORE_PIECE_BYTES, source.nbytes - begin)]
            self.copy_out(flat[begin : begin + len(piece)], piece)
            queue.synchronize()
            write(piece, begin)

    # -- for the launcher, and the end -----------------------------------------------------------------------------

    @contextmanager
    def current(self) -> Iterator[None]:
        """A block without effect, since a sim device need not be made current."""
        yield

    def tell_late(self, task: Task, checks: Sequence[Check]) -> None:
        """Nothing: kernels of sim devices refuse data at once."""

    def give_back_blocks(self) -> None:
        """Nothing: there is no driver that could take blocks back."""

    def has_passed(self, event: SimEvent) -> bool:
        return event.done

    def lose(self, error: BaseException) -> None:
        """Mark the device as lost after an error that surfaced late: such errors are sticky."""
        if self.lost is None:
            self.broken = self.broken or error
            if isinstance(error, KernelError):  # without the frames of this thread
                self.lost = error.reraisable()
            else:
                self.lost = KernelError(f"device {self.name} is lost: {type(error).__name__}: {error}")
            self.refusing = True

    def release_hangs(self) -> None:
        hangs, self._hangs = self._hangs, []
        self.faults.hanging.clear()
        for gate in hangs:
            gate.open()

    def close(self, timeout: float) -> bool:
        deadline = monotonic() + timeout
        for stream in self._lanes:
            stream.queue.hurry()
        ended = self._end(deadline)
        if not ended:
            self.broken = self.broken or KernelError(f"{self.name} was closed")
            self.release_hangs()
        self.pool.trim(0)
        return ended

    def _end(self, deadline: float) -> bool:
        """End the threads; False if they did not end in time."""
        return all([self._launcher.close(deadline), *(stream.join(deadline) for stream in self._lanes)])


def copy_array(target: Array, source: Array) -> None:
    np.copyto(target, source, casting="no")


def raise_it(error: BaseException) -> None:
    """Raise the error: the kernel of a late failure."""
    raise error


def do_nothing() -> None:
    """The kernel of a launch that only takes time."""
