"""Generated kernels for the rows of attention: from scores to attention weights, and the gradient of that step, with
one launch each (`row_source`).

cuBLAS computes the products. Between them CuPy needs up to eight launches: for the mask, the causal mask, and softmax.
Here a block of threads computes a row in place: a masked key gets the score -inf, and softmax of the row follows, with
the order of summation of the `softmax` kernel. The mask may have any strides, so a broadcast mask is not copied.
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
from .row_kernels import MAX_BLOCKS, threads_for
from .row_source import COMMON, EACH, LOWEST, MAX_THREADS, SHIFTED, row_source
from .sources import Sources

OPS: Final = {
    "scaled_dot_product_attention": attention.attention_kernel,
    "scaled_dot_product_attention_grad": attention.attention_grad_kernel,
}
MAX_LEADING_AXES: Final = 3  # the most axes of the scores before that of the keys; CuPy computes scores with more
# The kernel's parameters: the numbers of rows and of keys; the sizes of the second and third axis; the strides of the
# mask, in elements; the causal offset: query n sees the keys up to n + ahead.
NUMBER_PARAMETERS: Final = ("rows", "width", "n1", "n2", "s0", "s1", "s2", "s3", "ahead")


def attention_source(dtype: str, mask: str) -> str:
    """The source for scores and a mask of these dtypes; "": no mask."""
    real, of_mask = NAMES[dtype], NAMES[mask or "bool"]
    taken = {"": "x[i]", "bool": "m[i * s3] ? x[i] : none"}.get(mask, "x[i] + m[i * s3]")
    numbers = ", ".join(f"const long long {name}" for name in NUMBER_PARAMETERS)
    return f"""{HEADERS}typedef {real} T;
{COMMON}extern "C" __global__ void weights({real}* scores, const {of_mask}* mask, {numbers}) {{
    __shared__ T partials[{MAX_THREADS}];
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
    """The op's kernel with `AttentionRows`; None for another op."""
    kernel = OPS.get(call.op.name)
    if kernel is None:
        return None
    op = replace(call.op, kernel=partial(kernel, rows=AttentionRows(sources, cupy)))
    return op.bind(cupy, len(call.metas), call.attributes, aliased=call.in_place)


class AttentionRows(attention.ScoreRows):
    """Computes rows by one launch if the operands are packed, have few axes, and are float32 or float64; otherwise by
    CuPy."""

    def __init__(self, sources: Sources, xp: Any) -> None:
        super().__init__(xp)
        self._sources = sources

    def weights(self, scores: Array, mask: Array | None, start: int | None) -> Array:
        of_mask = "" if mask is None else mask.dtype.name
        fits = scores.ndim <= MAX_LEADING_AXES + 1 and of_mask in {"", "bool", scores.dtype.name}
        function = self._function(scores, attention_source, "weights", of_mask) if fits else None
        if function is None:
            return super().weights(scores, mask, start)
        *leading, width = scores.shape
        missing = MAX_LEADING_AXES - len(leading)
        _, middle, queries = [1] * missing + leading
        strides = [0] * (MAX_LEADING_AXES + 1) if mask is None else [0] * missing + element_strides(mask)
        ahead = width if start is None else start
        numbers = (math.prod(leading), width, middle, queries, *strides, ahead)
        grid, block = (min(math.prod(leading), MAX_BLOCKS),), (threads_for(width),)
        function(grid, block, (scores, scores if mask is None else mask, *map(np.int64, numbers)))
        return scores

    def gradient(self, dweights: Array, weights: Array) -> None:
        packed = dweights._c_contiguous and weights._c_contiguous  # noqa: SLF001 - `flags` makes an object at each call
        function = self._function(dweights, gradient_source, "rows") if packed else None
        if function is None:
            super().gradient(dweights, weights)
            return
        width, rows = dweights.shape[-1], math.prod(dweights.shape[:-1])
        numbers = dweights.dtype.type(0), np.int64(rows), np.int64(width)
        function((min(rows, MAX_BLOCKS),), (threads_for(width),), (dweights, weights, dweights, *numbers))

    def _function(self, array: Array, source: Any, name: str, *more: str) -> Any:
        """The compiled kernel of a source, for a packed array; None if there is none."""
        if array.dtype.name not in LOWEST or not array.size or not array._c_contiguous:  # noqa: SLF001 - as above
            return None
        text = source(array.dtype.name, *more)
        functions = self._sources.compile_now(sha256(text.encode()).hexdigest(), text, (name,))
        return None if functions is None else functions[0]


def gradient_source(dtype: str) -> str:
    """The source of `softmax_grad`."""
    return row_source("softmax_grad", 2, dtype)


def element_strides(array: Array) -> list[int]:
    """The strides of an array, in elements."""
    return [stride // array.dtype.itemsize for stride in array.strides]
