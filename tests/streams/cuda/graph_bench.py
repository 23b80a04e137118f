"""A device over the fake runtime, and what makes and launches graphs on it."""

from __future__ import annotations

import gc
import threading
from typing import Any, Final

import numpy as np

from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.own_kernel import Launch, OwnKernel
from tensord.streams.graph import LaunchGraph, Refused

from ..conftest import FakeTask
from ..fake_cuda.gpu import Gpu
from ..fake_cuda.graphs import Kernel, at

COUNT: Final = 64
META: Final = Meta.of((COUNT,), "float32")
SQUARE: Final = Meta.of((8, 8), "float32")


class Own(OwnKernel):
    """A kernel of our own: `x * a + y`, of packed arrays and a number."""

    def __init__(self, gpu: Gpu, count: int = COUNT) -> None:
        self.gpu, self.count = gpu, count
        self.kernel = Kernel(gpu, [None, np.float32, None, None, np.uint32], self.run)

    def run(self, x: int, a: Any, y: int, out: int, n: Any) -> None:
        x_, y_, out_ = (at(self.gpu, each, (int(n),), np.float32) for each in (x, y, out))
        np.copyto(out_, x_ * a + y_)

    def __call__(self, *arrays: Any) -> Any:
        launch = self.launch_of(arrays)
        assert launch is not None
        launch.function(launch.grid, launch.block, tuple(launch.arguments))

    def launch_of(self, arrays: Any) -> Launch | None:
        x, a, y, out = arrays
        if not x.flags.c_contiguous:
            return None
        return Launch(self.kernel, (1,), (256,), (x, np.float32(a), y, out, np.uint32(self.count)))


class Bench:
    """A device, and what runs on its launcher's thread."""

    def __init__(self, gpu: Gpu, device: Any, reports: Any) -> None:
        self.gpu, self.device, self.reports = gpu, device, reports
        self.xp = device.xp

    def run(self, body: Any, *, after: bool = True) -> Any:
        """What the body returns, on the launcher's thread; `after`: once the device has done what it has launched."""
        found: list[Any] = []
        errors: list[BaseException] = []

        def task() -> None:
            try:
                found.append(body())
            except Exception as error:
                errors.append(error)
            done.set()

        count, done = len(self.reports.ids), threading.Event()
        self.device.compute[0].submit([FakeTask(0, task)])
        assert done.wait(10)
        if after:
            self.reports.wait(count + 1)
        if errors:
            raise errors[0]
        return found[0]

    def array(self, values: Any = 0, meta: Meta = META) -> Any:
        """An array of a buffer, with values that it has from the start."""
        array = self.device.bind(self.device.allocate(meta.nbytes), meta)
        array.native[...] = values
        return array

    def graph(self, calls: Any, moving: Any = ()) -> LaunchGraph:
        found = self.run(lambda: self.device.graph_of(calls, moving))
        assert isinstance(found, LaunchGraph), found
        return found

    def refused(self, calls: Any, moving: Any = ()) -> Refused:
        found = self.run(lambda: self.device.graph_of(calls, moving))
        assert isinstance(found, Refused)
        return found

    def launch(self, graph: LaunchGraph) -> None:
        self.run(graph.launch)

    def used(self) -> int:
        """Bytes of the device's memory that are in use, once dropped graphs have given back theirs."""
        gc.collect()
        for _ in range(3):  # the first look makes an event, which may have passed at the second
            self.device.got_to(0)
            self.run(lambda: None)
        return int(self.device._memory.used_bytes())


def values_of(array: Any) -> Any:
    """A copy of its values, whatever they are now."""
    return array.native.view(np.ndarray).copy()
