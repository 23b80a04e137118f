"""A device over the fake runtime, with functions that make and launch graphs on it."""

from __future__ import annotations

import gc
from typing import Any, Final

import numpy as np

from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.own_kernel import KernelLaunch, OwnKernel

from ..conftest import Reports
from ..fake_cuda.gpu import Gpu
from ..fake_cuda.graphs import Kernel, at
from .on_launcher import OnLauncher

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

    def launch_of(self, arrays: Any) -> KernelLaunch | None:
        x, a, y, out = arrays
        if not x.flags.c_contiguous:
            return None
        return KernelLaunch(self.kernel, (1,), (256,), (x, np.float32(a), y, out, np.uint32(self.count)))


class Bench(OnLauncher):
    """A device over the fake, with functions for its launcher's thread."""

    def __init__(self, gpu: Gpu, device: Any, reports: Reports) -> None:
        super().__init__(device, reports)
        self.gpu = gpu

    def array(self, values: Any = 0, meta: Meta = META) -> Any:
        """An array of a buffer, with values that it has from the start."""
        array = self.device.bind(self.device.allocate(meta.nbytes), meta)
        array.native[...] = values
        return array

    def used(self) -> int:
        """Bytes of the device's memory that are in use, once dropped graphs have given back theirs."""
        gc.collect()
        for _ in range(3):  # the first look makes an event, which may have passed at the second
            self.device.got_to(0)
            self.run(lambda: None)
        return int(self.device._memory.used_bytes())


def values_of(array: Any) -> Any:
    """A copy of the array's present values."""
    return array.native.view(np.ndarray).copy()
