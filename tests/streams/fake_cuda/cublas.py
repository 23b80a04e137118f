"""cuBLAS: the library, and CuPy's module of its functions, which refuses captures.

A product is computed from the addresses when its stream gets there, by NumPy on the same layouts, so it has the bits of
a product outside of a capture. It overwrites its whole workspace, which must be valid memory.
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
BATCHED = {f"cublas{x}gemmBatched": kind for x, kind in zip("SDCZ", (0, 1, 4, 5), strict=True)}


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

    def __getattr__(self, name: str) -> Any:
        """`cublasSgemmBatched` and its kin, for stacks whose matrices lie anywhere."""
        if name not in BATCHED:
            raise AttributeError(name)
        return partial(self._multiply_anywhere, BATCHED[name])

    def _multiply_anywhere(self, kind: int, handle: Any, *given: Any) -> int:
        ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count = [each.value for each in given]
        operands = (a, lda, None), (b, ldb, None), (c, ldc, None)
        compute = 68 if DTYPES[kind] in "fF" else 70
        return self._multiply(handle, (ta, tb, m, n, k, count), (alpha, beta), operands, (kind,) * 3, compute)

    def _multiply(self, handle: Any, sizes: Any, factors: Any, operands: Any, types: Any, compute: int) -> int:
        found = self.handles[handle.value]
        dtype = DTYPES[types[0]]
        if len(set(types)) > 1 or dtype not in COMPUTE[compute]:
            return UNSUPPORTED
        assert found.workspace, "the library would take a workspace of its own, which no graph may"
        alpha, beta = (np.frombuffer(ctypes.string_at(each, np.dtype(dtype).itemsize), dtype)[0] for each in factors)
        assert (alpha, beta) == (1, 0)
        run = partial(multiply, self.gpu, np.dtype(dtype), sizes, operands, (found.workspace, found.size))
        self.gpu.enqueue(self.gpu.queues[found.stream], run)
        return 0


def multiply(gpu: Gpu, dtype: Any, sizes: Any, operands: Any, workspace: tuple[int, int]) -> None:
    """A stack of products of matrices whose columns lie one after the other: C = A B. In rows, that is C' = B' A'."""
    transposed_a, transposed_b, m, n, k, count = sizes
    at(gpu, workspace[0], (workspace[1],), np.uint8)[...] = 0x5A
    for i in range(count):
        (a, lda), (b, ldb), (c, ldc) = (address_and_stride(gpu, operand, i, dtype) for operand in operands)
        left = matrix(gpu, b, (n, k), dtype, ldb, transposed_b)
        right = matrix(gpu, a, (k, m), dtype, lda, transposed_a)
        np.matmul(left, right, out=matrix(gpu, c, (n, m), dtype, ldc, 0))


def address_and_stride(gpu: Gpu, operand: tuple[int, int, int | None], i: int, dtype: Any) -> tuple[int, int]:
    """The address and the row step of the i-th matrix. Without a step, `address` is that of an array of addresses."""
    address, lines, step = operand
    if step is None:
        return int(at(gpu, address + 8 * i, (1,), np.uint64)[0]), lines
    return address + i * step * dtype.itemsize, lines


def matrix(gpu: Gpu, address: int, shape: tuple[int, int], dtype: Any, step: int, transposed: int) -> Any:
    """A matrix whose rows, or columns if it is transposed, are `step` elements apart."""
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
    """Refuse, as CuPy's functions do within a capture; the fake's products call this only there."""
    assert current_queue(gpu).capture is not None
    raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


def handle_of_thread(gpu: Gpu) -> int:
    """`cupy.cuda.device.get_cublas_handle`: made when a thread asks for the first time."""
    if not getattr(gpu.threads, "cublas", False):
        gpu.call("cublasCreate")
        gpu.threads.cublas = True
    return 1


def product(gpu: Gpu, module: Any, x: Any, y: Any, out: Any) -> None:
    """`cupy.matmul` within a capture, by the functions of the module."""
    if out.dtype not in TYPES:
        refuse(gpu)
    x, y = (Dense(gpu, each, out.dtype) for each in (x[None] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y))
    one, zero = np.ones(1, out.dtype), np.zeros(1, out.dtype)
    kind, factors = TYPES[out.dtype], (one.ctypes.data, zero.ctypes.data)
    first: tuple[int, ...]
    second: tuple[int, ...]
    last: tuple[int, ...]
    (n, k), m = x.shape[-2:], y.shape[-1]
    compute = 68 if out.dtype.char in "fF" else 70
    if max(x.ndim, y.ndim) == 2:
        (a, ta, lda), (b, tb, ldb) = y.columns(), x.columns()
        first, second, last = (a, kind, lda), (b, kind, ldb), (address_of(out), kind, m, compute, -1)
        module.gemmEx(1, ta, tb, m, n, k, factors[0], *first, *second, factors[1], *last)
        return
    stack = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y, count = x.packed(), y.packed(), int(np.prod(stack))
    if x.shape[:-2] == y.shape[:-2]:
        first, second = (y.address, kind, m, k * m), (x.address, kind, k, n * k)
        last = (address_of(out), kind, m, n * m, count, kind, -1)
        module.gemmStridedBatchedEx(1, 0, 0, m, n, k, factors[0], *first, *second, factors[1], *last)
        return
    pointers = [Pointers(gpu, np.broadcast_to(each.native, (*stack, *each.shape[-2:]))) for each in (y, x)] + [
        Pointers(gpu, out)
    ]
    a, b, c = (each.address for each in pointers)
    function = getattr(module, f"{'sdcz'[(0, 1, 4, 5).index(kind)]}gemmBatched")
    function(1, 0, 0, m, n, k, factors[0], a, m, b, k, factors[1], c, m, count)


class Dense:
    """An operand as cuBLAS takes it, copied if need be, as CuPy does."""

    def __init__(self, gpu: Gpu, native: Any, dtype: Any) -> None:
        self.gpu, self.native = gpu, native
        self.kept: Any = None
        dense = native.ndim > 2 or native.flags.c_contiguous or native.flags.f_contiguous
        if native.dtype != dtype or not dense:
            self._copy(dtype)
        self.shape, self.ndim = self.native.shape, self.native.ndim

    def _copy(self, dtype: Any) -> None:
        self.kept, source = temporary(self.gpu, self.native.shape, dtype), self.native
        self.native = self.kept.native
        self.gpu.enqueue(current_queue(self.gpu), partial(np.copyto, self.native, source))

    @property
    def address(self) -> int:
        return address_of(self.native)

    def packed(self) -> Dense:
        """The same in rows."""
        if not self.native.flags.c_contiguous:
            self._copy(self.native.dtype)
        return self

    def columns(self) -> tuple[int, int, int]:
        """The address of a matrix, whether cuBLAS has to transpose it back, and the distance of its lines."""
        (_, within), size, (n, k) = self.native.strides, self.native.itemsize, self.shape
        if self.native.flags.c_contiguous:
            return self.address, 0, k
        return self.address, 1, max(within // size, n)


class Pointers:
    """The addresses of a stack's matrices, on the device."""

    def __init__(self, gpu: Gpu, stack: Any) -> None:
        flat = [address_of(stack[index]) for index in np.ndindex(stack.shape[:-2])]
        self.kept = temporary(gpu, (len(flat),), np.uint64)
        self.address = address_of(self.kept.native)
        gpu.enqueue(current_queue(gpu), partial(np.copyto, self.kept.native, np.array(flat, np.uint64)))


def temporary(gpu: Gpu, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of the device."""
    from .arrays import Array

    assert Array.gpu is gpu
    return Array(shape, dtype)
