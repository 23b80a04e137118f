"""The rows of attention as one launch each: masked scores to shares, and the gradient of that (`row_source`).

cuBLAS computes the products. Between them CuPy needs up to eight launches: the mask, later positions, softmax. Here a
block of threads computes a row of the scores in place: a key that is masked has the score -inf, and the rest is that of
`softmax`, in the same order. A mask is read in place, with any broadcasting.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ...interpreter.ops.nn import attention
from ...interpreter.schema.opdef import Array, BoundKernel
from ..device import KernelCall
from .loops import HEADERS, NAMES
from .row_kernels import MOST_BLOCKS, threads_for
from .row_source import COMMON, EACH, LOWEST, MOST_THREADS, SHIFTED, row_source
from .sources import Sources

OPS: Final = {
    "scaled_dot_product_attention": attention.attention_kernel,
    "scaled_dot_product_attention_grad": attention.attention_grad_kernel,
}
AXES: Final = 3  # of the scores, besides the keys; CuPy computes scores with more
# Rows and keys; sizes of the second and the third axis; strides of the mask; the number of later keys that a query
# sees.
NUMBERS: Final = ("rows", "width", "n1", "n2", "s0", "s1", "s2", "s3", "ahead")


def attention_source(dtype: str, mask: str) -> str:
    """The source for scores of that dtype and a mask of that dtype; "": no mask."""
    real, of_mask = NAMES[dtype], NAMES[mask or "bool"]
    taken = {"": "x[i]", "bool": "m[i * s3] ? x[i] : none"}.get(mask, "x[i] + m[i * s3]")
    numbers = ", ".join(f"const long long {name}" for name in NUMBERS)
    return f"""{HEADERS}typedef {real} T;
{COMMON}extern "C" __global__ void shares({real}* scores, const {of_mask}* mask, {numbers}) {{
    __shared__ T found[{MOST_THREADS}];
    const T lowest = {LOWEST[dtype]};
    const T none = log((T)0);
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {{
        const long long query = row % n2;
        const {of_mask}* m = mask + row / n2 / n1 * s0 + row / n2 % n1 * s1 + query * s2;
        T* x = scores + row * width;
        {EACH} x[i] = i > query + ahead ? none : {taken};
        {SHIFTED.replace("EACH", EACH)}
        {EACH} x[i] = exp(x[i] - most) / sum;
    }}
}}
"""


def attention_kernel(sources: Sources, cupy: Any, call: KernelCall) -> BoundKernel | None:
    """The op's kernel with rows computed here; None for another op."""
    kernel = OPS.get(call.op.name)
    if kernel is None:
        return None
    op = replace(call.op, kernel=partial(kernel, rows=AttentionRows(sources, cupy)))
    return op.bind(cupy, len(call.metas), call.attributes, aliased=call.in_place)


class AttentionRows(attention.Rows):
    """Computes rows by one launch each if operands are packed, have few axes, and are float32 or float64; others as
    CuPy does."""

    def __init__(self, sources: Sources, xp: Any) -> None:
        super().__init__(xp)
        self._sources = sources

    def shares(self, scores: Array, mask: Array | None, start: int | None) -> Array:
        kind = "" if mask is None else mask.dtype.name
        fits = scores.ndim <= AXES + 1 and kind in {"", "bool", scores.dtype.name}
        function = self._function(scores, attention_source, "shares", kind) if fits else None
        if function is None:
            return super().shares(scores, mask, start)
        *leading, width = scores.shape
        absent = AXES - len(leading)
        _, middle, queries = [1] * absent + leading
        strides = [0] * (AXES + 1) if mask is None else [0] * absent + steps(mask)
        ahead = width if start is None else start
        numbers = (math.prod(leading), width, middle, queries, *strides, ahead)
        form = (min(math.prod(leading), MOST_BLOCKS),), (threads_for(width),)
        function(*form, (scores, scores if mask is None else mask, *map(np.int64, numbers)))
        return scores

    def gradient(self, dshares: Array, shares: Array) -> None:
        packed = dshares._c_contiguous and shares._c_contiguous  # noqa: SLF001 - `flags` makes an object at each call
        function = self._function(dshares, gradient_source, "rows") if packed else None
        if function is None:
            super().gradient(dshares, shares)
            return
        width, rows = dshares.shape[-1], math.prod(dshares.shape[:-1])
        numbers = dshares.dtype.type(0), np.int64(rows), np.int64(width)
        function((min(rows, MOST_BLOCKS),), (threads_for(width),), (dshares, shares, dshares, *numbers))

    def _function(self, array: Array, source: Any, name: str, *more: str) -> Any:
        """The compiled kernel of a source, for a packed array; None if there is none."""
        if array.dtype.name not in LOWEST or not array.size or not array._c_contiguous:  # noqa: SLF001 - as above
            return None
        text = source(array.dtype.name, *more)
        functions = self._sources.now(sha256(text.encode()).hexdigest(), text, (name,))
        return None if functions is None else functions[0]


def gradient_source(dtype: str) -> str:
    """The source of `softmax_grad`."""
    return row_source("softmax_grad", 2, dtype)


def steps(array: Array) -> list[int]:
    """The strides of an array, in elements."""
    return [stride // array.dtype.itemsize for stride in array.strides]
