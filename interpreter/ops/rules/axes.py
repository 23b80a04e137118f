"""Layout rules of ops that work along some axes and leave the others alone, of reductions, and of ops that reorder
axes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...layouts.layout import Split
from ...layouts.matching import Exact, Labels, matching, reduction_is_defined
from ...layouts.rules import LayoutSignature, Localise, OpCall, Rule
from ...types.axes import normal_axes, normal_axis
from ...types.meta import Meta, Shape, tensor_meta

# Computes the axes along which an op works, from the first operand and the attributes.
Worked: TypeAlias = Callable[[Meta, Mapping[str, Any]], Collection[int]]
# Says which signatures of a call are exact (each part has the same bits as in the whole), given the number of devices.
IsExact: TypeAlias = Callable[[OpCall, int], Exact]


def always_exact(_call: OpCall, _parts: int) -> Exact:
    """Every signature is exact."""
    return True


def on_axis(x: Meta, attributes: Mapping[str, Any]) -> Collection[int]:
    """The axes of the attribute `axis`."""
    return normal_axes(attributes["axis"], x.ndim)


def on_axes(x: Meta, attributes: Mapping[str, Any]) -> Collection[int]:
    """The axes of the attribute `axes`."""
    return normal_axes(attributes["axes"], x.ndim)


def along_other_axes(worked: Worked = on_axis, exact: IsExact = always_exact) -> Rule:
    """The rule of an op whose tensors all have the axes of the first operand: the axes along which it does not work
    are split."""

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        labels = other_axes(call, worked)
        given = [labels if isinstance(meta, Meta) else () for meta in call.metas]
        return matching(call, given, [labels] * len(call.outputs), exact=exact(call, parts))

    return rule


def other_axes(call: OpCall, worked: Worked) -> Labels:
    """A label for each axis of the first operand: its number, or None if the op works along it."""
    x = tensor_meta(call.metas)
    axes = worked(x, call.attributes)
    return [None if axis in axes else axis for axis in range(x.ndim)]


def exact_sums(call: OpCall, parts: int) -> Exact:
    """Says which splits are exact for an op that sums floats along `axis`.

    NumPy's order of summation depends on the memory layout of an array. Along the last axes, NumPy sums each packed
    row on its own, so splits of the other axes are exact. Along other axes it adds rows to rows, unless a part is
    one element wide: NumPy then takes that part for a packed row. If elements are cast, NumPy works in buffers,
    whose ends depend on the size of the array, so nothing is exact.
    """
    x = tensor_meta(call.metas)
    axes = set(normal_axes(call.attributes["axis"], x.ndim))
    rows = x.ndim - len(axes) if axes == set(range(x.ndim - len(axes), x.ndim)) else 0
    cast = x.dtype == np.float16 or any(out is None or out.dtype != x.dtype for out in call.outputs)

    def exact(label: Hashable) -> bool:
        return not cast and isinstance(label, int) and (label < rows or x.shape[label] // parts > 1)

    return exact


def reduction(
    combined: str | None, *, adds: bool = False, empty: bool = True, localise: Localise | None = None
) -> Rule:
    """The rule of a reduction along `axis`.

    An axis that is kept may be split. If a reduced axis is split, each device has a partial result, and `combined`
    names the reduction that combines them; None if there is none. `adds`: whether the order in which floats are
    combined changes the result (see `exact_sums`). `empty`: whether the reduction of no elements has a value.
    """

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        x, out = tensor_meta(call.metas), call.outputs[0]
        axes = normal_axes(call.attributes["axis"], x.ndim)
        labels = result_labels(x.ndim, axes, keepdims=call.attributes["keepdims"])
        rounds = out is None or out.dtype.kind in "fc"
        by_rows = exact_sums(call, parts) if adds and rounds else True

        def exact(label: Hashable) -> bool:
            return not rounds if label in axes else by_rows(label) if callable(by_rows) else by_rows

        for one in matching(call, [range(x.ndim)], [labels], reduction=_of(combined, out), exact=exact):
            (atom,) = one.inputs
            if not isinstance(atom, Split) or atom.axis not in axes:
                yield one
            elif empty or x.shape[atom.axis] >= parts:
                yield one._replace(localise=localise)

    return rule


def result_labels(ndim: int, axes: Collection[int], *, keepdims: bool) -> Labels:
    """For each axis of a reduction's result, the axis of the operand, or None if that was reduced."""
    return [None if axis in axes else axis for axis in range(ndim) if keepdims or axis not in axes]


def _of(combined: str | None, out: Meta | None) -> str | None:
    """The reduction that combines partial results, or None if their dtype does not have it."""
    return combined if combined is not None and out is not None and reduction_is_defined(out.dtype, combined) else None


def reordered(axes_of: Callable[[Shape, Mapping[str, Any]], Sequence[int | None]]) -> Rule:
    """The rule of a view whose axis i is axis axes_of(...)[i] of x, or a new axis if that is None."""

    def rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
        x = tensor_meta(call.metas)
        return matching(call, [range(x.ndim)], [axes_of(x.shape, call.attributes)])

    return rule


def concat_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of `concat`: every axis but the joined one may be split; none if `axis` is None."""
    axis = call.attributes["axis"]
    if axis is not None:
        yield from along_other_axes(lambda x, _: (normal_axis(axis, x.ndim),))(call, _parts)


def stack_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of `stack`: every axis of the operands may be split; the new axis of the result is whole."""
    x = tensor_meta(call.metas)
    axis = normal_axis(call.attributes["axis"], x.ndim + 1)
    labels: list[int | None] = list(range(x.ndim))
    return matching(call, [labels] * len(call.metas), [[*labels[:axis], None, *labels[axis:]]])


def squeeze_rule(axes_of: Callable[[Shape, Mapping[str, Any]], Sequence[int | None]]) -> Rule:
    """The rule of `squeeze`.

    Each device gets the dropped axes by number, since its part may have further axes of size one.
    """

    def localise(whole: OpCall, piece: OpCall, _part: int) -> Mapping[str, Any]:
        x = tensor_meta(whole.metas)
        remaining = axes_of(x.shape, whole.attributes)
        return {**piece.attributes, "axis": tuple(axis for axis in range(x.ndim) if axis not in remaining)}

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        for one in reordered(axes_of)(call, parts):
            yield one._replace(localise=localise)

    return rule
