"""Scaled dot-product attention and its gradients, computed for one block of queries after another.

Softmax needs whole rows of scores, but only one at a time: the rows of a block of queries are computed, used and
discarded, so that memory does not grow with the square of the sequence's length. The gradients compute the rows
again. Source: Vaswani et al., Attention is all you need (NeurIPS 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ...schema.attributes import check_bool, check_float, optional
from ...schema.opdef import VARIADIC, Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ...schema.promotion import broadcast_shapes, working_dtype
from ...schema.scratch import working_size
from ...types import kinds
from ...types.meta import Meta, Metas, tensor_metas
from ..elementwise import TRANSCENDENTAL_COST
from ..linalg import BLAS_SPEED
from ..rules.networks import attention_gradient_rule, attention_rule
from .blocks import block_bytes, parts
from .operands import one_dtype
from .softmax import softmax_grad_kernel, softmax_kernel

OPERANDS = ("q", "k", "v", "mask")
GRADIENT_OPERANDS = ("dy", "q", "k", "v", "mask")
_ALONG_KEYS = {"axis": -1}

Batch: TypeAlias = tuple[slice, ...]  # of the first axis, if there is one before the last two

# --- infer


def _check_mask(mask: Meta, q: Meta, k: Meta) -> None:
    if mask.dtype.kind != "b" and mask.dtype != q.dtype:
        raise TypeError(f"the mask must be bool or {q.dtype.name}, not {mask.dtype.name}")
    scores = (*q.shape[:-1], k.shape[-2])
    if broadcast_shapes((mask.shape, scores)) != scores:
        raise ValueError(f"the mask's shape {mask.shape} does not broadcast to {scores}")


def _result(q: Meta, k: Meta, v: Meta, mask: Sequence[Meta]) -> Meta:
    """The meta of the result: q [..., l, d], k [..., s, d] and v [..., s, e] with equal leading axes give [..., l,
    e]."""
    if min(q.ndim, k.ndim, v.ndim) < 2 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"expected q [..., l, d], k [..., s, d], v [..., s, e], got {q.shape}, {k.shape}, {v.shape}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"queries have {q.shape[-1]} elements, but keys have {k.shape[-1]}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"there are {k.shape[-2]} keys, but {v.shape[-2]} values")
    if mask:
        _check_mask(mask[0], q, k)
    return Meta.of((*q.shape[:-1], v.shape[-1]), q.dtype)


def infer_attention(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """q, k and v must have one dtype. A mask must be bool or of that dtype, and broadcast to the scores [..., l, s]."""
    q, k, v = one_dtype(metas[:3], OPERANDS)
    return (_result(q, k, v, tensor_metas(metas[3:])),)


def infer_attention_grad(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """dy must have the meta of the result. The gradients have the metas of q, k and v."""
    dy, q, k, v = one_dtype(metas[:4], GRADIENT_OPERANDS)
    result = _result(q, k, v, tensor_metas(metas[4:]))
    if dy is not result:
        raise ValueError(f"dy is {dy}, but the result of the attention is {result}")
    return (q, k, v)


def attention_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Two products and a softmax of the scores; three times that for the gradients."""
    gradient = len(outputs) == 3
    q, k, v = tensor_metas(metas[1:4] if gradient else metas[:3])
    scores = math.prod(q.shape[:-1]) * k.shape[-2]
    products = scores * (q.shape[-1] + v.shape[-1]) // BLAS_SPEED
    return (products + scores * TRANSCENDENTAL_COST) * (3 if gradient else 1)


def attention_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Several copies of the scores of a block, and the queries, keys and values of a part of the batch."""
    gradient = len(outputs) == 3
    q, k, v = tensor_metas(metas[1:4] if gradient else metas[:3])
    size, inner = working_size(q.dtype), math.prod(q.shape[1:-2])
    row = size * inner * k.shape[-2]
    batch = block_bytes(q.shape[0], row * q.shape[-2]) // max(row * q.shape[-2], 1) if q.ndim > 2 else 1
    rows = block_bytes(q.shape[-2], row) * batch
    part = size * batch * (q.size + k.size + v.size) // max(q.shape[0] if q.ndim > 2 else 1, 1)
    return 3 * rows + (4 if gradient else 2) * part


# --- kernels


class ScoreRows:
    """The computation on rows of scores between the products. A device may replace it by its own kernels."""

    def __init__(self, xp: ArrayModule) -> None:
        self.xp = xp

    def weights(self, scores: Array, mask: Array | None, start: int | None) -> Array:
        """Softmax of the scores, possibly in their memory: 0 for masked keys, even if all keys are masked.

        `start`: the position of the first query among the keys, for causal attention, in which a query sees no later
        key; None otherwise.
        """
        xp = self.xp
        if mask is not None:
            scores = xp.where(mask, scores, -math.inf) if mask.dtype.kind == "b" else scores + mask
        if start is not None:
            queries = xp.arange(start, start + scores.shape[-2])
            scores = xp.where(xp.arange(scores.shape[-1]) <= queries[:, None], scores, -math.inf)
        softmax_kernel(xp, (scores,), (scores,), _ALONG_KEYS)
        return scores

    def gradient(self, dweights: Array, weights: Array) -> None:
        """Overwrite `dweights`, the gradients of the weights, with the gradients of the scores."""
        softmax_grad_kernel(self.xp, (dweights, weights), (dweights,), _ALONG_KEYS)


class Attention(NamedTuple):
    """A call, and its division into blocks. The mask is broadcast to the scores, which takes no memory."""

    xp: ArrayModule
    by: ScoreRows
    q: Array
    k: Array
    v: Array
    mask: Array | None
    scale: float
    causal: bool

    @classmethod
    def of(cls, xp: ArrayModule, operands: Arrays, attributes: Attributes, rows: ScoreRows | None) -> Attention:
        """The call with operands q, k, v and an optional mask.

        `rows`: the device's own computation of rows, if it has one.
        """
        q, k, v, *mask = operands
        scale = attributes["scale"]
        if scale is None:
            scale = 1 / math.sqrt(max(q.shape[-1], 1))
        spread = xp.broadcast_to(mask[0], (*q.shape[:-1], k.shape[-2])) if mask else None
        return cls(xp, rows or ScoreRows(xp), q, k, v, spread, scale, attributes["is_causal"])

    def batches(self) -> list[Batch]:
        """Slices of the first axis, each of as many elements as have scores that fit in a block, at least one."""
        if self.q.ndim == 2:
            return [()]
        return [(part,) for part in parts(self.xp, self.q.shape[0], self._row_bytes() * self.q.shape[-2])]

    def rows(self) -> list[slice]:
        """Slices of the queries: all queries at once if the scores of one batch element fit in a block."""
        return parts(self.xp, self.q.shape[-2], self._row_bytes())

    def _row_bytes(self) -> int:
        """The bytes of the scores of one query, over all axes between the first and the last two."""
        inner: int = math.prod(self.q.shape[1:-2])
        return inner * int(self.k.shape[-2]) * working_dtype(self.q.dtype).itemsize

    def part(self, array: Array, batch: Batch, rows: slice = slice(None)) -> Array:
        """Rows of a part of the batch, in the working dtype."""
        return array[(*batch, ..., rows, slice(None))].astype(working_dtype(self.q.dtype), copy=False)

    def weights(self, queries: Array, keys: Array, batch: Batch, rows: slice) -> Array:
        """The weights of the keys for these scaled queries."""
        scores = self.xp.matmul(queries, keys.swapaxes(-1, -2))
        mask = None if self.mask is None else self.mask[(*batch, ..., rows, slice(None))]
        return self.by.weights(scores, mask, rows.start if self.causal else None)


def attention_kernel(
    xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes, rows: ScoreRows | None = None
) -> None:
    """softmax(q @ k.T * scale) @ v."""
    call = Attention.of(xp, inputs, attributes, rows)
    for batch in call.batches():
        keys, values = call.part(call.k, batch), call.part(call.v, batch)
        for block in call.rows():
            queries = call.part(call.q, batch, block) * call.scale
            outputs[0][(*batch, ..., block, slice(None))] = xp.matmul(call.weights(queries, keys, batch, block), values)


def attention_grad_kernel(
    xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes, rows: ScoreRows | None = None
) -> None:
    """dq, dk and dv; the mask has no gradient."""
    dy, *operands = inputs
    if dy.size == 0:
        for out in outputs:
            out[...] = 0
        return
    call = Attention.of(xp, operands, attributes, rows)
    for batch in call.batches():
        keys, values = call.part(call.k, batch), call.part(call.v, batch)
        dkeys, dvalues = xp.zeros_like(keys), xp.zeros_like(values)
        for block in call.rows():
            queries = call.part(call.q, batch, block) * call.scale
            gradient = call.part(dy, batch, block)
            weights = call.weights(queries, keys, batch, block)
            dvalues += xp.matmul(weights.swapaxes(-1, -2), gradient)
            dweights = xp.matmul(gradient, values.swapaxes(-1, -2))
            call.by.gradient(dweights, weights)
            dkeys += xp.matmul(dweights.swapaxes(-1, -2), queries)
            outputs[0][(*batch, ..., block, slice(None))] = xp.matmul(dweights, keys) * call.scale
        outputs[1][batch] = dkeys
        outputs[2][batch] = dvalues


# --- the table

_ATTRIBUTES = (
    Attribute("is_causal", check_bool, default=False),
    Attribute("scale", optional(check_float), None),
)
_MASK_DTYPES = kinds.REAL_FLOATING | kinds.BOOLEAN

define(
    name="scaled_dot_product_attention",
    inputs=VARIADIC,
    least=3,
    infer=infer_attention,
    summary=(
        "softmax(q @ k.T * scale + mask) @ v: (q, k, v[, mask]); a bool mask is True where a key takes part, "
        "`is_causal` lets a query see no later key."
    ),
    operands=OPERANDS,
    dtypes=(kinds.REAL_FLOATING, kinds.REAL_FLOATING, kinds.REAL_FLOATING, _MASK_DTYPES),
    attributes=_ATTRIBUTES,
    kernel=attention_kernel,
    scratch=attention_scratch,
    work=attention_work,
    layouts=attention_rule,
)
define(
    name="scaled_dot_product_attention_grad",
    inputs=VARIADIC,
    least=4,
    infer=infer_attention_grad,
    summary="Gradients of scaled_dot_product_attention by q, k and v: (dy, q, k, v[, mask]).",
    operands=GRADIENT_OPERANDS,
    dtypes=(kinds.REAL_FLOATING, kinds.REAL_FLOATING, kinds.REAL_FLOATING, kinds.REAL_FLOATING, _MASK_DTYPES),
    outputs=3,
    attributes=_ATTRIBUTES,
    kernel=attention_grad_kernel,
    scratch=attention_scratch,
    work=attention_work,
    layouts=attention_gradient_rule,
)
