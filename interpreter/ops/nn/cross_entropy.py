"""Kernels of the cross entropy and its gradient: general ones for any array module, and direct ones for few packed
rows on the host.

The direct kernels compute the same bits with half of the calls. A training step calls each of them once, right after
large products, when their code is no longer in a cache: each call that is saved takes 1 to 2 us.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...schema.opdef import Array, ArrayModule, Arrays, Attributes, BoundKernel, OutputMetas
from ...schema.promotion import working_dtype
from ...types.meta import Meta, Metas, tensor_metas
from ..positions import SIGNED_LIMIT, check_scatter
from .labels import in_range, write_nan_rows
from .softmax import in_columns, shift, softmax_kernel, total

_CLASSES = {"axis": -1}
MAX_DIRECT_LABELS = 1 << 10  # the most labels for a direct kernel, which holds the number of each row: 8 KiB
# x less the maximum of each row: (x, memory for the result or None) -> the result.
Shift: TypeAlias = Callable[[Array, Array | None], Array]
# NumPy's methods `max` and `sum` call these in the end.
_MAXIMUM: Any = np.maximum.reduce
_SUM: Any = np.add.reduce


def _at_labels(xp: ArrayModule, labels: Array) -> tuple[Array, ...]:
    """The index of each label's logit."""
    axes = range(labels.ndim)
    grid = (xp.arange(labels.shape[i]).reshape([-1 if i == j else 1 for j in axes]) for i in axes)
    return (*grid, labels)


def _countable(xp: ArrayModule, out: Array) -> list[Any]:
    """Indices of parts of the output that are small enough for a device's 32-bit counters."""
    if xp is np or out.size < SIGNED_LIMIT:
        return [...]
    each = math.prod(out.shape[1:])
    check_scatter(xp, each, 1, 1)
    step = (SIGNED_LIMIT - 1) // each
    return [slice(start, start + step) for start in range(0, len(out), step)]


def rows_of(labels: Any, attributes: Attributes) -> int:
    """The number of rows by which a mean divides: those of `labels`, or the attribute `count` if these are only a
    part of the rows."""
    count: int | None = attributes["count"]
    return int(labels.size) if count is None else count


def cross_entropy_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The mean over rows of log-sum-exp minus the label's logit; NaN if there are no rows."""
    logits, labels = inputs
    labels, wrong = in_range(xp, labels, logits.shape[-1], "labels")
    shifted = xp.empty_like(logits)
    shift(xp, logits, -1, shifted)
    picked = shifted[_at_labels(xp, labels)]
    losses = xp.log(total(xp, xp.exp(shifted, shifted), -1)[..., 0]) - picked
    if wrong is not None:
        losses = xp.where(wrong, xp.nan, losses)
    xp.divide(losses.sum(), rows_of(labels, attributes), outputs[0])


def cross_entropy_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """(softmax(logits) - one_hot(labels)) * scale / n."""
    (logits, labels), (out,) = inputs, outputs
    labels, wrong = in_range(xp, labels, logits.shape[-1], "labels")
    softmax_kernel(xp, (logits,), outputs, _CLASSES)
    for part in _countable(xp, out):
        out[part][_at_labels(xp, labels[part])] -= 1
    xp.multiply(out, attributes["scale"] / rows_of(labels, attributes), out)
    write_nan_rows(xp, out, wrong)


# --- direct


def cross_entropy_direct(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> BoundKernel | None:
    """A kernel for few rows, None for more. For rows that are not packed, it calls the general kernel."""
    logits, labels = tensor_metas(metas)
    if not _are_few(labels):
        return None
    index_of = _index_of_labels(labels, logits.shape[-1])
    shifted_by_maximum, dtype = _shift(logits), working_dtype(logits.dtype)
    one, count = np.ones((), dtype), np.full((), rows_of(labels, attributes), dtype)

    def run(x: Array, numbers: Array, out: Array) -> None:
        if not x.flags.c_contiguous:
            cross_entropy_kernel(np, (x, numbers), (out,), attributes)
            return
        index = index_of(numbers)
        shifted = shifted_by_maximum(x, None)
        picked = shifted.take(index)
        losses = _SUM(np.exp(shifted, shifted), -1, dtype)
        np.maximum(losses, one, out=losses)
        np.log(losses, losses)
        np.subtract(losses, picked, losses)
        np.divide(_SUM(losses, None), count, out)

    return run


def cross_entropy_grad_direct(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> BoundKernel | None:
    """A kernel for few rows, None for more. For rows that are not packed, it calls the general kernel."""
    logits, labels = tensor_metas(metas)
    if not _are_few(labels):
        return None
    index_of = _index_of_labels(labels, logits.shape[-1])
    shifted_by_maximum, dtype = _shift(logits), working_dtype(logits.dtype)
    one, label = np.ones((), dtype), np.ones((), logits.dtype)
    with np.errstate(over="ignore"):
        factor = np.full((), attributes["scale"] / rows_of(labels, attributes), logits.dtype)

    def run(x: Array, numbers: Array, out: Array) -> None:
        if not (x.flags.c_contiguous and out.flags.c_contiguous):
            cross_entropy_grad_kernel(np, (x, numbers), (out,), attributes)
            return
        index = index_of(numbers)
        shifted_by_maximum(x, out)
        np.exp(out, out)
        totals = _SUM(out, -1, dtype, None, True)
        np.maximum(totals, one, out=totals)
        np.divide(out, totals, out)
        flat = out.reshape(-1)
        picked = flat.take(index)
        flat[index] = np.subtract(picked, label, picked)
        np.multiply(out, factor, out)

    return run


def _are_few(labels: Meta) -> bool:
    """Whether there is a direct kernel. There is none for uint64, whose sum with an index is a float."""
    return labels.ndim > 0 and 0 < labels.size <= MAX_DIRECT_LABELS and labels.dtype != np.uint64


def _index_of_labels(labels: Meta, classes: int) -> Callable[[Array], Array]:
    """A function that returns the index of each label's logit among all packed logits, and raises as `in_range`
    does."""
    starts = np.arange(0, labels.size * classes, classes).reshape(labels.shape)
    unsigned, bits = np.dtype(f"u{labels.dtype.itemsize}"), 8 * labels.dtype.itemsize
    beyond = min(classes, 1 << (bits - (labels.dtype.kind == "i")))  # as unsigned, negative labels are at least that

    def index_of(numbers: Array) -> Array:
        if int(_MAXIMUM(numbers.view(unsigned), None)) >= beyond:
            in_range(np, numbers, classes, "labels")
        return np.add(starts, numbers)

    return index_of


def _shift(logits: Meta) -> Shift:
    """A function that computes `softmax.shift` for packed rows."""
    lowest = float(np.finfo(logits.dtype.name).min)
    length, shape = logits.shape[-1], (*logits.shape[:-1], 1)

    def by_columns(x: Array, out: Array | None) -> Array:
        columns = x.reshape(-1, length).T.copy()
        return np.subtract(x, _MAXIMUM(columns, 0, None, None, False, lowest).reshape(shape), out)

    def by_rows(x: Array, out: Array | None) -> Array:
        maximum = _MAXIMUM(x, -1, None, None, True)
        np.maximum(maximum, lowest, out=maximum)
        return np.subtract(x, maximum, out)

    return by_columns if in_columns(length, logits.size, logits.nbytes) else by_rows
