"""CUDA graphs: capture, nodes, executable graphs; and the functions of `cuda.bindings.driver` for them.

A launch on a capturing stream becomes a node. A launch of a graph puts the work of its nodes, as they are
at that time, on the stream. Addresses are baked in: the work reads and writes the memory at them when it runs, and an
address without memory breaks the device. Handles are numbers.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .gpu import CUDARuntimeError, Gpu, IllegalAddress, current_queue
from .memory import Poisoning, regions_of


class CUresult(IntEnum):
    """Status of a call."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908


class CUgraphNodeType(IntEnum):
    """Kinds of nodes."""

    CU_GRAPH_NODE_TYPE_KERNEL = 0
    CU_GRAPH_NODE_TYPE_MEMCPY = 1
    CU_GRAPH_NODE_TYPE_HOST = 3


HOST, DEVICE, UNIFIED = 1, 2, 4  # kinds of memory
Work = Callable[[], object]


class Kernel:
    """A compiled kernel, like CuPy's function of a module. `run` gets numbers and addresses, by `types`: a dtype
    for a number, None for an address."""

    def __init__(self, gpu: Gpu, types: Sequence[Any], run: Callable[..., None]) -> None:
        self.gpu, self.run = gpu, run
        self.types = [None if dtype is None else np.dtype(dtype) for dtype in types]
        self.ptr = handle_of(gpu, self)

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        self.gpu.call("launchKernel")
        assert min(grid + block) > 0
        values = [
            each.data.ptr if dtype is None else dtype.type(each)
            for dtype, each in zip(self.types, arguments, strict=True)
        ]
        self.gpu.enqueue(current_queue(self.gpu), Launched(self.shaped(grid[0], block[0]), values))

    def shaped(self, _grid: int, _block: int) -> Kernel:
        """The kernel for a grid of this size."""
        return self


class Launched:
    """A launch of a kernel with its arguments."""

    kind = CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL

    def __init__(self, kernel: Kernel, values: Sequence[Any]) -> None:
        self.kernel, self.values = kernel, list(values)

    def __call__(self) -> None:
        self.kernel.run(*self.values)


class Copied:
    """A copy by addresses. `kinds`: of the memory there and here."""

    kind = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY

    def __init__(self, gpu: Gpu, to: int, origin: int, nbytes: int, kinds: tuple[int, int] = (DEVICE, DEVICE)) -> None:
        self.gpu, self.to, self.origin, self.nbytes, self.kinds = gpu, to, origin, nbytes, kinds

    def __call__(self) -> None:
        at(self.gpu, self.to, (self.nbytes,), np.uint8)[...] = at(self.gpu, self.origin, (self.nbytes,), np.uint8)


def at(gpu: Gpu, address: int, shape: tuple[int, ...], dtype: Any, strides: Any = None) -> Any:
    """The array at an address of the device; IllegalAddress if no memory is there."""
    dtype = np.dtype(dtype)
    steps = strides or (0,) * len(shape)
    nbytes = sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + dtype.itemsize
    nbytes = nbytes if strides else int(np.prod(shape)) * dtype.itemsize
    memory = regions_of(gpu).find(address, nbytes)
    if memory is None:
        raise IllegalAddress
    return np.ndarray(shape, dtype, memory.block, address - memory.ptr, strides)


class HostCall:
    """A node that calls the host."""

    kind = CUgraphNodeType.CU_GRAPH_NODE_TYPE_HOST

    def __call__(self) -> None:
        raise AssertionError("a graph called the host")


class Node:
    """A node of a graph; CUDA does not have the `hidden` ones."""

    def __init__(self, gpu: Gpu, work: Work) -> None:
        self.work = work
        self.hidden = isinstance(work, Poisoning)
        self.kind = getattr(work, "kind", CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL)
        self.handle = handle_of(gpu, self)


class Graph:
    """Nodes, one behind the other."""

    def __init__(self, gpu: Gpu) -> None:
        self.nodes: list[Node] = []
        self.handle = handle_of(gpu, self)


class Executable:
    """A graph that can be launched: the work of each node, which may be replaced. `flying`: work still to run."""

    def __init__(self, gpu: Gpu, graph: Graph) -> None:
        self.work = {node.handle: node.work for node in graph.nodes}
        self.flying = 0
        self.handle = handle_of(gpu, self)

    def arrived(self, work: Work) -> None:
        """Run the work of a node."""
        self.flying -= 1
        work()


class Capture:
    """A capture in thread-local mode."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.graph = Graph(gpu)
        self.thread = threading.get_ident()
        self.valid = True

    def add(self, work: Work) -> None:
        """Add work as a node, in place of a launch."""
        self.graph.nodes.append(Node(self.gpu, work))


def handles_of(gpu: Gpu) -> dict[int, Any]:
    """The objects that have a handle."""
    found: dict[int, Any] = gpu.__dict__.setdefault("handles", {})
    return found


def handle_of(gpu: Gpu, thing: Any) -> int:
    """A handle for it."""
    gpu.next_ptr += 16
    handles_of(gpu)[gpu.next_ptr] = thing
    return gpu.next_ptr


class Driver(ModuleType):
    """`cuda.bindings.driver`: each function returns a tuple that begins with its status."""

    CUresult = CUresult
    CUgraphNodeType = CUgraphNodeType
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1, CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_ACTIVE=1, CU_STREAM_CAPTURE_STATUS_INVALIDATED=2)
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_HOST=HOST, CU_MEMORYTYPE_DEVICE=DEVICE, CU_MEMORYTYPE_UNIFIED=UNIFIED)
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2)
    CUDA_KERNEL_NODE_PARAMS = SimpleNamespace
    CUDA_MEMCPY3D = SimpleNamespace

    def __init__(self, gpu: Gpu) -> None:
        super().__init__("cuda.bindings.driver")
        self.gpu = gpu

    def _called(self, name: str) -> int:
        try:
            self.gpu.call(name)
        except CUDARuntimeError as error:
            return CUresult(error.status)
        return CUresult.CUDA_SUCCESS

    def _find(self, handle: int, kind: Any) -> Any:
        found = handles_of(self.gpu).get(handle)
        assert isinstance(found, kind), f"{handle} is no {kind.__name__}, or was destroyed"
        return found

    # -- capture -----------------------------------------------------------------------------------------------------

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[Any, ...]:  # noqa: N802 - CUDA's names
        assert mode == 1, "another thread's calls would end it, or nothing would be refused"
        queue = self.gpu.queues[stream]
        if queue.capture is not None:
            return (CUresult.CUDA_ERROR_ILLEGAL_STATE,)
        if status := self._called("streamBeginCapture"):
            return (status,)
        queue.capture = Capture(self.gpu)
        self.gpu.captures.append(queue.capture)
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream: int) -> tuple[Any, ...]:  # noqa: N802
        queue = self.gpu.queues[stream]
        capture = queue.capture
        if capture is None:
            return CUresult.CUDA_ERROR_ILLEGAL_STATE, 0
        if capture.thread != threading.get_ident():
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 0
        queue.capture = None
        self.gpu.captures.remove(capture)
        if not capture.valid:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 0
        return CUresult.CUDA_SUCCESS, capture.graph.handle

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:  # noqa: N802
        capture = self.gpu.queues[stream].capture
        nodes = [node.handle for node in capture.graph.nodes if not node.hidden][-1:]
        return CUresult.CUDA_SUCCESS, 1 if capture.valid else 2, 1, capture.graph.handle, nodes, [], len(nodes)

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> tuple[Any, ...]:  # noqa: N802
        before = 2 if self.gpu.relaxed else 1
        self.gpu.threads.relaxed = mode == 2
        return CUresult.CUDA_SUCCESS, before

    # -- graphs ------------------------------------------------------------------------------------------------------

    def cuGraphGetNodes(self, graph: int, count: int = 0) -> tuple[Any, ...]:  # noqa: N802
        nodes = [node.handle for node in self._find(graph, Graph).nodes if not node.hidden]
        return CUresult.CUDA_SUCCESS, nodes[:count], len(nodes)

    def cuGraphNodeGetType(self, node: int) -> tuple[Any, ...]:  # noqa: N802
        return CUresult.CUDA_SUCCESS, self._find(node, Node).kind

    def cuGraphMemcpyNodeGetParams(self, node: int) -> tuple[Any, ...]:  # noqa: N802
        copy = self._find(node, Node).work
        to, origin = copy.kinds
        found = SimpleNamespace(
            srcMemoryType=origin, srcDevice=copy.origin, dstMemoryType=to, dstDevice=copy.to, WidthInBytes=copy.nbytes
        )
        return CUresult.CUDA_SUCCESS, found

    def cuPointerGetAttribute(self, _attribute: int, address: int) -> tuple[Any, ...]:  # noqa: N802
        return CUresult.CUDA_SUCCESS, HOST if regions_of(self.gpu).find(address, 1) is None else DEVICE

    def cuGraphInstantiate(self, graph: int, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return self._called("graphInstantiate"), Executable(self.gpu, self._find(graph, Graph)).handle

    def cuGraphUpload(self, executable: int, stream: int) -> tuple[Any, ...]:  # noqa: N802
        assert self._find(executable, Executable)
        assert stream in self.gpu.queues
        return (self._called("graphUpload"),)

    def cuGraphLaunch(self, executable: int, stream: int) -> tuple[Any, ...]:  # noqa: N802
        found = self._find(executable, Executable)
        if status := self._called("graphLaunch"):
            return (status,)
        queue = self.gpu.queues[stream]
        for work in found.work.values():
            found.flying += 1
            self.gpu.enqueue(queue, partial(found.arrived, work))
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphDestroy(self, graph: int) -> tuple[Any, ...]:  # noqa: N802
        for node in self._find(graph, Graph).nodes:
            del handles_of(self.gpu)[node.handle]
        del handles_of(self.gpu)[graph]
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, executable: int) -> tuple[Any, ...]:  # noqa: N802
        found = self._find(executable, Executable)
        if found.flying and self.gpu.broken[self.gpu.device] is None:
            self.gpu.bugs.append(AssertionError("a graph is destroyed while it is launched"))
        del handles_of(self.gpu)[executable]
        return (CUresult.CUDA_SUCCESS,)

    # -- nodes of an executable graph --------------------------------------------------------------------------------

    def _replace(self, executable: int, node: int, kind: Any, work: Work) -> tuple[Any, ...]:
        found, original = self._find(executable, Executable), self._find(node, Node)
        if node not in found.work or not isinstance(original.work, kind):
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        found.work[node] = work
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphExecKernelNodeSetParams(self, executable: int, node: int, given: Any) -> tuple[Any, ...]:  # noqa: N802
        kernel = self._find(int(given.func), Kernel)
        assert given.gridDimX * given.gridDimY * given.gridDimZ > 0
        assert given.blockDimX * given.blockDimY * given.blockDimZ > 0
        pointers = (ctypes.c_void_p * len(kernel.types)).from_address(given.kernelParams)
        values = [
            int.from_bytes(ctypes.string_at(pointer or 0, 8), "little")
            if dtype is None
            else np.frombuffer(ctypes.string_at(pointer or 0, dtype.itemsize), dtype)[0]
            for pointer, dtype in zip(pointers, kernel.types, strict=True)
        ]
        shaped = kernel.shaped(int(given.gridDimX), int(given.blockDimX))
        return self._replace(executable, node, Launched, Launched(shaped, values))

    def cuCtxGetCurrent(self) -> tuple[Any, ...]:  # noqa: N802
        return CUresult.CUDA_SUCCESS, ("context", self.gpu.device)

    def cuGraphExecMemcpyNodeSetParams(  # noqa: N802
        self, executable: int, node: int, given: Any, context: Any
    ) -> tuple[Any, ...]:
        assert context == ("context", self.gpu.device)
        if (given.srcMemoryType, given.dstMemoryType, given.Height, given.Depth) != (DEVICE, DEVICE, 1, 1):
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        if not given.srcPitch == given.dstPitch == given.WidthInBytes < 1 << 31:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        ends = given.dstDevice, given.srcDevice
        if any(regions_of(self.gpu).find(address, given.WidthInBytes) is None for address in ends):
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        return self._replace(executable, node, Copied, Copied(self.gpu, *ends, given.WidthInBytes))
