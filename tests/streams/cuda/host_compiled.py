"""Generated kernels, compiled as C++ for the host: their arithmetic without a GPU."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

SHIM = """
#include <cmath>
#define __global__
#define __device__
struct Place { unsigned int x; };
static Place blockIdx, blockDim, threadIdx;
using namespace std;
"""
RUN = """
extern "C" void run_{n}(unsigned int grid, unsigned int block, {parameters}) {{
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) direct_{n}({names});
}}
"""
PARAMETERS = re.compile(r"void direct\((.*?)\) \{")


class HostArray(np.ndarray[Any, Any]):
    """An array with the attribute by which CuPy's say that they are packed."""

    @property
    def _c_contiguous(self) -> bool:
        return self.flags.c_contiguous


class HostKernels:
    """A stand-in for `cupy`: NumPy's ufuncs with loops of device code, and kernels that run on the host.

    `launches`: the grid of each launch; `left`: the names of the ufuncs that were called.
    """

    def __init__(self, folder: Path, loops: dict[str, list[tuple[str, str, str]]]) -> None:
        self._folder = folder
        self.launches: list[int] = []
        self.left: list[str] = []
        self._compiled: dict[str, Any] = {}
        for name, found in loops.items():
            setattr(self, name, self._ufunc(name, found))

    def _ufunc(self, name: str, loops: list[tuple[str, str, str]]) -> Any:
        def call(*arrays: Any) -> Any:
            self.left.append(name)
            return getattr(np, name)(*arrays)

        ops = [SimpleNamespace(in_types=dtypes(t), out_types=dtypes(g), routine=code) for t, g, code in loops]
        call._ops, call._preamble = SimpleNamespace(ops=ops), ""  # type: ignore[attr-defined]
        return call

    def RawKernel(self, source: str, name: str) -> Any:  # noqa: N802 - CuPy's name
        assert name == "direct"
        if source not in self._compiled:
            self.compile([source])
        run = self._compiled[source]

        def function(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            self.launches.append(grid[0])
            run(ctypes.c_uint(*grid), ctypes.c_uint(*block), *map(as_c, arguments))

        return SimpleNamespace(kernel=function)

    def compile(self, sources: Sequence[str]) -> None:
        """Compile kernels, all at once, since the compiler takes long to start."""
        number = len(self._compiled)
        file, library = self._folder / f"{number}.cpp", self._folder / f"{number}.so"
        file.write_text(SHIM + "".join(as_host_code(source, n) for n, source in enumerate(sources)))
        subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(file)], check=True, capture_output=True)  # noqa: S603, S607 - its own file
        loaded = ctypes.CDLL(str(library))
        self._compiled |= {source: getattr(loaded, f"run_{n}") for n, source in enumerate(sources)}


def as_host_code(source: str, n: int) -> str:
    """The n-th kernel, and a function that runs it for each thread of a grid."""
    found = PARAMETERS.search(source)
    assert found
    body = "\n".join(line for line in source.splitlines() if not line.startswith("#include"))
    names = ", ".join(each.split()[-1].lstrip("*") for each in found[1].split(","))
    return body.replace(" direct(", f" direct_{n}(") + RUN.format(n=n, parameters=found[1], names=names)


def dtypes(chars: str) -> tuple[Any, ...]:
    """The dtypes of characters."""
    return tuple(map(np.dtype, chars))


def as_c(argument: Any) -> Any:
    """An argument of a C function: a pointer for an array, a number for one of NumPy's."""
    if argument.ndim:
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item())
