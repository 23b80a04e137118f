"""Ops on rows as generated kernels: one launch each where CuPy needs several (`row_source`).

They take packed float32 and float64 operands, along the last axis; CuPy computes others. A generated kernel replaces
CuPy's in routines and in single calls, so that both give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ...interpreter.schema.opdef import BoundKernel
from ...interpreter.types.axes import normal_axes
from ...interpreter.types.meta import Meta
from ..device import KernelCall
from .own_kernel import KernelLaunch, OwnKernel
from .row_source import LOWEST, MAX_THREADS, NORMS, ROW_OPS, row_source
from .sources import Sources

MAX_BLOCKS: Final = 1 << 16
WARP: Final = 32


def row_kernel(sources: Sources, call: KernelCall, kernel: BoundKernel) -> RowKernel | None:
    """A generated kernel for the call; None if CuPy computes it. `kernel`: the one that calls CuPy."""
    meta = call.metas[0] if call.op.name in ROW_OPS else None
    if not isinstance(meta, Meta) or not meta.size or not meta.shape or meta.dtype.name not in LOWEST:
        return None
    axes = normal_axes(call.attributes["axis"], len(meta.shape))
    separate = call.op.elementwise or not call.in_place  # else an output may overwrite an operand that is still read
    same_dtype = all(isinstance(each, Meta) and each.dtype == meta.dtype for each in (*call.metas, *call.outputs))
    if axes != (len(meta.shape) - 1,) or not separate or not same_dtype:
        return None
    eps = call.attributes["eps"] if call.op.name in NORMS else 0.0
    return RowKernel(sources, row_source(call.op.name, len(call.metas), meta.dtype.name), meta, eps, kernel)


class RowKernel(OwnKernel):
    """The generated kernel of one plan. `instead`: the kernel for operands that are not packed."""

    def __init__(self, sources: Sources, source: str, meta: Meta, eps: float, instead: BoundKernel) -> None:
        super().__init__(instead)
        self.source = source
        self.digest = sha256(source.encode()).hexdigest()
        self._sources = sources
        width = meta.shape[-1]
        rows = math.prod(meta.shape[:-1])
        self._sizes = (meta.dtype.type(eps), np.int64(rows), np.int64(width))
        self._grid, self._block = (min(rows, MAX_BLOCKS),), (threads_for(width),)

    def launch_of(self, arrays: Sequence[Any]) -> KernelLaunch | None:
        for array in arrays:
            if not array._c_contiguous:  # noqa: SLF001 - `flags` makes an object at each call
                return None
        functions = self._sources.compile_now(self.digest, self.source, ("rows",))
        return (
            None if functions is None else KernelLaunch(functions[0], self._grid, self._block, (*arrays, *self._sizes))
        )


def threads_for(width: int) -> int:
    """The number of threads of a row: a power of two, with some four elements for each."""
    return min(max(WARP, 1 << max(width // 4 - 1, 0).bit_length()), MAX_THREADS)
