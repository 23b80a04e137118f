"""Reductions along split axes whose partial results do not combine by themselves, done part by part.

For a product, and the position of an extreme, each device reduces its part; these results, one element of each along
the axis, are brought together and reduced once more. For a variance, the squared deviations from the mean are summed.
If that would move no fewer bytes than gathering the tensor, the tensor is gathered instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import nan, prod
from typing import Any, Final

import numpy as np

from ...interpreter.layouts.layout import BROADCAST, Layout, Partial, Split
from ...interpreter.schema.promotion import working_dtype
from ...interpreter.types.axes import normal_axes
from ...interpreter.types.meta import Meta
from ..core.core import Core
from ..tensor.tensor import Tensor
from .boxing.route import seconds
from .form import Form
from .tensor import GlobalTensor

Attributes = Mapping[str, Any]


def reduced_apart(name: str, x: GlobalTensor, attributes: Attributes) -> Tensor | None:
    """The reduction, issued part by part; None if that is impossible or saves nothing."""
    way, meta = WAYS.get(name), x._form.meta
    if way is None or meta is None or x._form.is_partial:
        return None
    axes = normal_axes(attributes["axis"], meta.ndim)
    return way(name, x, attributes, axes) if saves(x._form, meta, axes) else None


def saves(form: Form, meta: Meta, axes: Collection[int]) -> bool:
    """Return whether gathering the tensor takes longer than gathering the parts' results twice."""
    whole, found = gathered(form.layout, axes), found_in_parts(form, meta, axes)
    return seconds(form, form.laid(whole)) > 2 * seconds(found, found.laid(whole))


def gathered(layout: Layout, axes: Collection[int]) -> Layout:
    """The layout in which these axes are whole."""
    return tuple([BROADCAST if isinstance(atom, Split) and atom.axis in axes else atom for atom in layout])


def found_in_parts(form: Form, meta: Meta, axes: Collection[int]) -> Form:
    """The form of the parts' results, which keep the axes: each device has one element along a split axis."""
    grid = form.placement.grid
    shape = [prod(grid[dim] for dim in form.splits(axis)) if axis in axes else n for axis, n in enumerate(meta.shape)]
    return Form.of(Meta.of(tuple(shape), meta.dtype), form.placement, form.layout)


def brought_together(parts: Sequence[Tensor], form: Form, axes: Collection[int]) -> GlobalTensor:
    """The parts' results, gathered along all of the axes on each device. `form`: that of `found_in_parts`."""
    form_of_parts = Form.of(Meta.of(form.meta.shape, parts[0].dtype), form.placement, form.layout)  # type: ignore[union-attr]
    return GlobalTensor(form_of_parts, parts).to_global(layout=gathered(form.layout, axes))


def product(name: str, x: GlobalTensor, attributes: Attributes, axes: Collection[int]) -> Tensor:
    parts = [called(name, [part], {**attributes, "keepdims": True}) for part in x._parts]
    found = brought_together(parts, found_in_parts(x._form, x._known_meta(), axes), axes)
    return called(name, [found], {**attributes, "dtype": found.dtype.name})


def position(name: str, x: GlobalTensor, attributes: Attributes, axes: Collection[int]) -> Tensor | None:
    """The position of the first of equal extremes: results of earlier parts come first. If only the first axis is
    split, which preserves the order of the elements, all axes are treated as one."""
    form, meta, flat = x._form, x._known_meta(), attributes["axis"] is None
    cut = {atom.axis for atom in form.layout if isinstance(atom, Split)}
    if (flat and cut != {0}) or any(0 in share.shape for share in form.shares):
        return None
    axis, parts, inner = min(axes), x._parts, 1
    if flat:
        axis, inner = 0, prod(meta.shape[1:])
        parts = tuple([called("reshape", [part], {"shape": (-1,)}) for part in parts])
        form = Form.of(Meta.of((meta.size,), meta.dtype), form.placement, form.layout)
    indices = [called(name, [part], {"axis": axis, "keepdims": True}) for part in parts]
    extremes = [called("take_along_axis", pair, {"axis": axis}) for pair in zip(parts, indices, strict=True)]
    begins = [share.begin[axis] * inner for share in x._form.shares]
    indices = [index + begin if begin else index for index, begin in zip(indices, begins, strict=True)]
    found = found_in_parts(form, x._known_meta() if not flat else form.meta, (axis,))  # type: ignore[arg-type]
    chosen = called(name, [brought_together(extremes, found, (axis,))], {"axis": axis, "keepdims": True})
    result = called("take_along_axis", [brought_together(indices, found, (axis,)), chosen], {"axis": axis})
    if flat:
        return called("reshape", [result], {"shape": (1,) * meta.ndim * attributes["keepdims"]})
    return result if attributes["keepdims"] else called("squeeze", [result], {"axis": (axis,)})


def variance(name: str, x: GlobalTensor, attributes: Attributes, axes: Collection[int]) -> Tensor:
    """The variance, in two passes, as on one device."""
    meta, axis = x._known_meta(), attributes["axis"]
    dtype = np.dtype(np.float64) if meta.dtype.kind in "biu" else working_dtype(meta.dtype)
    wide = x if dtype == meta.dtype else called("astype", [x], {"dtype": dtype.name})
    delta: Tensor = wide - called("mean", [wide], {"axis": axis, "keepdims": True})
    if dtype.kind == "c":
        delta = called("real", [delta * called("conj", [delta])])
    else:
        delta *= delta
    freedom = prod(meta.shape[n] for n in axes) - attributes["correction"]
    total = called("sum", [delta], {"axis": axis, "keepdims": attributes["keepdims"]})
    result: Tensor = total / (float(freedom) if freedom > 0 else nan)
    result = called("sqrt", [result]) if name == "std" else result
    return called("astype", [whole(result)], {"dtype": "float16"}) if meta.dtype == np.float16 else result


def whole(x: Any) -> Tensor:
    """The sum of addends. Some of them may exceed the range of float16 although their sum does not."""
    summed: Tensor = x.to_global(layout=tuple([BROADCAST if isinstance(atom, Partial) else atom for atom in x.layout]))
    return summed


WAYS: Final[Mapping[str, Callable[..., Tensor | None]]] = {
    "prod": product,
    "argmax": position,
    "argmin": position,
    "var": variance,
    "std": variance,
}


def called(name: str, operands: Sequence[Any], attributes: Attributes | None = None) -> Tensor:
    """The result of a call."""
    core: Core = operands[0]._core
    return core.calls.call(core, name, operands, attributes)[0]
