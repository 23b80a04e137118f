"""NVIDIA GPUs through CuPy, which is imported only when a CUDA device is opened or asked about.

Memory comes from a CuPy memory pool of the device's own, in two layers: `Pool` keeps freed buffers with their arrays,
CuPy's pool keeps the blocks of temporaries that kernels make, per CUDA stream, so that reuse is in stream order. If a
block does not fit, the free memory of both layers is dropped before the allocation fails; the same holds for a kernel's
temporary.

Only `give_back_blocks` gives blocks back to the driver, and only after waiting for their stream: cudaFree "may perform
implicit synchronization" (CUDA Runtime API), but is not guaranteed to, and kernels may still use temporaries that are
already free for later work on their stream. The scheduler's thread never waits like this: while the device has work, an
allocation that finds no block fails, the launcher gives blocks back, and the engine tries again when the work has
ended.

The ledger counts the requested bytes; blocks are up to an eighth larger, and at least 512 bytes. CuPy's pool may take
that much more, and a little for temporaries (`_most_of_pool`). `reserve` is allocated when the device is opened, so
that allocations out of it cost the scheduler's thread no call of the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import Any, Final

import numpy as np

from ...interpreter.errors import KernelError, MetadataError
from ...interpreter.programs.fusion import Fusion, FusionPolicy
from ...interpreter.programs.program import Program
from ...interpreter.schema.opdef import Array, BoundKernel, OutputMetas
from ...interpreter.types.device_names import node_of
from ...interpreter.types.meta import Meta, OperandMeta
from ..device import BlockUser, Buffer, Device, FusionKernel, KernelCall
from ..graph import Call, GraphRefusal, LaunchGraph, Moving
from ..launching.launch_stream import LaunchStream
from ..launching.launcher import Launcher
from ..links.link_stream import LinkStream
from ..options import ceiling_of
from ..pool import PooledBuffer
from ..stream import Sink, Stream, StreamKind
from .compiling import Compiling
from .copies import CopyingDevice
from .direct import DirectKernels
from .fused import FusedKernels
from .graphs import CudaGraph, Graphs
from .ipc import SharedBlock, SharedBlocks, whole_pages
from .nccl import unavailable
from .nccl_library import NcclLibrary
from .nodes import ALIGNMENT
from .options import CudaOptions, available
from .scratch import least_temporaries

GRAPH_FRACTION: Final = 8  # the fraction of the memory that graphs may take
_RUN_ARENA: Final = 64 << 20  # the most bytes of an arena for runs at admission

_POLL_INTERVAL: Final = 0.001  # seconds between two checks of a thread that ends with the device
MAX_AXES: Final = 32  # of CuPy's arrays
_NOT_READY: Final = 600  # cudaErrorNotReady
_NO_MEMORY: Final = 2  # cudaErrorMemoryAllocation (CUDA Runtime API, cudaError_t), for which CuPy has no name


def _most_of_pool(limit: int) -> int:
    """The bytes that CuPy's pool may take from the driver for that many bytes in the ledger."""
    return limit + limit // 8 + (256 << 20)


class CudaDevice(CopyingDevice):
    """One NVIDIA GPU; the ordinal is the number in the name."""

    def __init__(self, name: str, sink: Sink, options: CudaOptions | None = None) -> None:
        self.ordinal = int(name.partition(":")[2])
        if reason := available(self.ordinal):
            raise MetadataError(f"device {name!r} is not available: {reason}")
        import cupy

        self._cupy: Any = cupy
        self.options = options = options or CudaOptions()
        self._memory = cupy.cuda.MemoryPool(self._new_block)
        with cupy.cuda.Device(self.ordinal):
            free, _ = cupy.cuda.runtime.memGetInfo()
            limit = options.memory or free * 5 // 6
            self._memory.set_limit(size=_most_of_pool(limit))
            self._reserve(min(options.reserve, limit))
        super().__init__(name, cupy, limit, options.missing, options.cache)
        self.pins = self.reports_late = True
        self.cuda_number = self.ordinal
        self.bus_id = str(cupy.cuda.runtime.deviceGetPCIBusId(self.ordinal))
        self.most_axes = MAX_AXES
        self.eviction, self.floor = options.eviction, options.floor
        self.ceiling = ceiling_of(options.ceiling, self.limit)
        self.open_pinned(options.pinned)
        self._launcher = Launcher(self, lambda: cupy.cuda.Event(block=True, disable_timing=True))
        self._compute = tuple(self._stream(StreamKind.COMPUTE, i, sink) for i in range(options.compute_streams))
        kinds = (StreamKind.H2D, StreamKind.D2H, StreamKind.P2P)
        self._copies = {kind: self._stream(kind, 0, sink) for kind in kinds}
        self._streams = (*self._compute, *self._copies.values())
        self._launcher.serve(self._streams)
        self._joint = LinkStream(name, sink, kind=StreamKind.JOINT)
        self._shared = SharedBlocks(cupy, self.ordinal, self._launcher.disposal)
        self._peers: dict[int, bool] = {}
        self._direct = DirectKernels(cupy)
        self._compiling = Compiling(name)
        current = partial(cupy.cuda.Device, self.ordinal)
        self._fused = FusedKernels(cupy, self._compiling.submit, current)
        self._graphs = Graphs(cupy, self.ordinal, self._take_block, self._launcher.events, self.has_passed)
        self.launches = self.segments = len(self._compute) == 1  # else launches on several streams may use one memory
        self.graphs = self.launches
        self.alignment = ALIGNMENT
        self.run_arena = max(self.run_arena, min(_RUN_ARENA, limit // 32))
        self.pace = 150.0  # an H100: float32 elements read, added and written
        self._start()

    def _start(self) -> None:
        """Start the threads."""
        self._launcher.start()

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> LaunchStream:
        with self._cupy.cuda.Device(self.ordinal):
            raw = self._cupy.cuda.Stream(non_blocking=True)
        return LaunchStream(self.name, kind, index, sink, launcher=self._launcher, raw=raw)

    def join(self, devices: Sequence[Device]) -> None:
        """Share one collective library with the other GPUs that have the option, if there are several GPUs here, or
        perhaps on other nodes, and NCCL is installed."""
        gpus = {one.name: one for one in devices if isinstance(one, CudaDevice) and one.options.nccl}
        several = len(gpus) > 1 or node_of(self.name)
        if self.library is None and self.name in gpus and several and not unavailable():
            library = NcclLibrary(self._cupy, gpus)
            for device in gpus.values():
                device.library = library

    @property
    def streams(self) -> tuple[Stream, ...]:
        return self._streams if self.library is None else (*self._streams, self._joint)

    @property
    def compute(self) -> tuple[LaunchStream, ...]:
        return self._compute

    def copy_stream(self, kind: StreamKind) -> Stream:
        return self._joint if kind is StreamKind.JOINT else self._copies[kind]

    def reaches(self, other: Device) -> bool:
        if not isinstance(other, CudaDevice) or not (self.options.peer and other.options.peer):
            return False
        if other.ordinal not in self._peers:
            self._peers[other.ordinal] = self._open_peer(other.ordinal)
        return self._peers[other.ordinal]

    def _open_peer(self, ordinal: int) -> bool:
        runtime = self._cupy.cuda.runtime
        if ordinal == self.ordinal or not runtime.deviceCanAccessPeer(self.ordinal, ordinal):
            return ordinal == self.ordinal
        try:
            with self._cupy.cuda.Device(self.ordinal):
                runtime.deviceEnablePeerAccess(ordinal)
        except runtime.CUDARuntimeError as error:
            return "PeerAccessAlreadyEnabled" in str(error)
        return True

    # -- memory ------------------------------------------------------------------------------------------------

    def new_memory(self, nbytes: int) -> Any:
        """A block from CuPy's pool, after dropping free memory if necessary. MemoryError if there is none now, or if
        the device turns out to be lost."""
        try:
            return self._take_memory(nbytes)
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            self.lose(error)
            raise MemoryError(f"{self.name} is lost") from error

    def _take_memory(self, nbytes: int) -> Any:
        with self._cupy.cuda.Device(self.ordinal), self._cupy.cuda.Stream.null:
            try:
                return self._memory.malloc(nbytes)
            except MemoryError:
                self.pool.trim(0)
                self._graphs.give_up()
                self._graphs.collect()
            try:
                return self._memory.malloc(nbytes)
            except MemoryError:
                if self.order.issued > self.order.reached or any(stream.queued for stream in self.streams):
                    self._launcher.free_blocks()
                    raise
            self.give_back_blocks()
            return self._memory.malloc(nbytes)

    def _take_block(self, nbytes: int) -> Any:
        """A block from CuPy's pool: a free one, or a new one of the driver. MemoryError if there is none. Any
        thread."""
        with self._cupy.cuda.Stream.null:
            return self._memory.malloc(nbytes)

    def _new_block(self, nbytes: int) -> Any:
        """A block from the driver. MemoryError at once if there is none: CuPy's pool would free memory that kernels
        use."""
        cuda = self._cupy.cuda
        try:
            return cuda.MemoryPointer(cuda.Memory(nbytes), 0)
        except cuda.runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
            raise MemoryError(f"{self.name}: the GPU has no block of {nbytes:,} bytes left") from error

    def give_back_blocks(self) -> None:
        """Give free blocks back to the driver: the scheduler's blocks, and, after waiting, those of streams on which
        only this thread launches."""
        streams = self._launcher.exclusive()
        for stream in streams:
            stream.synchronize()
        for stream in (self._cupy.cuda.Stream.null, *streams):
            self._memory.free_all_blocks(stream=stream)

    def _reserve(self, nbytes: int) -> None:
        """Make CuPy's pool hold one free block of that size, which it splits as needed."""
        with suppress(MemoryError):  # then each allocation finds out how much memory there is
            self._memory.malloc(nbytes)

    def _new_temporary(self, nbytes: int) -> Any:
        """A block for a kernel, allocated by the thread that launches the kernel, in the order of its stream."""
        try:
            return self._memory.malloc(nbytes)
        except MemoryError:
            launched = self.order.issued
            self._compute[0].raw.synchronize()
            self.pool.spill(launched)
            self._cupy.fft.config.get_plan_cache().clear()
            self.give_back_blocks()
            return self._memory.malloc(nbytes)

    def adopt(self, array: Array) -> Buffer | None:
        if not array.flags.c_contiguous:
            raise ValueError(f"{self.name}: only a packed array can be adopted")
        buffer = PooledBuffer(array.nbytes, array.data, None)
        buffer.array, buffer.meta = array, Meta.of(tuple(array.shape), array.dtype)
        return self.account(buffer)

    def bind(self, buffer: Buffer, meta: Meta) -> Array:
        if buffer.meta is meta:
            return buffer.array
        self._check_axes(meta)
        array = self._cupy.ndarray(meta.shape, meta.dtype, memptr=buffer.raw)
        buffer.array, buffer.meta = array, meta
        return array

    def bind_view(self, buffer: Buffer, meta: Meta, offset: int, strides: tuple[int, ...]) -> Array:
        self._check_axes(meta)
        return self._cupy.ndarray(meta.shape, meta.dtype, memptr=buffer.raw + offset, strides=strides)

    def lay_over(self, array: Array, meta: Meta, offset: int, strides: tuple[int, ...] | None) -> Array:
        return self._cupy.ndarray(meta.shape, meta.dtype, memptr=array.data + offset, strides=strides)

    def _check_axes(self, meta: Meta) -> None:
        if len(meta.shape) > MAX_AXES:
            raise ValueError(f"{self.name}: an array of {len(meta.shape)} axes, but CuPy has {MAX_AXES} at the most")

    # -- memory for others -------------------------------------------------------------------------------------

    def block_size(self, nbytes: int) -> int:
        return whole_pages(nbytes)

    def new_block(self, nbytes: int, user: BlockUser) -> tuple[SharedBlock, Array]:
        try:
            return self._shared.new(nbytes, user)
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise MetadataError(f"{self.name} gives no handles of its memory ({error})") from None
            self._launcher.free_blocks()
            raise MemoryError(f"{self.name}: the GPU has no block of {nbytes:,} bytes left") from error

    def fill_block(self, source: Array, target: Array, block: SharedBlock) -> None:
        self.copy(target, source)
        rest = block.nbytes - target.nbytes
        if rest:
            runtime = self._cupy.cuda.runtime
            runtime.memsetAsync(block.address + target.nbytes, 0, rest, self._raw.ptr)

    def discard(self, buffer: Buffer) -> None:
        """Discard as `Device.discard` says. A block that another process may have open is kept, and counted."""
        if not self._shared.keep(buffer):
            super().discard(buffer)

    def blocks_left_open(self, pid: int = 0) -> list[int]:
        return self._shared.left_open(pid)

    def free_unused_blocks(self) -> None:
        for buffer in self._shared.unused():
            super().discard(buffer)

    def behind_launches(self) -> Any:
        cuda = self._cupy.cuda
        try:
            with cuda.Device(self.ordinal):
                event = cuda.Event(block=True, disable_timing=True)
                event.record(self._compute[0].raw)
        except Exception as error:
            self.lose(error)
            return None
        return event

    def await_event(self, event: Any) -> None:
        self._burst.keep.append(event)
        self._raw.wait_event(event)

    def got_to(self, number: int) -> None:
        super().got_to(number)
        self.graph_bytes()
        self._graphs.collect()

    # -- for the launcher, and the end -------------------------------------------------------------------------

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the device current on this thread, and its memory pool the source of arrays, within a `with` block.

        Singular matrices raise, as with NumPy; CuPy would go on with the undefined result of its solver. A cached plan
        of an FFT has one work area, so plans are cached only if a single stream uses them.
        """
        from cupyx import errstate

        with (
            self._cupy.cuda.Device(self.ordinal),
            self._cupy.cuda.using_allocator(self._new_temporary),
            errstate(linalg="raise"),
            np.errstate(all="ignore"),  # numbers among operands become NumPy's
        ):
            if len(self._compute) > 1:
                self._cupy.fft.config.get_plan_cache().set_size(0)
            yield

    def enter(self) -> Any:
        """Enter as `Device.enter` says. An error, perhaps of an earlier launch, loses the device and is not raised."""
        cuda, entered = self._cupy.cuda, []
        contexts = cuda.Device(self.ordinal), cuda.using_allocator(self._new_temporary), self._compute[0].raw
        try:
            for context in contexts:
                context.__enter__()
                entered.append(context)
        except Exception as error:
            self.lose(error)
        return entered

    def leave(self, before: Any) -> None:
        for context in reversed(before):
            try:
                context.__exit__(None, None, None)
            except Exception as error:
                self.lose(error)

    def least_temporaries(self, op: str, metas: tuple[OperandMeta, ...], outputs: OutputMetas) -> int:
        return least_temporaries(op, metas, outputs)

    def bind_kernel(self, call: KernelCall) -> tuple[BoundKernel, int]:
        """The kernel, which launches. With `launch_blocking` it also waits for the launch."""
        kernel, scratch = super().bind_kernel(call)
        kernel = self._direct.kernel_of(call) or self._fused.alone(call, kernel) or kernel
        if not self.options.launch_blocking:
            return kernel, scratch
        current = self._cupy.cuda.get_current_stream

        def launch_and_wait(*arrays: Any) -> Any:
            result = kernel(*arrays)
            current().synchronize()
            return result

        return launch_and_wait, scratch

    def fusion_terms(self) -> FusionPolicy | None:
        """The terms as `Device.fusion_terms` says. With `launch_blocking` nothing is fused, so that an error names its
        op."""
        return None if self.options.launch_blocking else self._fused.terms()

    def fuse(self, program: Program, fusion: Fusion, work: int) -> FusionKernel:  # noqa: ARG002 - a kernel has all threads
        return self._fused.kernel_of(program, fusion, self.bind_kernel)

    def ask(self, work: Callable[[], None]) -> None:
        self._launcher.ask(work)

    def graph_of(self, calls: Sequence[Call], moving: Sequence[Moving] = ()) -> LaunchGraph | GraphRefusal:
        if self.options.launch_blocking:
            return GraphRefusal("launch_blocking completes each launch before the next one")
        if not self.launches:
            return GraphRefusal("there are several compute streams")
        return self._graphs.graph_of(calls, moving)

    def keep_graph(self, graph: LaunchGraph) -> bool:
        """Keep a graph as `Device.keep_graph` says. All graphs share a part of the memory; the one idle longest is
        dropped first."""
        graphs, need, most = self._graphs, graph.footprint, self.limit // GRAPH_FRACTION
        while self.graph_bytes() + need > most and graphs.drop_oldest(graph):
            pass
        if not isinstance(graph, CudaGraph) or graphs.counted + need > most or not self.set_aside(need):
            graph.drop()
            return False
        graph.counted = need
        graphs.counted += need
        return True

    def give_up_graphs(self) -> bool:
        gave_up = self._graphs.give_up()
        self.graph_bytes()
        self._graphs.collect()
        return gave_up

    def graph_bytes(self) -> int:
        graphs = self._graphs
        while graphs.let_go:
            nbytes = graphs.let_go.popleft()
            graphs.counted -= nbytes
            self.give_back(nbytes)
        return graphs.counted

    def has_passed(self, event: Any) -> bool:
        """Check as the interface says. CuPy's `Event.done` does not raise: on a lost device no event would ever be
        done."""
        runtime = self._cupy.cuda.runtime
        status = runtime.eventQuery(event.ptr)
        if status not in {0, _NOT_READY}:
            runtime.check_status(status)
        return bool(status == 0)

    def lose(self, error: BaseException) -> None:
        """Mark the device as lost after an asynchronous error: such errors are sticky, so the device stops working."""
        if self.lost is None:
            self.lost = KernelError(f"device {self.name} is lost: {type(error).__name__}: {error}")
            self.refusing = True

    def _await_launches(self, deadline: float) -> bool:
        """Wait for the launches of the driving thread; False if they have not ended before `deadline`."""
        if self.lost is not None or self.order.issued == self.order.reached:
            return True
        with suppress(Exception), self._cupy.cuda.Device(self.ordinal):  # the device is lost
            event = self._launcher.events.take()
            event.record(self._compute[0].raw)
            while not self.has_passed(event):
                if monotonic() > deadline:
                    return False
                sleep(_POLL_INTERVAL)
        return True

    def close(self, timeout: float) -> bool:
        deadline = monotonic() + timeout
        ended = self.library is None or self.library.close(timeout)
        ended = self._compiling.close(deadline) and ended
        ended = all([ended, self._launcher.close(deadline), *(stream.join(deadline) for stream in self._streams)])
        ended = self._await_launches(deadline) and ended
        self.pool.trim(0)
        self.trim_pinned()
        if ended:  # otherwise a kernel still runs
            with suppress(Exception), self._cupy.cuda.Device(self.ordinal):  # on a lost device every call fails
                self._graphs.close()
                self._memory.free_all_blocks()
        return ended
