"""Ops that work along some axes and leave the others alone, reductions, and axes in another order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...layouts.layout import Split
from ...layouts.matching import Exact, Labels, combines, matching
from ...layouts.rules import LayoutSignature, Localise, OpCall, Rule
from ...types.meta import Meta, Shape, normal_axes, normal_axis, tensor

# The axes along which an op works, from the first operand and the attributes.
Worked: TypeAlias = Callable[[Meta, Mapping[str, Any]], Collection[int]]
# Which signatures of a call on so many devices are exact.
IsExact: TypeAlias = Callable[[OpCall, int], Exact]


def always(_call: OpCall, _parts: int) -> Exact:
    """All of them."""
    return True


def on_axis(x: Meta, attributes: Mapping[str, Any]) -> Collection[int]:
    """The axes of the attribute `axis`."""
    return normal_axes(attributes["axis"], x.ndim)


def on_axes(x: Meta, attributes: Mapping[str, Any]) -> Collection[int]:
    """The axes of the attribute `axes`."""
    return normal_axes(attributes["axes"], x.ndim)


def beside(worked: Worked = on_axis, exact: IsExact = always) -> Rule:
    """Of an op whose tensors all have the axes of the first one: those along which it does not work are split."""

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        labels = unworked(call, worked)
        given = [labels if isinstance(meta, Meta) else () for meta in call.metas]
        return matching(call, given, [labels] * len(call.outputs), exact=exact(call, parts))

    return rule


def unworked(call: OpCall, worked: Worked) -> Labels:
    """The axes of the first operand, with None for those along which the op works."""
    x = tensor(call.metas)
    axes = worked(x, call.attributes)
    return [None if axis in axes else axis for axis in range(x.ndim)]


def of_sums(call: OpCall, parts: int) -> Exact:
    """Of ops that add floats up along `axis`: NumPy's order of summation depends on how an array lies in memory.

    Along the last axes a packed row is summed by itself, whatever lies beside it; along others rows are added to rows,
    unless a piece is one element wide, and so packed the other way. Where elements are cast, buffers end anywhere.
    """
    x = tensor(call.metas)
    axes = set(normal_axes(call.attributes["axis"], x.ndim))
    rows = x.ndim - len(axes) if axes == set(range(x.ndim - len(axes), x.ndim)) else 0
    cast = x.dtype == np.float16 or any(out is None or out.dtype != x.dtype for out in call.outputs)

    def exact(label: Hashable) -> bool:
        return not cast and isinstance(label, int) and (label < rows or x.shape[label] // parts > 1)

    return exact


def reduction(
    combined: str | None, *, adds: bool = False, empty: bool = True, localise: Localise | None = None
) -> Rule:
    """Of a reduction along `axis`. Kept axes are split; of split ones that are reduced, parts are `combined`.

    `adds`: does the order matter in which floats are combined, as in `of_sums`? `empty`: has nothing a value?
    """

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        x, out = tensor(call.metas), call.outputs[0]
        axes = normal_axes(call.attributes["axis"], x.ndim)
        kept = kept_labels(x.ndim, axes, keepdims=call.attributes["keepdims"])
        rounds = out is None or out.dtype.kind in "fc"
        by_rows = of_sums(call, parts) if adds and rounds else True

        def exact(label: Hashable) -> bool:
            return not rounds if label in axes else by_rows(label) if callable(by_rows) else by_rows

        for one in matching(call, [range(x.ndim)], [kept], reduction=_of(combined, out), exact=exact):
            (atom,) = one.inputs
            if not isinstance(atom, Split) or atom.axis not in axes:
                yield one
            elif empty or x.shape[atom.axis] >= parts:
                yield one._replace(localise=localise)

    return rule


def kept_labels(ndim: int, axes: Collection[int], *, keepdims: bool) -> Labels:
    """The axes of a reduction's result by those of its operand."""
    return [None if axis in axes else axis for axis in range(ndim) if keepdims or axis not in axes]


def _of(combined: str | None, out: Meta | None) -> str | None:
    """What parts are combined by, if that is defined for their dtype."""
    return combined if combined is not None and out is not None and combines(out.dtype, combined) else None


def reordered(axes_of: Callable[[Shape, Mapping[str, Any]], Sequence[int | None]]) -> Rule:
    """Of a view whose axis i is axis axes_of(...)[i] of x, or a new one."""

    def rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
        x = tensor(call.metas)
        return matching(call, [range(x.ndim)], [axes_of(x.shape, call.attributes)])

    return rule


def joined(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of `concat`: all axes but that one; without an axis, none."""
    axis = call.attributes["axis"]
    if axis is not None:
        yield from beside(lambda x, _: (normal_axis(axis, x.ndim),))(call, _parts)


def side_by_side(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of `stack`: the axes of the operands, of which the result has one more."""
    x = tensor(call.metas)
    axis = normal_axis(call.attributes["axis"], x.ndim + 1)
    labels: list[int | None] = list(range(x.ndim))
    return matching(call, [labels] * len(call.metas), [[*labels[:axis], None, *labels[axis:]]])


def drop_named(axes_of: Callable[[Shape, Mapping[str, Any]], Sequence[int | None]]) -> Rule:
    """Of `squeeze`: the dropped axes are named, since a share may have others of size one."""

    def localise(whole: OpCall, piece: OpCall, _place: int) -> Mapping[str, Any]:
        x = tensor(whole.metas)
        kept = axes_of(x.shape, whole.attributes)
        return {**piece.attributes, "axis": tuple(axis for axis in range(x.ndim) if axis not in kept)}

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        for one in reordered(axes_of)(call, parts):
            yield one._replace(localise=localise)

    return rule
