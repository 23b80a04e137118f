"""CUDA graphs of launches (CUDA C++ Programming Guide, CUDA Graphs).

Theory of operation
    The calls are made once while a stream of its own captures them (`recording`). After each call the driver reports
    the last captured node, so each node's call is known. A generated kernel is launched as one node, whose arguments
    can be replaced (`OwnKernel`). For a library call, arguments that move are copied (`nodes`). The graph is then made
    executable, and sent to the device. A library's other arguments, temporaries and the workspace of products are fixed
    in the graph. So temporaries come from a pool of the graph's own, which takes blocks of the device's memory and
    keeps them.

Guarantees
    - A graph does what the list of its calls does, in the same order, with the same bits.
    - Calls that cannot be captured give a `GraphRefusal`. The stream of a failed capture is not used again, and its
      memory is freed; everything else goes on. If the reason is a lost device, the device's error is raised.
    - The memory of a dropped graph is free once the device has reached an event after the graph's last launch.
      `collect` checks that.

Who owns which thread
    `graph_of` runs on the thread that launches tasks, where the device is current, and never waits for the device. The
    kernels are warm: each call was made before, since a capture cannot load a module. One thread at a time calls
    `launch`, `patch` and `drop`; any thread calls `collect`.

Rejected
    - Nodes added one by one, without a capture: this works only for generated kernels.
    - CuPy's `Graph`, whose nodes accept no new arguments.
    - A capture in the global mode: an allocation on any thread would end it.
    - A new capture for each change (cuGraphExecUpdate): it costs as much as the list of calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final
from weakref import WeakSet

from ..graph import Call, GraphRefusal, LaunchGraph, Moving
from ..launching.stream_fences import Events
from .driver import Driver, DriverError, missing
from .products import Products
from .recording import GraphMemory, GraphRecording
from .replaced import replaced

FFT_PLAN_MODULE: Final = "cupy.fft._fft"


class GraphResources:
    """The resources of a graph until its last launch is complete. `stream`: of that launch; `event`: recorded after
    it."""

    def __init__(self, graph: int, executable: int, memory: GraphMemory) -> None:
        self.graph = graph
        self.executable = executable
        self.memory = memory
        self.stream: Any = None
        self.event: Any = None


class Graphs:
    """The graphs of one device. `take`: allocates a block of its memory; `has_passed`: tells whether it has reached an
    event."""

    def __init__(
        self,
        cupy: Any,
        ordinal: int,
        take: Callable[[int], Any],
        events: Events,
        has_passed: Callable[[Any], bool],
    ) -> None:
        self.current_stream: Callable[[], Any] = cupy.cuda.get_current_stream
        self._cupy = cupy
        self._ordinal = ordinal
        self._take = take
        self._events = events
        self._has_passed = has_passed
        self._missing = missing()
        self._driver = Driver() if self._missing is None else None
        self._stream: Any = None
        self._products = Products(cupy, self._new_block)
        self._living: WeakSet[CudaGraph] = WeakSet()
        self.turns = count()  # of launches
        self.counted = 0  # bytes of the device that count as the graphs'; the driving thread writes it
        self.let_go: deque[int] = deque()  # bytes of dropped graphs, to be subtracted
        self._dropped: deque[GraphResources] = deque()

    def graph_of(self, calls: Sequence[Call], moving: Sequence[Moving] = ()) -> LaunchGraph | GraphRefusal:
        """A graph of the calls, or the reason why there is none. `moving`: arguments whose address may differ between
        launches."""
        if self._driver is None:
            return GraphRefusal(f"{self._missing}; install tensord[cuda12] or tensord[cuda13]")
        self.collect()
        graph = self._attempt(self._driver, calls, moving)
        if self._products.wanted:
            self._products.wanted = False
            try:
                self._products.prepare(self._new_stream())
            except (OSError, MemoryError, RuntimeError) as error:
                short = isinstance(error, MemoryError)
                return GraphRefusal(f"products cannot be captured: {error}", short=short)
            graph = self._attempt(self._driver, calls, moving)
        return graph

    def _attempt(self, driver: Driver, calls: Sequence[Call], moving: Sequence[Moving]) -> LaunchGraph | GraphRefusal:
        stream, self._stream = self._stream or self._new_stream(), None
        memory = GraphMemory(self._cupy, self._new_block)
        recording, executable = GraphRecording(self._cupy, driver, stream, memory), 0
        try:
            allocating, plans = (
                self._cupy.cuda.using_allocator(memory.malloc),
                replaced(FFT_PLAN_MODULE, {"get_plan_cache": refuse_plan}),
            )
            with stream, allocating, self._products.captured(), plans:
                refused = recording.record(calls, moving)
            if refused is None:
                executable = driver.instantiate(recording.graph)
                driver.upload(executable, stream.ptr)
        except (DriverError, ValueError) as error:  # a kind of node that the bindings do not know is a ValueError
            refused = GraphRefusal(str(error))
        held = GraphResources(recording.graph, executable, memory)
        if refused is not None:
            self._release(held)
            self._new_stream().synchronize()  # it has no work; raises if the device is lost
            return refused
        self._stream = stream
        graph = CudaGraph(self, driver, recording, held)
        self._living.add(graph)
        return graph

    def _new_stream(self) -> Any:
        """A stream for captures, which replaces the previous one."""
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._products.use(self._stream.ptr)
        return self._stream

    def _new_block(self, nbytes: int) -> Any:
        """A block of the device's memory; may be called within a capture."""
        if self._driver is None:
            return self._take(nbytes)
        with self._driver.relaxed():
            return self._take(nbytes)

    # -- the end of graphs ---------------------------------------------------------------------------------------------

    def drop(self, held: GraphResources) -> None:
        """Keep a graph's resources until the device no longer needs them. No call of CUDA, since this may be a
        finalizer."""
        self._dropped.append(held)

    def give_up(self) -> bool:
        """Drop all graphs, because memory is short; False if there are none. Called by the thread that uses them."""
        living = [graph for graph in self._living if not graph.dropped]
        for graph in living:
            graph.drop()
        return bool(living)

    def drop_oldest(self, but: LaunchGraph) -> bool:
        """Drop the graph, other than `but`, that was not launched for longest; False if there is none."""
        living = [graph for graph in self._living if graph.counted and graph is not but]
        if living:
            min(living, key=lambda graph: graph.used).drop()
        return bool(living)

    def collect(self) -> None:
        """Free the resources of dropped graphs whose last launch is complete. Any thread."""
        for _ in range(len(self._dropped)):
            with suppress(IndexError):  # another thread was faster
                held = self._dropped.popleft()
                if self._is_over(held):
                    self._release(held)
                else:
                    self._dropped.append(held)

    def _is_over(self, held: GraphResources) -> bool:
        """Return whether the last launch is complete. On a lost device it counts as complete."""
        if held.stream is None:
            return True
        try:
            with self._cupy.cuda.Device(self._ordinal):
                if held.event is None:
                    held.event = self._events.take()
                    held.event.record(held.stream)
                return self._has_passed(held.event)
        except Exception:
            return True

    def _release(self, held: GraphResources) -> None:
        if self._driver is not None and held.graph:
            self._driver.destroy(held.graph, held.executable)
        if held.event is not None:
            self._events.give(held.event)
        held.graph = held.executable = 0
        del held.memory

    def close(self) -> None:
        """Free everything. The device must be idle."""
        for graph in list(self._living):
            graph.drop()
        while self._dropped:
            self._release(self._dropped.popleft())
        self._products.close()
        self._stream = None


def refuse_plan() -> None:
    """Stands in for CuPy's cache of plans: the tables and work area of an FFT plan are not kept by a graph."""
    raise NotImplementedError("the memory of an FFT's plan is not the graph's")


class CudaGraph(LaunchGraph):
    """A graph of one device's launches."""

    def __init__(self, graphs: Graphs, driver: Driver, recording: GraphRecording, held: GraphResources) -> None:
        super().__init__(recording.nodes, recording.copies, recording.memory.nbytes, recording.checks)
        self._graphs = graphs
        self._driver = driver
        self._calls = recording.calls
        self._current = graphs.current_stream
        self._held: GraphResources | None = held
        self.counted = 0  # bytes
        self.used = 0  # the number of its last launch among those of all graphs

    def patch(self, index: int, arguments: Sequence[Any]) -> bool:
        return self._calls[index].patch(self._driver, self._living().executable, arguments)

    def launch(self) -> None:
        held = self._living()
        held.stream = stream = self._current()
        self.used = next(self._graphs.turns)
        self._driver.launch(held.executable, stream.ptr)

    def _living(self) -> GraphResources:
        if self._held is None:
            raise RuntimeError("the graph was dropped")
        return self._held

    @property
    def dropped(self) -> bool:
        return self._held is None

    def drop(self) -> None:
        held, self._held = self._held, None
        self._calls, self.checks = [], ()
        if held is not None:
            self._graphs.drop(held)
            self._graphs.let_go.append(self.counted)
            self.counted = 0

    def __del__(self) -> None:
        self.drop()
