"""Matrix products within a capture, by cuBLAS itself.

cuBLAS can be captured, but CuPy refuses: each of its functions for cuBLAS first sets the handle's stream, which raises
on a capturing stream. So a thread that captures gets other functions in their place (`replaced`). They pass their
arguments to the same function of the library that CuPy has loaded, with a handle and a workspace made here. CuPy still
decides how to multiply (layouts, copies, compute type, algorithm), so every op with a product has the same bits as
outside of a capture. A CuPy function that is not replaced raises its NotImplementedError, which refuses the graph.

The workspace has the size of cuBLAS's own, on which the choice of an algorithm depends (cuBLAS Library,
cublasSetWorkspace). Graphs share it, since they are launched on one stream.

Rejected: a product that repeats CuPy's rules, which attention, convolutions and einsum would not use. nvmath-python
(Apache-2.0): it brings cuda-core and loads the library by itself, for seven functions.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from .replaced import replaced

CUBLAS_MODULE: Final = "cupy_backends.cuda.libs.cublas"
HANDLE: Final = "h"
COMPUTE_TYPE: Final = "c"
TYPES: Final = {
    HANDLE: ctypes.c_void_p,
    COMPUTE_TYPE: ctypes.c_int,
    "i": ctypes.c_int,
    "l": ctypes.c_longlong,
    "p": ctypes.c_void_p,
}
# CuPy's functions and the library's, with the arguments of both: the handle, how to read each matrix, sizes; alpha, two
# matrices, beta, the result; for stacks their number; for the general functions the compute type and the algorithm.
FUNCTIONS: Final = {
    "gemmEx": ("cublasGemmEx", "h iiiii p pii pii p pii c i"),
    "gemmStridedBatchedEx": ("cublasGemmStridedBatchedEx", "h iiiii p piil piil p piil i c i"),
    "gemmBatchedEx": ("cublasGemmBatchedEx", "h iiiii p pii pii p pii i c i"),
    **{f"{x}gemmBatched": (f"cublas{x.upper()}gemmBatched", "h iiiii p pi pi p pi i") for x in "sdcz"},
}
# A dtype in place of a compute type is read as cublasMigrateComputeType does (cublas_api.h): CUBLAS_COMPUTE_16F, 32F
# and 64F for real and complex numbers, as numbers of cudaDataType.
MIN_COMPUTE_TYPE: Final = 64
COMPUTE_TYPES: Final = {2: 64, 0: 68, 4: 68, 1: 70, 5: 70}
MIB: Final = 1 << 20


def workspace_of(capability: str) -> int:
    """The bytes of cuBLAS's own workspace on a GPU of that compute capability, such as "90"."""
    major = int(capability[:-1])
    return {9: 32, 10: 32, 11: 32, 12: 12}.get(major, 4) * MIB


def loaded_library() -> Any:
    """The library that CuPy has loaded; OSError if there is none."""
    for version in (13, 12):
        try:
            return ctypes.CDLL(f"libcublas.so.{version}", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
    raise OSError("no libcublas is loaded")


class Products:
    """The products of one device's captures. `take`: allocates a block of its memory."""

    def __init__(self, cupy: Any, take: Callable[[int], Any]) -> None:
        self._cupy = cupy
        self._take = take
        self._library: Any = None
        self._handle = 0
        self._workspace: Any = None
        self.wanted = False  # a call has asked for a product when there was no handle
        self.nbytes = 0

    def prepare(self, stream: Any) -> None:
        """Make the handle and workspace for products on that stream, outside of a capture, on the capturing thread.
        Also make the first product of the handle and wait for it, since it may load modules, which a capture cannot."""
        if not self._handle:
            self._library = loaded_library()
            handle = ctypes.c_void_p()
            self._check("cublasCreate_v2", self._library.cublasCreate_v2(ctypes.byref(handle)))
            self._handle = handle.value or 0
            self.nbytes = workspace_of(self._cupy.cuda.Device().compute_capability)
            self._workspace = self._take(self.nbytes)
            self.use(stream.ptr)
            self._warm_up()
            stream.synchronize()
        self.use(stream.ptr)

    def _warm_up(self) -> None:
        """Multiply the present contents of the workspace."""
        one, zero, at = ctypes.c_float(1), ctypes.c_float(0), self._workspace.ptr
        alpha, beta, real, of_float = ctypes.addressof(one), ctypes.addressof(zero), 0, 68
        matrices = (at, real, 8), (at + 256, real, 8), (at + 512, real, 8)
        self._multiply("gemmEx", 0, 0, 0, 8, 8, 8, alpha, *matrices[0], *matrices[1], beta, *matrices[2], of_float, -1)

    def use(self, stream: int) -> None:
        """Make products go to that stream."""
        if not self._handle:
            return
        handle, pointer = ctypes.c_void_p(self._handle), ctypes.c_void_p
        self._check("cublasSetStream_v2", self._library.cublasSetStream_v2(handle, pointer(stream)))
        size = ctypes.c_size_t(self.nbytes)
        workspace = pointer(self._workspace.ptr)
        self._check("cublasSetWorkspace_v2", self._library.cublasSetWorkspace_v2(handle, workspace, size))

    def close(self) -> None:
        """Give back the handle and the workspace. The device must be idle."""
        if self._handle:
            self._library.cublasDestroy_v2(ctypes.c_void_p(self._handle))
        self._handle, self._workspace, self.nbytes = 0, None, 0

    def captured(self) -> AbstractContextManager[None]:
        """Make this thread's products go to cuBLAS directly, within a block that captures."""
        if CUBLAS_MODULE in sys.modules:  # otherwise no product was made yet
            self._cupy.cuda.device.get_cublas_handle()  # one per thread; the capture could not make it
        return replaced(CUBLAS_MODULE, {name: partial(self._multiply, name) for name in FUNCTIONS})

    def _multiply(self, name: str, *arguments: Any) -> None:
        if not self._handle:
            self.wanted = True
            raise RuntimeError("cuBLAS is not ready")
        function, kinds = FUNCTIONS[name]
        given = [
            TYPES[kind](self._handle if kind == HANDLE else as_compute_type(each) if kind == COMPUTE_TYPE else each)
            for kind, each in zip(kinds.replace(" ", ""), arguments, strict=True)
        ]
        self._check(function, getattr(self._library, function)(*given))

    def _check(self, function: str, status: int) -> None:
        if status:
            raise RuntimeError(f"{function} failed with cuBLAS's status {status}")


def as_compute_type(given: int) -> int:
    """The compute type that CuPy's argument denotes."""
    return given if given >= MIN_COMPUTE_TYPE else COMPUTE_TYPES[given]
