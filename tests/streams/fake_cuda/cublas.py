"""cuBLAS: the library, and CuPy's module of its functions, which refuses captures.

A product is computed from the addresses when its stream gets there, by NumPy on the same layouts, so it has the bits of
a product outside of a capture. It writes all over its workspace, which has to be there.
"""

from __future__ import annotations

import ctypes
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from .gpu import Gpu, current_queue
from .graphs import at
from .memory import address_of

DTYPES = {0: "f", 1: "d", 4: "F", 5: "D"}  # of cudaDataType
TYPES = {np.dtype(dtype): number for number, dtype in DTYPES.items()}
COMPUTE = {68: "fF", 70: "dD"}  # dtypes of compute types
UNSUPPORTED = 15


class Handle:
    """A handle of the library."""

    def __init__(self) -> None:
        self.stream = self.workspace = self.size = 0


class Library:
    """`libcublas.so`, for arguments of ctypes."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.handles: dict[int, Handle] = {}
        self.most = 0

    def cublasCreate_v2(self, found: Any) -> int:  # noqa: N802 - cuBLAS's names
        self.gpu.call("cublasCreate")
        self.most += 1
        self.handles[self.most] = Handle()
        found._obj.value = self.most
        return 0

    def cublasDestroy_v2(self, handle: Any) -> int:  # noqa: N802
        del self.handles[handle.value]
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:  # noqa: N802
        found = self.handles[handle.value]
        found.stream, found.workspace, found.size = stream.value, 0, 0  # the library's own workspace again
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, workspace: Any, size: Any) -> int:  # noqa: N802
        found = self.handles[handle.value]
        found.workspace, found.size = workspace.value, size.value
        return 0

    def cublasGemmEx(self, handle: Any, *given: Any) -> int:  # noqa: N802
        ta, tb, m, n, k, alpha, a, at_, lda, b, bt, ldb, beta, c, ct, ldc, compute, _ = [each.value for each in given]
        one = (a, lda, 0), (b, ldb, 0), (c, ldc, 0)
        return self._multiply(handle, (ta, tb, m, n, k, 1), (alpha, beta), one, (at_, bt, ct), compute)

    def cublasGemmStridedBatchedEx(self, handle: Any, *given: Any) -> int:  # noqa: N802
        values = [each.value for each in given]
        ta, tb, m, n, k, alpha, a, at_, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, count, compute, _ = values
        stacks = (a, lda, sa), (b, ldb, sb), (c, ldc, sc)
        return self._multiply(handle, (ta, tb, m, n, k, count), (alpha, beta), stacks, (at_, bt, ct), compute)

    def _multiply(self, handle: Any, sizes: Any, factors: Any, places: Any, types: Any, compute: int) -> int:
        found = self.handles[handle.value]
        dtype = DTYPES[types[0]]
        if len(set(types)) > 1 or dtype not in COMPUTE[compute]:
            return UNSUPPORTED
        assert found.workspace, "the library would take a workspace of its own, which no graph may"
        alpha, beta = (np.frombuffer(ctypes.string_at(each, np.dtype(dtype).itemsize), dtype)[0] for each in factors)
        assert (alpha, beta) == (1, 0)
        run = partial(multiply, self.gpu, np.dtype(dtype), sizes, places, (found.workspace, found.size))
        self.gpu.enqueue(self.gpu.queues[found.stream], run)
        return 0


def multiply(gpu: Gpu, dtype: Any, sizes: Any, places: Any, workspace: tuple[int, int]) -> None:
    """A stack of products of matrices whose columns lie one after the other: C = A B. In rows, that is C' = B' A'."""
    transposed_a, transposed_b, m, n, k, count = sizes
    at(gpu, workspace[0], (workspace[1],), np.uint8)[...] = 0x5A
    (a, lda, sa), (b, ldb, sb), (c, ldc, sc) = places
    size = dtype.itemsize
    for i in range(count):
        left = matrix(gpu, b + i * sb * size, (n, k), dtype, ldb, transposed_b)
        right = matrix(gpu, a + i * sa * size, (k, m), dtype, lda, transposed_a)
        out = matrix(gpu, c + i * sc * size, (n, m), dtype, ldc, 0)
        np.matmul(left, right, out=out)


def matrix(gpu: Gpu, address: int, shape: tuple[int, int], dtype: Any, step: int, transposed: int) -> Any:
    """A matrix whose rows, or columns if it is transposed, are so many elements apart."""
    if transposed:
        return matrix(gpu, address, (shape[1], shape[0]), dtype, step, 0).T
    return at(gpu, address, shape, dtype, (step * dtype.itemsize, dtype.itemsize))


class Module(ModuleType):
    """`cupy_backends.cuda.libs.cublas`: no function is called within a capture."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__("cupy_backends.cuda.libs.cublas")
        for name in ("gemmEx", "gemmStridedBatchedEx", "sgemmBatched", "dgemmBatched", "cgemmBatched", "zgemmBatched"):
            setattr(self, name, partial(refuse, gpu))


def refuse(gpu: Gpu, *_: Any) -> None:
    """What CuPy's functions do within a capture; the fake's products come here then alone."""
    assert current_queue(gpu).capture is not None
    raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


def handle_of_thread(gpu: Gpu) -> int:
    """`cupy.cuda.device.get_cublas_handle`: made when a thread asks for the first time."""
    if not getattr(gpu.threads, "cublas", False):
        gpu.call("cublasCreate")
        gpu.threads.cublas = True
    return 1


def product(gpu: Gpu, module: Any, x: Any, y: Any, out: Any) -> None:
    """`cupy.matmul` within a capture, by the functions of the module; of matrices, or of stacks that are packed."""
    handle, kind = 1, TYPES.get(out.dtype)
    stacks = x.shape[:-2] == y.shape[:-2] and all(each.flags.c_contiguous for each in (x, y, out))
    if kind is None or x.dtype != y.dtype or min(x.ndim, y.ndim) < 2 or not (out.ndim == 2 or stacks):
        refuse(gpu)
    one, zero = np.ones(1, out.dtype), np.zeros(1, out.dtype)
    (n, k), m, to = x.shape[-2:], y.shape[-1], address_of(out)
    if out.ndim == 2:
        (a, ta, lda), (b, tb, ldb) = as_columns(y), as_columns(x)
        first, second = (a, kind, lda), (b, kind, ldb)
        compute = 68 if out.dtype.char in "fF" else 70
        module.gemmEx(
            handle, ta, tb, m, n, k, one.ctypes.data, *first, *second, zero.ctypes.data, to, kind, m, compute, -1
        )
        return
    first, second = (address_of(y), kind, m, k * m), (address_of(x), kind, k, n * k)  # type: ignore[assignment]
    sizes, count = (0, 0, m, n, k), int(np.prod(out.shape[:-2]))
    last = (to, kind, m, n * m, count, kind, -1)
    module.gemmStridedBatchedEx(handle, *sizes, one.ctypes.data, *first, *second, zero.ctypes.data, *last)


def as_columns(x: Any) -> tuple[int, int, int]:
    """The address of a matrix, whether cuBLAS has to transpose it back, and how far its lines are apart."""
    lines, within = x.strides
    if within == x.itemsize:
        return address_of(x), 0, lines // x.itemsize
    assert lines == x.itemsize, "CuPy copies this"
    return address_of(x), 1, within // x.itemsize
