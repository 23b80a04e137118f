"""Chooses and launches the generated kernels of the cross entropy and its gradient (`loss_source`).

Few short rows take one launch, other losses two: the losses of the rows, and their mean. CuPy computes losses
of operands that are not packed, and of logits that are not float32 or float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from ...interpreter.schema.opdef import BoundKernel
from ...interpreter.types.meta import Meta
from ..device import KernelCall
from .loops import NAMES
from .loss_source import GRADIENT, LOSSES, SMALL_LOSS, loss_source
from .own_kernel import KernelLaunch, OwnKernel
from .row_kernels import MAX_BLOCKS, threads_for
from .row_source import LOWEST, MAX_THREADS
from .sources import Sources

SHORT, FEW = 64, 1 << 13  # the most elements of a row, and the most rows, that one block computes


def loss_kernel(
    sources: Sources, call: KernelCall, kernel: BoundKernel, empty: Callable[[int], Any]
) -> BoundKernel | None:
    """A kernel for the call; None if CuPy computes it. `empty`: allocates that many bytes."""
    if call.op.name not in {"cross_entropy", "cross_entropy_grad"}:
        return None
    logits, labels = call.metas
    if not (isinstance(logits, Meta) and isinstance(labels, Meta) and logits.size):
        return None
    if logits.dtype.name not in LOWEST or labels.dtype.name not in NAMES:
        return None
    rows, width = math.prod(logits.shape[:-1]), logits.shape[-1]
    sizes: tuple[Any, ...] = (np.int64(rows), np.int64(width))
    count = rows if call.attributes["count"] is None else call.attributes["count"]
    dtypes = logits.dtype.name, labels.dtype.name
    if call.op.name == "cross_entropy_grad":
        factor = logits.dtype.type(call.attributes["scale"] / count)
        source, form = loss_source(GRADIENT, *dtypes), (min(rows, MAX_BLOCKS), threads_for(width))
        return LossKernel(sources, source, "gradient", form, (factor, *sizes), kernel)
    if width <= SHORT and rows <= FEW:
        return LossKernel(
            sources, loss_source(SMALL_LOSS, *dtypes), "loss", (1, MAX_THREADS), (*sizes, np.int64(count)), kernel
        )
    return LongLoss(sources, loss_source(LOSSES, *dtypes), logits, count, empty, kernel)


class LossKernel(OwnKernel):
    """One launch. `form`: the number of blocks, and of threads in each; `sizes`: the arguments after the operands."""

    def __init__(
        self,
        sources: Sources,
        source: str,
        name: str,
        form: tuple[int, int],
        sizes: Sequence[Any],
        instead: BoundKernel,
    ) -> None:
        super().__init__(instead)
        self.source = source
        self.digest = sha256(source.encode()).hexdigest()
        self._sources, self._name, self._sizes = sources, name, tuple(sizes)
        self._grid, self._block = (form[0],), (form[1],)

    def launch_of(self, arrays: Sequence[Any]) -> KernelLaunch | None:
        if not are_packed(arrays):
            return None
        functions = self._sources.compile_now(self.digest, self.source, (self._name,))
        return (
            None if functions is None else KernelLaunch(functions[0], self._grid, self._block, (*arrays, *self._sizes))
        )


class LongLoss:
    """Two launches, with a loss for each row in between. `count`: the number of rows of which the result is the
    mean."""

    def __init__(
        self,
        sources: Sources,
        source: str,
        logits: Meta,
        count: int,
        empty: Callable[[int], Any],
        instead: BoundKernel,
    ) -> None:
        self.source = source
        self.digest = sha256(source.encode()).hexdigest()
        self._sources, self._empty, self._instead = sources, empty, instead
        self._rows, self._width = math.prod(logits.shape[:-1]), logits.shape[-1]
        self._count = np.int64(count)
        self._bytes = self._rows * logits.dtype.itemsize

    def __call__(self, logits: Any, labels: Any, out: Any) -> Any:
        functions = self._sources.compile_now(self.digest, self.source, ("losses", "mean"))
        if functions is None or not are_packed((logits, labels)):
            return self._instead(logits, labels, out)
        losses, mean = functions
        rows, width, each = np.int64(self._rows), np.int64(self._width), self._empty(self._bytes)
        losses((min(self._rows, MAX_BLOCKS),), (threads_for(self._width),), (logits, labels, each, rows, width))
        mean((1,), (MAX_THREADS,), (each, out, rows, self._count))
        return None


def are_packed(arrays: Sequence[Any]) -> bool:
    """Return whether the elements of each array are contiguous."""
    return all(array._c_contiguous for array in arrays)  # noqa: SLF001 - `flags` makes an object at each call
