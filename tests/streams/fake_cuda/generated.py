"""Kernels that are generated, over the fake: compiled as C++ for the host, and run when their queue gets there.

The fake's ufuncs get loops of CuPy's for that, so that kernels of ours are made of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..cuda.host_compiled import Compiled, as_c, loops_of
from ..cuda.loops_of_cupy import Loops
from .arrays import Array
from .gpu import Gpu, current_queue


def give_kernels(gpu: Gpu, cupy: Any, loops: Mapping[str, Loops], folder: Path) -> list[str]:
    """Have the fake compile kernels; the names of those that are launched from now on."""
    launched: list[str] = []
    compiled = Compiled(folder)
    for name, found in loops.items():
        ufunc = getattr(cupy, name)
        ufunc._ops, ufunc._preamble = loops_of(found), ""

    def raw_kernel(source: str, name: str, _options: tuple[str, ...] = ()) -> Any:
        gpu.call("moduleLoad")
        return SimpleNamespace(kernel=Function(gpu, name, compiled.function(source, name), launched))

    cupy.RawKernel = raw_kernel
    return launched


class Function:
    """A kernel that is compiled, to be launched on the current stream."""

    def __init__(self, gpu: Gpu, name: str, run: Any, launched: list[str]) -> None:
        self._gpu, self._name, self._run, self._launched = gpu, name, run, launched

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: Any) -> None:
        self._gpu.call("launchKernel")
        self._launched.append(self._name)
        native = [each.native if isinstance(each, Array) else each for each in arguments]
        given = [ctypes.c_uint(*grid), ctypes.c_uint(*block), *map(as_c, native)]
        self._gpu.enqueue(current_queue(self._gpu), lambda: self._run(*given))
