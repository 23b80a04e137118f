"""The capture of a list of calls as a CUDA graph: the graph, and the nodes of each call.

A generated kernel becomes a node whose arguments can be replaced. For a library call, each argument that moves is
copied to or from a fixed address in the graph's memory (`nodes`). A call that the graph cannot contain, for example one
that needs the host, makes the capture fail with a reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...interpreter.ops.positions import LATE_CHECKS, Check
from ..graph import Call, GraphRefusal, Moving
from .driver import Driver, DriverError
from .nodes import ALIGNMENT, CopiedArgument, FixedNodes, OwnNode, Patchable, is_dense
from .own_kernel import OwnKernel


class GraphMemory:
    """The memory of one graph: temporaries of its kernels, and fixed addresses for arguments whose address changes from
    launch to launch.

    `take` allocates a block of the device's memory. Temporaries are reused within the graph, whose kernels run one
    after the other. All memory is freed with this object.
    """

    def __init__(self, cupy: Any, take: Callable[[int], Any]) -> None:
        self._cupy = cupy
        self._pool = cupy.cuda.MemoryPool(take)
        self.malloc: Callable[[int], Any] = self._pool.malloc

    @property
    def nbytes(self) -> int:
        return int(self._pool.total_bytes())

    def room_for(self, array: Any) -> Any:
        """Memory for an array, with the alignment that the array has."""
        block = self.malloc(array.nbytes + ALIGNMENT)
        at = block + (array.data.ptr - block.ptr) % ALIGNMENT
        return self._cupy.ndarray(array.shape, array.dtype, memptr=at, strides=array.strides)


class GraphRecording:
    """The results of a capture. `graph` is 0 before the capture, and if the driver made no graph."""

    def __init__(self, cupy: Any, driver: Driver, stream: Any, memory: GraphMemory) -> None:
        self._cupy = cupy
        self._driver = driver
        self._stream = stream
        self.memory = memory
        self.graph = 0
        self.calls: list[Patchable] = []
        self.checks: list[tuple[int, Check]] = []
        self.copies = 0
        self.nodes = 0

    def record(self, calls: Sequence[Call], moving: Iterable[Moving]) -> GraphRefusal | None:
        """Capture the calls; returns the reason if they cannot be captured."""
        moves: dict[int, list[Moving]] = defaultdict(list)
        for each in moving:
            moves[each.call].append(each)
        self._driver.begin(self._stream.ptr)
        refused: GraphRefusal | None = None
        try:
            refused = self._make(calls, moves)
        finally:
            try:
                self.graph = self._driver.end(self._stream.ptr)
            except DriverError as error:
                refused = refused or GraphRefusal(str(error))
        return refused or self._judge()

    def _make(self, calls: Sequence[Call], moves: dict[int, list[Moving]]) -> GraphRefusal | None:
        """Make each call; returns the reason of the first one that raises."""
        before, checks = LATE_CHECKS.checks, list[Check]()
        LATE_CHECKS.checks = checks
        try:
            for index, (kernel, arguments) in enumerate(calls):
                try:
                    self._call(kernel, arguments, moves.get(index, ()))
                except Exception as error:
                    return GraphRefusal(f"{type(error).__name__}: {error}", index, isinstance(error, MemoryError))
                self.checks += [(index, check) for check in checks]
                checks.clear()
        finally:
            LATE_CHECKS.checks = before
        return None

    def _call(self, kernel: Any, arguments: Sequence[Any], moving: Iterable[Moving]) -> None:
        launch = kernel.launch_of(arguments) if isinstance(kernel, OwnKernel) else None
        if launch is not None:
            launch.function(launch.grid, launch.block, tuple(launch.arguments))
            self.calls.append(OwnNode(kernel, launch, self._last(), self._driver))
            return
        copies = {each.position: each for each in moving if is_dense(arguments[each.position])}
        given, context = list(arguments), self._driver.context() if copies else None
        made = {}
        for position, moved in copies.items():
            copy = made[position] = CopiedArgument(
                self.memory.room_for(arguments[position]), arguments[position], context
            )
            given[position] = copy.fixed
            if moved.read:
                copy.before = self._copy(copy.fixed, arguments[position])
        kernel(*given)
        self._last()
        for position, moved in copies.items():
            if moved.written:
                made[position].behind = self._copy(arguments[position], made[position].fixed)
        self.calls.append(FixedNodes(arguments, made))

    def _copy(self, target: Any, source: Any) -> int:
        """Copy the bytes of an array; returns the node."""
        runtime = self._cupy.cuda.runtime
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(target.data.ptr, source.data.ptr, source.nbytes, kind, self._stream.ptr)
        self.copies += 1
        return self._last()

    def _last(self) -> int:
        """The node that was captured last; DriverError if it needs the host."""
        node = self._driver.last(self._stream.ptr)
        if node and (part := self._driver.host_part(node)):
            raise DriverError(f"{part} cannot be launched with a graph")
        return node

    def _judge(self) -> GraphRefusal | None:
        """The reason why the graph cannot be used; None if it can."""
        nodes = self._driver.nodes(self.graph)
        self.nodes = len(nodes)
        parts = [part for node in nodes if (part := self._driver.host_part(node))]
        if parts:
            return GraphRefusal(f"{parts[0]} cannot be launched with a graph")
        return None if nodes else GraphRefusal("nothing is launched")
