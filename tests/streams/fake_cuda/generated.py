"""Generated kernels over the fake: compiled as C++ for the host, and run when their queue gets there.

The fake's ufuncs get loops of CuPy's, from which our kernels are made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tensord.streams.cuda.loops import NAMES

from ..cuda.host_compiled import KERNEL, Compiled, as_c, loops_of
from ..cuda.loops_of_cupy import Loops
from .gpu import Gpu
from .graphs import Kernel

DTYPES = {name: np.dtype(dtype) for dtype, name in NAMES.items()}


def give_kernels(gpu: Gpu, cupy: Any, loops: Mapping[str, Loops], folder: Path) -> list[str]:
    """Let the fake compile kernels; returns the names of later launches, except those of graphs, as they come."""
    launched: list[str] = []
    compiled = Compiled(folder)
    for name, found in loops.items():
        ufunc = getattr(cupy, name)
        ufunc._ops, ufunc._preamble = loops_of(found), ""

    def raw_kernel(source: str, name: str, _options: tuple[str, ...] = ()) -> Any:
        gpu.call("moduleLoad")
        return SimpleNamespace(kernel=Generated(gpu, source, name, compiled.function(source, name), launched))

    cupy.RawKernel = raw_kernel
    return launched


class Generated(Kernel):
    """A kernel that is compiled."""

    def __init__(self, gpu: Gpu, source: str, name: str, run: Any, launched: list[str]) -> None:
        super().__init__(gpu, types_of(source, name), run)
        self._name, self._launched = name, launched

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        self._launched.append(self._name)
        super().__call__(grid, block, arguments)

    def shaped(self, grid: int, block: int) -> Any:
        def run(*values: Any) -> None:
            given = [ctypes.c_void_p(v) if d is None else as_c(v) for d, v in zip(self.types, values, strict=True)]
            self.run(ctypes.c_uint(grid), ctypes.c_uint(block), *given)

        return SimpleNamespace(run=run)


def types_of(source: str, name: str) -> list[Any]:
    """The dtypes of a kernel's parameters, None for an address."""
    (parameters,) = [found for of_kernel, found in KERNEL.findall(source) if of_kernel == name]
    types = [" ".join(each.removeprefix("const ").split()[:-1]) for each in parameters.split(", ")]
    return [None if each.endswith("*") else DTYPES[each] for each in types]
