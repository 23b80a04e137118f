"""Dropout. The generator is counter-based (Philox): the elements that are kept depend on seed, shape and rate, but
not on device, dtype or order.

So the gradient is the same op with the same seed, and no mask is saved between the two passes. The numbers are drawn on
the host, as in `random`, so that all devices agree. A part of a global tensor has attributes that say where it lies in
the whole; its numbers are the whole's numbers at those positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from ...layouts.layout import Split
from ...layouts.rules import LayoutSignature, OpCall
from ...layouts.shares import cuts
from ...schema.attributes import check_float, check_shape, optional
from ...schema.opdef import ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ...schema.scratch import scratch
from ...types import kinds
from ...types.meta import Meta, Metas, Shape, tensor_meta
from ..elementwise import slow_work
from ..random import Host, check_seed
from ..rules.stacks import pointwise
from .kernels import fill_masked

_BLOCK_NUMBERS: Final = (
    1 << 14
)  # numbers: rows of a part that begin in one block are drawn at once, with the numbers between them
_NUMBERS_PER_COUNT: Final = 8  # float32 numbers for each value of Philox's counter


def check_rate(value: Any) -> float:
    """A number in [0, 1]."""
    rate = check_float(value)
    if not 0 <= rate <= 1:
        raise ValueError(f"a rate must be in [0, 1], not {rate}")
    return rate


def infer_dropout(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x. The seed is a Python int."""
    x, seed = tensor_meta(metas[:1]), metas[1]
    if seed is not int:
        raise TypeError("the seed must be a Python int")
    check_part(x.shape, attributes["whole"], attributes["begin"])
    return (x,)


def check_part(shape: Shape, whole: Shape | None, begin: Shape | None) -> None:
    """Raise ValueError unless a part of that shape lies within the whole."""
    if whole is None and begin is None:
        return
    if whole is None or begin is None or not len(whole) == len(begin) == len(shape):
        raise ValueError(
            f"a part of shape {shape} that begins at {begin} of {whole}: the numbers of dimensions must be equal"
        )
    Meta.of(whole, np.dtype(np.float32))  # raises if the whole is too large
    if any(first + size > all_ for first, size, all_ in zip(begin, shape, whole, strict=True)):
        raise ValueError(f"a part of shape {shape} that begins at {begin} is not within {whole}")


def dropout_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """A draw and several passes for each element; for a part of a whole, each row may need a whole block of draws."""
    shape, whole = tensor_meta(metas[:1]).shape, attributes["whole"]
    rows = 0 if whole is None else prod(shape[: row_axis(shape, whole)])
    return 2 * slow_work(metas, outputs, attributes) + rows * _BLOCK_NUMBERS


def dropout_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """x / (1 - rate) with dropped elements set to 0, even if they are infinite or NaN."""
    (x, seed), rate = inputs, attributes["rate"]
    check_seed(seed, (), {})
    mask = xp.asarray(drawn(seed, x.shape, attributes["whole"], attributes["begin"]) >= rate)
    fill_masked(xp, x * (0 if rate == 1 else 1 / (1 - rate)), mask, outputs[0])


def drawn(seed: int, shape: Shape, whole: Shape | None, begin: Shape | None) -> Host:
    """The numbers of a part, which are the whole's numbers at its positions; all numbers if `whole` is None."""
    source = np.random.Philox(seed)
    if whole is None or begin is None or 0 in shape:
        return np.random.Generator(source).random(shape, dtype=np.float32)
    key = source.state["state"]["key"]
    starts, run = rows_of(shape, whole, begin)
    if len(starts) == 1:
        return numbers(key, int(starts[0]), run).reshape(shape)
    result, within, at = np.empty((len(starts), run), np.float32), np.arange(run), 0
    while at < len(starts):
        first = int(starts[at])
        end = at + int(np.searchsorted(starts[at:], first + _BLOCK_NUMBERS))
        between = numbers(key, first, int(starts[end - 1]) - first + run)
        result[at:end] = between[(starts[at:end, None] - first) + within]
        at = end
    return result.reshape(shape)


def row_axis(shape: Shape, whole: Shape) -> int:
    """The first axis of a part's rows. The elements of a row are contiguous in the whole."""
    return max((n for n, size in enumerate(shape) if size != whole[n]), default=0)


def rows_of(shape: Shape, whole: Shape, begin: Shape) -> tuple[Any, int]:
    """The positions in the whole at which the rows of a part begin, and the length of a row, which is as long as
    possible."""
    axis = row_axis(shape, whole)
    steps = [prod(whole[n + 1 :]) for n in range(axis + 1)]
    starts = np.full((1,), begin[axis] * steps[axis] if shape else 0, np.int64)
    for n in range(axis - 1, -1, -1):
        starts = ((begin[n] + np.arange(shape[n]))[:, None] * steps[n] + starts).reshape(-1)
    return starts, prod(shape[axis:])


def numbers(key: Any, first: int, count: int) -> Host:
    """`count` numbers of the stream `key`, from number `first` on."""
    counter, skipped = divmod(first, _NUMBERS_PER_COUNT)
    source = np.random.Generator(np.random.Philox(key=key, counter=counter))
    return source.random(skipped + count, dtype=np.float32)[skipped:]


def dropout_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The numbers, the mask and the product; for a part also the positions of its rows, and the numbers between
    them."""
    of_share = 0 if attributes["whole"] is None else 24
    blocks = 20 * _BLOCK_NUMBERS if of_share else 0
    return scratch(operands=2, elements=5 + of_share)(metas, outputs, attributes) + blocks


def dropout_rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: as for elementwise ops, but each part gets its position in the whole."""
    for one in pointwise(call, parts):
        for atom in one.inputs[:1]:
            if isinstance(atom, Split):
                yield one._replace(localise=partial(with_begin, atom.axis, parts))


def with_begin(axis: int, parts: int, whole: OpCall, piece: OpCall, part: int) -> Mapping[str, Any]:
    """The attributes on one device, with the position of its part in the whole."""
    shape, given = tensor_meta(whole.metas[:1]).shape, whole.attributes
    begin = list((0,) * len(shape) if given["begin"] is None else given["begin"])
    begin[axis] += cuts(shape[axis], parts)[part][0]
    return {**piece.attributes, "whole": shape if given["whole"] is None else given["whole"], "begin": tuple(begin)}


define(
    name="dropout",
    inputs=2,
    infer=infer_dropout,
    summary="Each element 0 with probability `rate`, else over 1 - rate: (x, seed). It is its own gradient.",
    operands=("x", "seed"),
    dtypes=(kinds.REAL_FLOATING, kinds.SCALAR),
    attributes=(
        Attribute("rate", check_rate),
        Attribute("whole", optional(check_shape), None),
        Attribute("begin", optional(check_shape), None),
    ),
    kernel=dropout_kernel,
    scratch=dropout_scratch,
    work=dropout_work,
    scalars=check_seed,
    layouts=dropout_rule,
)
