"""Einstein summation. The shape of the result is inferred here; the array module computes the sums.

Each axis has a label: a letter of the subscripts, or, for an axis that "..." stands for, a number that counts from the
back. Axes with the same label have the same size, or size one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ..layouts.rules import LayoutSignature, OpCall
from ..schema.opdef import VARIADIC, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import promote
from ..schema.scratch import largest
from ..types.meta import Meta, Metas, tensor_metas
from .linalg import product_work
from .rules.products import product_signatures

MAX_SUBSCRIPTS_LENGTH = 512  # characters of the subscripts
MAX_OPERANDS = 32  # operands; every version of NumPy takes as many

Label: TypeAlias = str | int


class Subscripts(NamedTuple):
    """The labels of each operand's axes, and those of the result's."""

    operands: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]


def check_subscripts(value: Any) -> str:
    """Subscripts such as "ij,jk->ik", without spaces."""
    if not isinstance(value, str):
        raise TypeError(f"expected a str such as 'ij,jk->ik', got {type(value).__name__}")
    text = value.replace(" ", "")
    if len(text) > MAX_SUBSCRIPTS_LENGTH:
        raise ValueError(f"the subscripts have {len(text)} characters; at most {MAX_SUBSCRIPTS_LENGTH} are possible")
    left, arrow, right = text.partition("->")
    for part in (*left.split(","), right):
        letters = part.replace("...", "", 1)
        if not all(c.isascii() and c.isalpha() for c in letters):
            raise ValueError(f"{value[:60]!r} may contain only letters, ',', '...' and one '->'")
    if arrow and len(set(right.replace("...", ""))) < len(right.replace("...", "")):
        raise ValueError(f"the result of {value[:60]!r} names an axis twice")
    return text


@lru_cache(maxsize=1024)
def parse(text: str, ndims: tuple[int, ...]) -> Subscripts:
    """The labels for operands of `ndims` dimensions. ValueError if the subscripts do not match the operands."""
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        raise ValueError(f"the subscripts are for {len(parts)} operands, not {len(ndims)}")
    operands = tuple(_labels(part, ndim) for part, ndim in zip(parts, ndims, strict=True))
    flat = [label for labels in operands for label in labels]
    dots = tuple(sorted({label for label in flat if isinstance(label, int)}))
    if not arrow:
        letters = sorted({label for label in flat if isinstance(label, str)})
        return Subscripts(operands, (*dots, *(label for label in letters if flat.count(label) == 1)))
    missing = next((label for label in right.replace("...", "") if label not in flat), None)
    if missing is not None:
        raise ValueError(f"the axis {missing!r} of the result is not an axis of an operand")
    if dots and "..." not in right:
        raise ValueError("the operands have '...', but the result does not")
    before, _, behind = right.partition("...")
    return Subscripts(operands, (*before, *(dots if "..." in right else ()), *behind))


def _labels(part: str, ndim: int) -> tuple[Label, ...]:
    """The labels of one operand's axes."""
    before, dots, behind = part.partition("...")
    hidden = ndim - len(before) - len(behind)
    if hidden < 0 or (hidden and not dots):
        raise ValueError(f"{part!r} does not name the axes of an operand of {ndim} dimensions")
    return (*before, *range(-hidden, 0), *behind)


def sizes_of(subscripts: Subscripts, given: Sequence[Meta]) -> dict[Label, int]:
    """The size of each label.

    ValueError if axes with the same label differ in size, where size one is allowed only between different operands.
    """
    sizes: dict[Label, int] = {}
    for labels, meta in zip(subscripts.operands, given, strict=True):
        own: dict[Label, int] = {}
        for label, size in zip(labels, meta.shape, strict=True):
            if own.setdefault(label, size) != size:
                raise ValueError(f"axes {label!r} of shape {meta.shape} differ in size")
            known = sizes.get(label, 1)
            if known != size and 1 not in {known, size}:
                raise ValueError(f"axis {label!r} has the sizes {known} and {size}")
            sizes[label] = size if known == 1 else known
    return sizes


def _subscripts(given: Arrays, attributes: Attributes) -> Subscripts:
    return parse(attributes["subscripts"], tuple(each.ndim for each in given))


def infer_einsum(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The operands' dtypes must promote."""
    given = tensor_metas(metas)
    if len(given) > MAX_OPERANDS:
        raise ValueError(f"there are {len(given)} operands; at most {MAX_OPERANDS} are possible")
    subscripts = _subscripts(given, attributes)
    sizes = sizes_of(subscripts, given)
    return (Meta.of(tuple(sizes[label] for label in subscripts.output), promote(metas)),)


def einsum_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Multiplies two operands at a time, with a BLAS where that is possible; small operands are summed in one loop."""
    (out,) = outputs
    inputs = [x.astype(out.dtype, copy=False) for x in inputs]
    optimize = len(inputs) > 1 and out.dtype.kind in "fc" and max(x.size for x in inputs) > ONE_LOOP_ELEMENTS
    out[...] = xp.einsum(attributes["subscripts"], *inputs, optimize="greedy" if optimize or len(inputs) > 2 else False)


ONE_LOOP_ELEMENTS = 256  # elements of the largest operand up to which one loop is faster than planning the products


def einsum_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The operands in one dtype and in the axis order of a product, and the result before it is stored.

    With more than two operands also the intermediate products, which are no larger than the largest operand or
    result.
    """
    out = outputs[0]
    if out is None:
        return 0
    size = out.dtype.itemsize
    casts = sum(m.size for m in tensor_metas(metas) if m.dtype != out.dtype)
    partial = 2 * largest((*metas, out)) if len(metas) > 2 else 0
    copies = out.size + sum(m.size for m in tensor_metas(metas)) if len(metas) > 1 else 0
    return size * (casts + copies + partial)


def einsum_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """One multiplication for each point of the loop over all labels, at the speed of a BLAS if there are two or more
    operands."""
    given = tensor_metas(metas)
    sizes = sizes_of(_subscripts(given, attributes), given)
    count = math.prod(sizes.values())
    searching = 20_000 * len(given) * (len(given) > 1)  # for the order of the products
    return searching + (product_work(promote(metas), count) if len(given) > 1 else count)


def einsum_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: each label that no operand has twice may be split.

    An einsum that only reorders axes sums nothing, so it is exact.
    """
    subscripts = parse(call.attributes["subscripts"], tuple([meta.ndim for meta in tensor_metas(call.metas)]))
    moved = len(call.metas) == 1 and set(subscripts.output) == set(subscripts.operands[0])
    return product_signatures(call, subscripts.operands, [subscripts.output], exact=moved)


define(
    name="einsum",
    inputs=VARIADIC,
    infer=infer_einsum,
    summary="Sums of products over axes that `subscripts` names, such as 'ij,jk->ik'.",
    operands=("x",),
    attributes=(Attribute("subscripts", check_subscripts),),
    kernel=einsum_kernel,
    scratch=einsum_scratch,
    work=einsum_work,
    needs=("einsum",),
    layouts=einsum_rule,
)
