"""Dropout. Counter-based (Philox): which elements stay depends on seed, shape and rate, not on device, dtype or order.

So the gradient is the same op with the same seed, and no mask has to be kept between the two passes. The numbers are
drawn on the host, as those of `random` are, so that all devices agree. Of a share, whose attributes say where it lies
in the whole, the numbers are those that the whole has there.
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
from ...types.meta import Meta, Metas, Shape, tensor
from ..elementwise import slow_work
from ..random import Host, check_seed
from ..rules.stacks import pointwise
from .kernels import fill_masked

_BLOCK: Final = (
    1 << 14
)  # numbers: rows of a share that begin in one block are drawn at once, with what lies between them
_OF_PHILOX: Final = 8  # numbers of float32 for each value of its counter


def check_rate(value: Any) -> float:
    """A number in [0, 1]."""
    rate = check_float(value)
    if not 0 <= rate <= 1:
        raise ValueError(f"a rate is in [0, 1], not {rate}")
    return rate


def infer_dropout(metas: Metas, attributes: Attributes) -> OutputMetas:
    """A tensor, and a seed, which is a Python int; the result has the tensor's meta."""
    x, seed = tensor(metas[:1]), metas[1]
    if seed is not int:
        raise TypeError("the seed has to be a Python int")
    check_place(x.shape, attributes["whole"], attributes["begin"])
    return (x,)


def check_place(shape: Shape, whole: Shape | None, begin: Shape | None) -> None:
    """ValueError unless a share of that shape lies in the whole."""
    if whole is None and begin is None:
        return
    if whole is None or begin is None or not len(whole) == len(begin) == len(shape):
        raise ValueError(f"a share of shape {shape} begins at {begin} of {whole}: each has as many dimensions")
    Meta.of(whole, np.dtype(np.float32))  # refuses what is too large
    if any(first + size > all_ for first, size, all_ in zip(begin, shape, whole, strict=True)):
        raise ValueError(f"a share of shape {shape} that begins at {begin} is not inside of {whole}")


def dropout_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """A draw for each element, and more than one pass; of a share each row may take a draw of a block."""
    shape, whole = tensor(metas[:1]).shape, attributes["whole"]
    rows = 0 if whole is None else prod(shape[: row_axis(shape, whole)])
    return 2 * slow_work(metas, outputs, attributes) + rows * _BLOCK


def dropout_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Dropped elements are 0, also where x is infinite or NaN."""
    (x, seed), rate = inputs, attributes["rate"]
    check_seed(seed, (), {})
    kept = xp.asarray(drawn(seed, x.shape, attributes["whole"], attributes["begin"]) >= rate)
    fill_masked(xp, x * (0 if rate == 1 else 1 / (1 - rate)), kept, outputs[0])


def drawn(seed: int, shape: Shape, whole: Shape | None, begin: Shape | None) -> Host:
    """The numbers at the places of a share, in the order of the whole; of the whole if there is no share."""
    source = np.random.Philox(seed)
    if whole is None or begin is None or 0 in shape:
        return np.random.Generator(source).random(shape, dtype=np.float32)
    key = source.state["state"]["key"]
    starts, run = rows_of(shape, whole, begin)
    if len(starts) == 1:
        return numbers(key, int(starts[0]), run).reshape(shape)
    found, within, at = np.empty((len(starts), run), np.float32), np.arange(run), 0
    while at < len(starts):
        first = int(starts[at])
        end = at + int(np.searchsorted(starts[at:], first + _BLOCK))
        between = numbers(key, first, int(starts[end - 1]) - first + run)
        found[at:end] = between[(starts[at:end, None] - first) + within]
        at = end
    return found.reshape(shape)


def row_axis(shape: Shape, whole: Shape) -> int:
    """The first axis of the rows of a share, elements of which follow each other in the whole."""
    return max((n for n, size in enumerate(shape) if size != whole[n]), default=0)


def rows_of(shape: Shape, whole: Shape, begin: Shape) -> tuple[Any, int]:
    """Where the rows of a share begin in the order of the whole, and how long they are: as long as can be."""
    axis = row_axis(shape, whole)
    steps = [prod(whole[n + 1 :]) for n in range(axis + 1)]
    starts = np.full((1,), begin[axis] * steps[axis] if shape else 0, np.int64)
    for n in range(axis - 1, -1, -1):
        starts = ((begin[n] + np.arange(shape[n]))[:, None] * steps[n] + starts).reshape(-1)
    return starts, prod(shape[axis:])


def numbers(key: Any, first: int, count: int) -> Host:
    """So many numbers of a stream, from one of them on."""
    counter, skipped = divmod(first, _OF_PHILOX)
    source = np.random.Generator(np.random.Philox(key=key, counter=counter))
    return source.random(skipped + count, dtype=np.float32)[skipped:]


def dropout_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The numbers and the mask, and the product; of a share also where rows begin, and what is between them."""
    of_share = 0 if attributes["whole"] is None else 24
    blocks = 20 * _BLOCK if of_share else 0
    return scratch(operands=2, elements=5 + of_share)(metas, outputs, attributes) + blocks


def split_anywhere(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """As elementwise ops, of shares that know where they lie."""
    for one in pointwise(call, parts):
        for atom in one.inputs[:1]:
            if isinstance(atom, Split):
                yield one._replace(localise=partial(placed, atom.axis, parts))


def placed(axis: int, parts: int, whole: OpCall, piece: OpCall, place: int) -> Mapping[str, Any]:
    """The attributes with the place of a share in the whole."""
    shape, given = tensor(whole.metas[:1]).shape, whole.attributes
    begin = list((0,) * len(shape) if given["begin"] is None else given["begin"])
    begin[axis] += cuts(shape[axis], parts)[place][0]
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
    layouts=split_anywhere,
)
