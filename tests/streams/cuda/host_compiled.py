"""Generated kernels, compiled as C++ for the host: their arithmetic without a GPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

LIBRARIES = Path(__file__).parents[3] / "out" / "host-kernels"  # each is made once for all tests and runs
COMMAND = ("g++", "-w", "-std=c++20", "-fPIC")
HEADER = "#include <cmath>\n#include <cstring>\n"  # compiled once: it takes longer than most kernels
SHIM = """
#define __global__
#define __device__
#define __shared__ static
struct Place { unsigned int x; };
static thread_local Place blockIdx, blockDim, gridDim, threadIdx;
using namespace std;
"""
RUN = """
extern "C" void run_{n}_{name}(unsigned int grid, unsigned int block, {parameters}) {{
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) kernels_{n}::{name}({names});
}}
"""
TOGETHER = """
#include <pthread.h>
static pthread_barrier_t together;
static void __syncthreads() { pthread_barrier_wait(&together); }
"""
RUN_TOGETHER = """
extern "C" void run_{n}_{name}(unsigned int grid, unsigned int block, {parameters}) {{
    pthread_barrier_init(&together, nullptr, block);
    for (unsigned int number = 0; number < grid; number++) {{
        auto run = [=](unsigned int k) {{
            blockIdx.x = number, blockDim.x = block, gridDim.x = grid, threadIdx.x = k;
            kernels_{n}::{name}({names});
        }};
        struct Thread {{ decltype(run)* run; unsigned int k; pthread_t id; }} threads[1024];
        for (unsigned int k = 0; k < block; k++) {{
            threads[k].run = &run, threads[k].k = k;
            pthread_create(&threads[k].id, nullptr, [](void* given) -> void* {{
                Thread* one = (Thread*)given;
                (*one->run)(one->k);
                return nullptr;
            }}, &threads[k]);
        }}
        for (unsigned int k = 0; k < block; k++) pthread_join(threads[k].id, nullptr);
    }}
    pthread_barrier_destroy(&together);
}}
"""
KERNEL = re.compile(r'extern "C" __global__ void (\w+)\((.*?)\) \{')
SEALED_HERE = "template <typename T> static inline T sealed(T value, unsigned int nil) { return value; }\n"


class Pointer(NamedTuple):
    """The address of an array, like CuPy's `MemoryPointer`."""

    ptr: int
    array: np.ndarray[Any, Any]

    def __add__(self, offset: Any) -> Any:
        return Pointer(self.ptr + offset, self.array.reshape(-1).view(np.uint8)[offset:])


class HostArray(np.ndarray[Any, Any]):
    """An array with the attributes of CuPy's arrays that tell whether it is packed, and its address."""

    @property
    def _c_contiguous(self) -> bool:
        return self.flags.c_contiguous

    @property
    def data(self) -> Any:
        return Pointer(self.ctypes.data, self)


class Compiled:
    """Kernels that were compiled, by their sources."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, tuple[ctypes.CDLL, int]] = {}
        self._lock = threading.Lock()

    def function(self, source: str, name: str) -> Any:
        """The function that runs a kernel of the source for a grid, a block and arguments."""
        self.compile([source])
        loaded, n = self._found[source]
        return getattr(loaded, f"run_{n}_{name}")

    def compile(self, sources: Sequence[str]) -> None:
        """Compile sources that are not, all at once, since the compiler takes long to start."""
        with self._lock:
            sources = [source for source in dict.fromkeys(sources) if source not in self._found]
            if not sources:
                return
            shim = SHIM + TOGETHER * any("__syncthreads" in source for source in sources)
            text = shim + "".join(as_host_code(source, n) for n, source in enumerate(sources))
            loaded = ctypes.CDLL(str(library_of(text, self._folder / f"{len(self._found)}.cpp")))
            self._found |= {source: (loaded, n) for n, source in enumerate(sources)}


def library_of(text: str, file: Path) -> Path:
    """The library of a C++ source; the file is used if there is none yet."""
    library = LIBRARIES / f"{digest(HEADER, text)}.so"
    if not library.exists():
        file.write_text(text)
        with making(library) as made:
            compile_to(made, "-shared", "-include", str(header()), str(file))
    return library


def header() -> Path:
    """The header of all sources, with its compiled form beside it."""
    path = LIBRARIES / f"{digest(HEADER)}.h"
    compiled = path.with_suffix(".h.gch")
    if not compiled.exists():
        with making(path) as made:
            made.write_text(HEADER)
        with making(compiled) as made:
            compile_to(made, "-x", "c++-header", str(path))
    return path


def digest(*texts: str) -> str:
    """The name of the compiled form of texts."""
    return hashlib.sha256("\0".join((*COMMAND, *texts)).encode()).hexdigest()


@contextmanager
def making(path: Path) -> Iterator[Path]:
    """A path at which to make a file, which becomes complete or stays absent, with any number of makers."""
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    yield made
    made.replace(path)


def compile_to(made: Path, *arguments: str) -> None:
    """Run the compiler."""
    subprocess.run([*COMMAND, "-o", str(made), *arguments], check=True, capture_output=True)  # noqa: S603 - its own files


class HostKernels:
    """A stand-in for `cupy`: NumPy's ufuncs with loops of device code, and kernels that run on the host.

    `launches`: the grid of each launch, and `launched` the kernel's name; `left`: the names of the ufuncs that were
    called.
    """

    def __init__(self, folder: Path, loops: dict[str, list[tuple[str, str, str]]]) -> None:
        self._compiled = Compiled(folder)
        self.compile = self._compiled.compile
        self.launches: list[int] = []
        self.launched: list[str] = []
        self.left: list[str] = []
        for name, found in loops.items():
            setattr(self, name, self._ufunc(name, found))

    def _ufunc(self, name: str, loops: list[tuple[str, str, str]]) -> Any:
        def call(*arrays: Any) -> Any:
            self.left.append(name)
            return getattr(np, name)(*arrays)

        call._ops, call._preamble = loops_of(loops), ""  # type: ignore[attr-defined]
        call.nin = len(loops[0][0])  # type: ignore[attr-defined]
        return call

    def empty(self, nbytes: int, dtype: str) -> Any:
        return np.full(nbytes, 0xCD, dtype).view(HostArray)

    def ndarray(self, shape: tuple[int, ...], dtype: Any, memptr: Pointer) -> Any:
        return np.ndarray(shape, dtype, memptr.array).view(HostArray)

    def RawKernel(self, source: str, name: str, options: tuple[str, ...] = ()) -> Any:  # noqa: N802 - CuPy's name
        assert options == (() if name == "direct" else ("--fmad=false",))
        run = self._compiled.function(source, name)

        def function(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            self.launches.append(grid[0])
            self.launched.append(name)
            run(ctypes.c_uint(*grid), ctypes.c_uint(*block), *map(as_c, arguments))

        return SimpleNamespace(kernel=function)


class KernelsOfCupy(HostKernels):
    """Like `HostKernels`, with all of CuPy's ufuncs, none of which is called."""

    def __init__(self, folder: Path, cupy: Any) -> None:
        super().__init__(folder, {})
        self._cupy = cupy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cupy, name)


def loops_of(loops: Sequence[tuple[str, str, str]]) -> Any:
    """Loops as a ufunc of CuPy's has them."""
    ops = [SimpleNamespace(in_types=dtypes(t), out_types=dtypes(g), routine=code) for t, g, code in loops]
    return SimpleNamespace(ops=ops)


def as_host_code(source: str, n: int) -> str:
    """The kernels of the n-th source, and functions that run them for each thread of a grid."""
    body = "\n".join(line for line in source.splitlines() if not line.startswith("#include"))
    begin, end = body.find("static __device__ inline float sealed"), body.find("template <typename T, int N>")
    if begin >= 0:
        body = body[:begin] + SEALED_HERE + body[end:]
    runs, run = [], RUN_TOGETHER if "__syncthreads" in source else RUN
    for name, parameters in KERNEL.findall(source):
        names = ", ".join(each.split()[-1].lstrip("*") for each in parameters.split(","))
        runs.append(run.format(n=n, name=name, parameters=parameters, names=names))
    return f"namespace kernels_{n} {{\n{KERNEL.sub(as_function, body)}\n}}\n" + "".join(runs)


def as_function(found: re.Match[str]) -> str:
    """A kernel as a function that C++ may overload."""
    return f"static void {found[1]}({found[2]}) {{"


def dtypes(chars: str) -> tuple[Any, ...]:
    """The dtypes of characters."""
    return tuple(map(np.dtype, chars))


def as_c(argument: Any) -> Any:
    """An argument of a C function: a pointer for an array, a number for one of NumPy's."""
    if isinstance(argument, np.generic):
        dtype: Any = argument.dtype
        return np.ctypeslib.as_ctypes_type(dtype)(argument.item())
    return ctypes.c_void_p(argument.ctypes.data)
