"""The substitutes for the modules `cupy` and `cupyx`, over one `Gpu`."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.special

import tensord.streams.cuda.products as loading

from . import arrays, cublas, ipc, nccl
from .gpu import (
    CUDARuntimeError,
    CurrentDevice,
    Event,
    Gpu,
    IllegalAddress,
    Queue,
    Stream,
    current_queue,
    current_streams,
)
from .graphs import Copied, Driver
from .memory import Memory, MemoryPointer, MemoryPool, PinnedMemory, UnownedMemory, pinned_of, regions_of
from .names import is_known
from .values import linspace

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3


class Module(ModuleType):
    """A module of NumPy's functions, each launched."""

    def __init__(self, name: str, gpu: Gpu, source: Any) -> None:
        super().__init__(name)
        self.__dict__.update(_gpu=gpu, _source=source, _waits=name.endswith("linalg"), lacks=set())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.lacks or not is_known(f"{self.__name__}.{name}"):
            raise AttributeError(name)
        found = getattr(self._source, name)
        if isinstance(found, ModuleType):
            made: Any = Module(f"{self.__name__}.{name}", self._gpu, found)
        elif isinstance(found, type) or not callable(found):
            made = found
        elif self.__name__.endswith("fft"):
            made = Transform(self._gpu, name, found)
            made.inside = self.inside
        else:
            made = arrays.Launch(self._gpu, name, found)
            made.waits = made.waits or self._waits
        if isinstance(made, arrays.Launch):
            made.path = f"{self.__name__}.{name}"
        setattr(self, name, made)
        return made


class Plans:
    """CuPy's cache of plans: all plans of one shape share one work area, on any stream."""

    def __init__(self) -> None:
        self.size = 16
        self.areas: dict[int, arrays.Array] = {}

    def set_size(self, size: int) -> None:
        self.size = size

    def clear(self) -> None:
        self.areas.clear()

    def area(self, nbytes: int) -> Any:
        area = self.areas.get(nbytes)
        if area is None:
            area = arrays.Array((nbytes,), np.uint8)
            if self.size:
                self.areas[nbytes] = area
        return area


class Transform(arrays.Launch):
    """A function of `cupy.fft`: two steps, through the work area of its plan."""

    inside: Any  # `cupy.fft._fft`

    def launch_into(self, target: Any, position: int | None, args: Any, kwargs: Any) -> None:
        source = args[0]
        if not isinstance(source, np.ndarray):  # frequencies are no transform
            super().launch_into(target, position, args, kwargs)
            return
        area = self.inside.get_plan_cache().area(source.nbytes)
        between: Any = np.ndarray(source.shape, source.dtype, area.native)
        self.launch(lambda: np.copyto(between, source))
        super().launch_into(target, position, (between, *args[1:]), kwargs)


class Product(arrays.Launch):
    """`cupy.matmul`, which goes to cuBLAS; within a capture, so that no foreign product is in a graph."""

    library: Any

    def launch_into(self, target: Any, position: int | None, args: Any, kwargs: Any) -> None:
        x, y = args
        own = target.native.dtype.kind in "biu" or not target.native.ndim or not target.native.size
        if not own:  # integers and products of vectors have kernels of CuPy's own
            cublas.handle_of_thread(self.gpu)
        if own or current_queue(self.gpu).capture is None:
            super().launch_into(target, position, args, kwargs)
        else:
            cublas.product(self.gpu, self.library, x, y, target.native)


class Runtime:
    """`cupy.cuda.runtime`."""

    CUDARuntimeError = CUDARuntimeError
    memcpyHostToDevice = HOST_TO_DEVICE  # noqa: N815 - CuPy's names
    memcpyDeviceToHost = DEVICE_TO_HOST  # noqa: N815
    memcpyDeviceToDevice = DEVICE_TO_DEVICE  # noqa: N815
    hostAllocPortable = 1  # noqa: N815

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._taken: dict[int, Memory] = {}  # by address

    def getDeviceCount(self) -> int:  # noqa: N802
        return len(self._gpu.free)

    def deviceSynchronize(self) -> None:  # noqa: N802
        """Wait for all streams of the current device."""
        gpu = self._gpu
        gpu.call("deviceSynchronize")
        for queue in list(gpu.queues.values()):
            if queue.device == gpu.device:
                gpu.drain(queue)

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        self._gpu.call("memGetInfo")
        return self._gpu.free[self._gpu.device], self._gpu.total

    def getDeviceProperties(self, ordinal: int) -> dict[str, Any]:  # noqa: N802
        return {"name": b"a fake of CUDA's runtime", "totalGlobalMem": self._gpu.total, "ordinal": ordinal}

    def driverGetVersion(self) -> int:  # noqa: N802
        return 0

    runtimeGetVersion = driverGetVersion  # noqa: N815

    def eventQuery(self, event: int) -> int:  # noqa: N802
        return self._gpu.events[event].query()

    def check_status(self, status: int) -> None:
        if status:
            raise next(error for error in self._gpu.broken if error is not None and error.status == status)

    def malloc(self, nbytes: int) -> int:
        block = Memory(self._gpu, nbytes)
        self._taken[block.ptr] = block
        return block.ptr

    def free(self, address: int) -> None:
        del self._taken[address]

    def deviceGetPCIBusId(self, device: int) -> str:  # noqa: N802
        return f"0000:{device:02X}:00.0"

    def deviceGetByPCIBusId(self, pci_bus_id: str) -> int:  # noqa: N802
        found = [n for n in range(len(self._gpu.free)) if self.deviceGetPCIBusId(n) == pci_bus_id]
        if not found:
            raise CUDARuntimeError(101, "cudaErrorInvalidDevice", "invalid device ordinal")
        return found[0]

    def ipcGetMemHandle(self, address: int) -> bytes:  # noqa: N802
        self._gpu.call("ipcGetMemHandle")
        block = regions_of(self._gpu).find(address, 1)
        if block is None:
            raise ipc.invalid()
        return ipc.handle_of(self._gpu, block)

    def ipcOpenMemHandle(self, handle: bytes, _flags: int = 1) -> int:  # noqa: N802
        self._gpu.call("ipcOpenMemHandle")
        block = ipc.opened(self._gpu, handle)
        regions_of(self._gpu).add(block.ptr, block)
        return block.ptr

    def ipcCloseMemHandle(self, address: int) -> None:  # noqa: N802
        self._gpu.call("ipcCloseMemHandle")
        ipc.closed(self._gpu, address)
        regions_of(self._gpu).remove(address)

    def memsetAsync(self, address: int, value: int, size: int, stream: int) -> None:  # noqa: N802
        gpu = self._gpu
        queue = gpu.queues[stream] if stream else Queue(gpu.device, 0)
        gpu.call("memsetAsync", queue.device)
        block = regions_of(gpu).find(address, size)
        if block is None or block.device_id != queue.device:
            raise ipc.invalid()
        gpu.enqueue(queue, partial(ctypes.memset, address, value, size))

    def deviceCanAccessPeer(self, device: int, peer: int) -> bool:  # noqa: N802
        return self._gpu.peers[device, peer]

    def deviceEnablePeerAccess(self, peer: int) -> None:  # noqa: N802
        self._gpu.call("deviceEnablePeerAccess")
        pair = (self._gpu.device, peer)
        if pair in self._gpu.enabled:
            raise CUDARuntimeError(704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled")
        self._gpu.enabled.add(pair)

    def memcpyAsync(self, to: int, origin: int, nbytes: int, kind: int, stream: int) -> None:  # noqa: N802
        """The host waits for copies of pageable memory; pinned memory is accessed when the stream gets there."""
        gpu = self._gpu
        queue = gpu.queues[stream] if stream else Queue(gpu.device, 0)
        gpu.call("memcpyAsync", queue.device)
        if kind == DEVICE_TO_DEVICE:
            gpu.enqueue(queue, Copied(gpu, to, origin, nbytes))
            return
        inside, outside = (to, origin) if kind == HOST_TO_DEVICE else (origin, to)
        block = regions_of(gpu).find(inside, nbytes)
        if block is None or block.device_id != queue.device:
            raise CUDARuntimeError(1, "cudaErrorInvalidValue", "invalid argument")
        pinned = pinned_of(gpu).find(outside, nbytes)
        if pinned is not None:
            kinds = (2, 1) if kind == HOST_TO_DEVICE else (1, 2)
            gpu.enqueue(queue, HostCopied(gpu, to, origin, nbytes, kinds, block.block, pinned.block))
            return
        gpu.drain(queue)
        ctypes.memmove(to, origin, nbytes)

    def memcpyPeerAsync(  # noqa: N802
        self, to: int, to_device: int, origin: int, from_device: int, nbytes: int, stream: int
    ) -> None:
        gpu = self._gpu
        queue = gpu.queues[stream]
        gpu.call("memcpyPeerAsync", queue.device)
        blocks = []
        for address, device in ((to, to_device), (origin, from_device)):
            block = regions_of(gpu).find(address, nbytes)
            if block is None or block.device_id != device:
                raise CUDARuntimeError(1, "cudaErrorInvalidValue", "invalid argument")
            blocks.append(block.block)
        gpu.enqueue(queue, partial(move, to, origin, nbytes, *blocks))


class HostCopied(Copied):
    """A copy from or to pinned memory."""

    def __init__(self, gpu: Gpu, to: int, origin: int, nbytes: int, kinds: tuple[int, int], *blocks: Any) -> None:
        super().__init__(gpu, to, origin, nbytes, kinds)
        self.blocks = blocks

    def __call__(self) -> None:
        move(self.to, self.origin, self.nbytes, *self.blocks)


def move(to: int, origin: int, nbytes: int, *_blocks: Any) -> None:
    """Copy bytes by their addresses. The blocks may be free by then, in code that is wrong, but are not another's."""
    ctypes.memmove(to, origin, nbytes)


def make_modules(gpu: Gpu) -> dict[str, Any]:
    """`cupy` and `cupyx` by name."""
    cupy: Any = Module("cupy", gpu, np)
    allocators = threading.local()
    pool = MemoryPool(gpu)

    def malloc(nbytes: int) -> Any:
        return getattr(allocators, "malloc", pool.malloc)(nbytes)

    @contextmanager
    def using_allocator(allocate: Any) -> Iterator[None]:
        before = getattr(allocators, "malloc", pool.malloc)
        allocators.malloc = allocate
        try:
            yield
        finally:
            allocators.malloc = before

    array = type("ndarray", (arrays.Array,), {"gpu": gpu, "malloc": staticmethod(malloc)})
    arrays.Array.gpu, arrays.Array.malloc = gpu, staticmethod(malloc)
    stream: Any = type("Stream", (Stream,), {"__init__": lambda self, **given: Stream.__init__(self, gpu, **given)})
    stream.null = Stream(gpu, queue=Queue(-1, 0))
    cupy.ndarray = array
    plans = Plans()
    inside: Any = ModuleType("cupy.fft._fft")
    inside.get_plan_cache = lambda: plans
    cupy.fft.inside, cupy.fft.config = inside, SimpleNamespace(get_plan_cache=lambda: plans)
    cupy.linspace = arrays.Launch(gpu, "linspace", linspace)
    cupy.asarray, cupy.array = partial(from_host, gpu), partial(from_host, gpu, copy=True)
    cupy.ascontiguousarray = partial(packed, gpu)
    cupy.from_dlpack = partial(from_dlpack, gpu)
    cupy.matmul = Product(gpu, "matmul", np.matmul)
    cupy.matmul.path, cupy.matmul.library = "cupy.matmul", cublas.Module(gpu)
    cupy.empty = lambda shape, dtype=np.float64, **_: arrays.Array(shape, dtype)
    cupy.cuda = SimpleNamespace(
        runtime=Runtime(gpu),
        Device=partial(CurrentDevice, gpu),
        device=SimpleNamespace(get_cublas_handle=partial(cublas.handle_of_thread, gpu)),
        Stream=stream,
        ExternalStream=lambda ptr, _device_id=-1: Stream(gpu, queue=gpu.queues[ptr]),
        Event=partial(Event, gpu),
        Memory=partial(Memory, gpu),
        MemoryPointer=MemoryPointer,
        MemoryPool=partial(MemoryPool, gpu),
        PinnedMemory=partial(PinnedMemory, gpu),
        UnownedMemory=partial(UnownedMemory, gpu),
        using_allocator=using_allocator,
        get_current_stream=lambda: current_streams(gpu).get(gpu.device, stream.null),
        nccl=nccl.Nccl(gpu) if gpu.nccl else nccl.missing(),
    )
    cupy.RawKernel = partial(RawKernel, gpu)
    cupyx: Any = ModuleType("cupyx")
    cupyx.errstate = lambda **_: nullcontext()
    cupyx.empty_pinned = partial(empty_pinned, gpu)
    special = Module("cupyx.scipy.special", gpu, scipy.special)
    bindings: Any = ModuleType("cuda.bindings")
    bindings.driver = Driver(gpu)
    return {
        "cupy": cupy,
        "cupy.fft._fft": inside,
        "cupy.cuda": cupy.cuda,
        "cupyx": cupyx,
        "cupyx.scipy.special": special,
        "cupy_backends.cuda.libs.cublas": cupy.matmul.library,
        "cuda.bindings": bindings,
        "cuda.bindings.driver": bindings.driver,
    }


class RawKernel:
    """`cupy.RawKernel`: no source is compiled; each kernel writes to an address without memory."""

    def __init__(self, gpu: Gpu, _source: str, name: str) -> None:
        gpu.call("moduleLoad")
        self.gpu = gpu
        self.name = name

    def __call__(self, _grid: Any, _block: Any, _arguments: Any) -> None:
        self.gpu.call("launchKernel")
        self.gpu.enqueue(current_queue(self.gpu), self.run)

    def run(self) -> None:
        raise IllegalAddress


def empty_pinned(gpu: Gpu, shape: Any, dtype: Any) -> Any:
    """`cupyx.empty_pinned`."""
    count = int(np.prod(shape))
    memory = PinnedMemory(gpu, max(1, count * np.dtype(dtype).itemsize))
    found = np.frombuffer(memory.block, dtype, count).reshape(shape)
    gpu.kept.append(memory)
    return found


def from_host(gpu: Gpu, value: Any, dtype: Any = None, copy: bool | None = None, **given: Any) -> Any:
    """`cupy.array` and `asarray`: the only way in for arrays of the host. The host waits for the copy."""
    if isinstance(value, arrays.Array):
        same = copy is None and dtype in {None, value.native.dtype}
        return value if same else arrays.Launch(gpu, "array", np.array)(value, dtype=dtype, **given)
    source = np.array(value, dtype)
    made = arrays.Array(source.shape, source.dtype)
    arrays.Launch(gpu, "array", lambda: source).launch_into(made, None, (), {})
    return made


def from_dlpack(gpu: Gpu, value: Any) -> Any:
    """`cupy.from_dlpack`: an array over the same memory, which the current stream may use."""
    kind, ordinal = value.__dlpack_device__()
    if kind != arrays.DLPACK_CUDA:
        raise BufferError("the array is not on a CUDA device")
    assert ordinal == gpu.device
    return value.__dlpack__(stream=current_queue(gpu).ptr or 1, max_version=(1, 0)).array


def packed(gpu: Gpu, value: Any) -> Any:
    """`cupy.ascontiguousarray`."""
    return value if value.flags.c_contiguous else arrays.Launch(gpu, "copy", lambda x: x.copy())(value)


@contextmanager
def installed(gpu: Gpu) -> Iterator[Gpu]:
    """Have `import cupy` give the fake meanwhile; a kernel that failed when it ran is an error here."""
    modules = make_modules(gpu)
    with (
        patch.dict(sys.modules, modules),
        patch.object(loading, "loaded_library", partial(cublas.Library, gpu)),
    ):
        yield gpu
    if gpu.bugs:
        raise gpu.bugs[0]


def installed_gpu() -> Gpu | None:
    """The fake that `import cupy` gives now."""
    found: Gpu | None = getattr(sys.modules.get("cupy"), "_gpu", None)
    return found
