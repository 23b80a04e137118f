"""Embedding: rows of a table by their numbers, and the gradient of the table."""

from __future__ import annotations

import math

from ...schema.attributes import check_int
from ...schema.opdef import ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ...schema.promotion import working_dtype
from ...schema.scratch import in_working, scratch
from ...types import kinds
from ...types.meta import Meta, Metas, tensor_metas
from ..positions import check_gather, check_scatter, from_the_front
from ..rearranging import rows_at
from ..rules.combining import any_parts_of, chained
from ..rules.networks import embedding_gradient_rule, embedding_rule
from .blocks import block_bytes, parts

# Nanoseconds to add one element at its position, and the bytes of a position.
_SCATTER_COST, _POSITION_BYTES = 8, 8


def _check_rows(indices: Meta, rows: int) -> None:
    if indices.size and not rows:
        raise ValueError("there are no rows to look up")


def infer_embedding(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """indices [...] and weight [rows, *rest] give [..., *rest]."""
    indices, weight = tensor_metas(metas)
    if weight.ndim == 0:
        raise ValueError("weight is 0-d, so it has no rows")
    _check_rows(indices, weight.shape[0])
    return (Meta.of((*indices.shape, *weight.shape[1:]), weight.dtype),)


def infer_embedding_grad(metas: Metas, attributes: Attributes) -> OutputMetas:
    """dy [..., *rest] and indices [...] give [num_embeddings, *rest]."""
    dy, indices = tensor_metas(metas)
    if dy.shape[: indices.ndim] != indices.shape:
        raise ValueError(f"the shape of dy, {dy.shape}, does not begin with the shape of the indices, {indices.shape}")
    if attributes["num_embeddings"] < 0:
        raise ValueError(f"num_embeddings is negative: {attributes['num_embeddings']}")
    _check_rows(indices, attributes["num_embeddings"])
    return (Meta.of((attributes["num_embeddings"], *dy.shape[indices.ndim :]), dy.dtype),)


def embedding_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Checks of the row numbers, and copies of those rows only."""
    return metas[0].size + sum(m.size for m in outputs if m is not None) if isinstance(metas[0], Meta) else 0


def embedding_grad_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Zeros, then one addition for each element of dy."""
    return _SCATTER_COST * max(m.size for m in (*metas, *outputs) if isinstance(m, Meta))


def grad_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The sums, for one block the rows and their positions, and a packed copy of dy."""
    dy, indices = tensor_metas(metas)
    width = _POSITION_BYTES * max(dy.size // max(indices.size, 1), 1)
    return in_working(outputs[0]) + 3 * block_bytes(indices.size, width) + dy.nbytes


def embedding_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Copies the rows. IndexError for a row that does not exist; negative numbers do not count from the end."""
    indices, weight = inputs
    indices = from_the_front(xp, indices, weight.shape[0], "indices")
    if weight.flags.c_contiguous:
        check_gather(xp, 1, indices.size, math.prod(weight.shape[1:]))
        xp.take(weight, indices, axis=0, out=outputs[0])
    else:
        outputs[0][...] = rows_at(xp, weight, indices, 0)


def embedding_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Sums the rows of dy that have equal indices, in order on the host, in any order on a GPU.

    It works block by block, since positions take more memory than rows, and NumPy's `add.at` holds the interpreter
    lock.
    """
    (dy, indices), (out,) = inputs, outputs
    width = math.prod(out.shape[1:])
    indices = from_the_front(xp, indices, out.shape[0], "indices")
    if dy.size == 0:
        out[...] = 0
        return
    rows = dy.reshape(indices.size, width)
    check_scatter(xp, math.prod(out.shape), 1, 1)
    total = xp.zeros((out.shape[0], width), working_dtype(dy.dtype))
    for part in parts(xp, indices.size, width * _POSITION_BYTES):
        block, numbers = rows[part].astype(total.dtype), indices.reshape(-1)[part]
        if numbers.size == 1:
            total[numbers] += block
            continue
        positions = numbers[:, None].astype("int64") * width + xp.arange(width)
        xp.add.at(total.reshape(-1), positions.reshape(-1), block.reshape(-1))
    out[...] = total.reshape(out.shape)


define(
    name="embedding",
    inputs=2,
    infer=infer_embedding,
    summary="Rows of weight [rows, ...] by number: (indices, weight).",
    operands=("indices", "weight"),
    dtypes=(kinds.INTEGER, kinds.REAL_FLOATING),
    kernel=embedding_kernel,
    scratch=scratch(results=1),
    checks_data=True,
    checks_late=True,
    work=embedding_work,
    layouts=chained(embedding_rule, any_parts_of(1)),
    needs=("take",),
)
define(
    name="embedding_grad",
    inputs=2,
    infer=infer_embedding_grad,
    summary="Gradient of embedding by weight, which has `num_embeddings` rows: (dy, indices).",
    operands=("dy", "indices"),
    dtypes=(kinds.REAL_FLOATING, kinds.INTEGER),
    attributes=(Attribute("num_embeddings", check_int),),
    kernel=embedding_grad_kernel,
    scratch=grad_scratch,
    checks_data=True,
    checks_late=True,
    work=embedding_grad_work,
    layouts=embedding_gradient_rule,
    needs=("add.at",),
)
