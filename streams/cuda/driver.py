"""The functions of CUDA's driver that CuPy lacks: capture, graphs and their nodes, through NVIDIA's bindings.

CuPy's own graphs can only be launched. `cuda-bindings` (Apache-2.0) has the whole driver; without that package there
are no graphs, and `missing` says so. Handles are numbers here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DEVICE_SIDE = frozenset({"KERNEL", "MEMCPY", "MEMSET", "EMPTY"})  # kinds of nodes that run without the host


class DriverError(RuntimeError):
    """A failed call of the driver."""


def missing() -> str | None:
    """The reason why there are no bindings of the driver; None if there are."""
    try:
        from cuda.bindings import driver  # noqa: F401
    except Exception as error:
        return f"cuda-bindings cannot be imported ({type(error).__name__}: {error})"
    return None


class Driver:
    """The driver's functions for graphs; each raises DriverError if the driver reports an error."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.api: Any = driver
        modes = driver.CUstreamCaptureMode
        self._thread_local = modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._relaxed = modes.CU_STREAM_CAPTURE_MODE_RELAXED
        self._active = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
        self._on_device = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE

    def checked(self, results: tuple[Any, ...]) -> Any:
        """The results of a function besides its status."""
        if results[0] != self.api.CUresult.CUDA_SUCCESS:
            raise DriverError(self.api.CUresult(results[0]).name)
        return results[1] if len(results) > 1 else None

    # -- capture -----------------------------------------------------------------------------------------------------

    def begin(self, stream: int) -> None:
        """Begin to capture launches on a stream. Until the end, this thread makes no call that could wait."""
        self.checked(self.api.cuStreamBeginCapture(stream, self._thread_local))

    def end(self, stream: int) -> int:
        """End the capture; returns the graph, which the caller owns."""
        return int(self.checked(self.api.cuStreamEndCapture(stream)))

    def last(self, stream: int) -> int:
        """The last captured node; 0 if there is none."""
        info = self.api.cuStreamGetCaptureInfo(stream)
        if self.checked(info) != self._active:
            raise DriverError("the capture is not valid any more")
        nodes = info[4]
        if len(nodes) > 1:
            raise DriverError(f"{len(nodes)} nodes where one is the last")
        return int(nodes[0]) if nodes else 0

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Let this thread allocate memory within a capture."""
        before = self.checked(self.api.cuThreadExchangeStreamCaptureMode(self._relaxed))
        try:
            yield
        finally:
            self.checked(self.api.cuThreadExchangeStreamCaptureMode(before))

    # -- graphs ------------------------------------------------------------------------------------------------------

    def nodes(self, graph: int) -> list[int]:
        """All nodes of a graph."""
        count = self.api.cuGraphGetNodes(graph)
        self.checked(count)
        found = self.checked(self.api.cuGraphGetNodes(graph, count[2])) if count[2] else []
        return [int(node) for node in found]

    def host_part(self, node: int) -> str | None:
        """The part of a node that needs the host when the graph is launched; None if there is none."""
        kind = self.api.CUgraphNodeType(self.checked(self.api.cuGraphNodeGetType(node)))
        name = kind.name.removeprefix("CU_GRAPH_NODE_TYPE_")
        if name not in DEVICE_SIDE:
            return f"a node of the kind {name}"
        if name == "MEMCPY":
            copy = self.checked(self.api.cuGraphMemcpyNodeGetParams(node))
            ends = (copy.srcMemoryType, copy.srcDevice), (copy.dstMemoryType, copy.dstDevice)
            if not all(self._lies_on_device(kind, address) for kind, address in ends):
                return "a copy from or to the host's memory"
        return None

    def _lies_on_device(self, kind: Any, address: Any) -> bool:
        """Return whether one end of a copy is device memory. If the kind does not say so, the address does."""
        if kind == self.api.CUmemorytype.CU_MEMORYTYPE_UNIFIED:
            attribute = self.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            kind = self.checked(self.api.cuPointerGetAttribute(attribute, address))
        return bool(kind == self._on_device)

    def instantiate(self, graph: int) -> int:
        """The executable form of the graph."""
        return int(self.checked(self.api.cuGraphInstantiate(graph, 0)))

    def upload(self, executable: int, stream: int) -> None:
        """Send an executable graph to the device, so that its first launch need not."""
        self.checked(self.api.cuGraphUpload(executable, stream))

    def launch(self, executable: int, stream: int) -> None:
        """Launch an executable graph."""
        self.checked(self.api.cuGraphLaunch(executable, stream))

    def destroy(self, graph: int, executable: int) -> None:
        """Destroy a graph, and its executable form if there is one."""
        if executable:
            self.api.cuGraphExecDestroy(executable)
        self.api.cuGraphDestroy(graph)

    # -- nodes of an executable graph --------------------------------------------------------------------------------

    def kernel(self) -> Any:
        """The parameters of a kernel node."""
        return self.api.CUDA_KERNEL_NODE_PARAMS()

    def set_kernel(self, executable: int, node: int, parameters: Any) -> None:
        """Make a node launch that kernel."""
        self.checked(self.api.cuGraphExecKernelNodeSetParams(executable, node, parameters))

    def context(self) -> Any:
        """The current context, to which copies belong."""
        return self.checked(self.api.cuCtxGetCurrent())

    def set_copy(self, executable: int, node: int, to: int, origin: int, nbytes: int, context: Any) -> None:
        """Make a node copy `nbytes` bytes of device memory."""
        copy = self.api.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = self._on_device
        copy.srcDevice, copy.dstDevice = origin, to
        copy.srcPitch = copy.dstPitch = copy.WidthInBytes = nbytes
        copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1
        self.checked(self.api.cuGraphExecMemcpyNodeSetParams(executable, node, copy, context))
