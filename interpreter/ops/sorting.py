"""Sorting along an axis. NaN counts as the largest number; complex numbers are ordered by real, then imaginary part."""

from __future__ import annotations

import numpy as np

from ..schema.attributes import axis_attribute, check_bool
from ..schema.opdef import (
    ArrayModule,
    Arrays,
    Attribute,
    Attributes,
    Infer,
    Kernel,
    OutputMetas,
    Scratch,
    define,
)
from ..schema.scratch import total
from ..types.axes import normal_axis
from ..types.meta import Meta, Metas, tensor_meta
from .rules.axes import along_other_axes


def infer_sort(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x, which must have the axis."""
    x = tensor_meta(metas)
    normal_axis(attributes["axis"], x.ndim)
    return (x,)


def infer_argsort(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Positions are int64."""
    infer_sort(metas, attributes)
    return (Meta.of(tensor_meta(metas).shape, np.dtype(np.int64)),)


def _algorithm(attributes: Attributes) -> str | None:
    """The array module's name of the algorithm; None is the fastest."""
    return "stable" if attributes["stable"] else None


def sort_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Sorts x. For descending order, x is reversed before and after the sort, so that equal elements (0.0 and -0.0)
    keep their order. Sorting negated values would be wrong: unsigned integers, bools and the smallest integer have
    no negative.
    """
    (x,), (out,) = inputs, outputs
    axis, down = attributes["axis"], attributes["descending"]
    if xp is np:  # in place, without another array of that size
        out[...] = x
        (np.flip(out, axis) if down else out).sort(axis, kind=_algorithm(attributes))
        return
    ordered = xp.sort(xp.flip(x, axis) if down else x, axis=axis, kind=_algorithm(attributes))
    out[...] = xp.flip(ordered, axis) if down else ordered


def argsort_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Sorts positions, in descending order as `sort_kernel` does.

    A position in the reversed x counts from the end of x.
    """
    (x,), (out,) = inputs, outputs
    axis, down = attributes["axis"], attributes["descending"]
    order = xp.argsort(xp.flip(x, axis) if down else x, axis=axis, kind=_algorithm(attributes))
    if down:
        xp.subtract(x.shape[axis] - 1, xp.flip(order, axis), out)
    else:
        out[...] = order


def sort_scratch(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """A packed copy of one line along the axis, and as much again to merge or to distribute its elements."""
    x = tensor_meta(metas)
    return 2 * x.dtype.itemsize * x.shape[attributes["axis"]]


def argsort_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """All positions, the positions of one line along the axis, and a packed copy of that line."""
    x = tensor_meta(metas)
    return total(outputs) + (16 + x.dtype.itemsize) * x.shape[attributes["axis"]]


def lines_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """Every element is compared with about log2(n) others along the axis."""
    x = tensor_meta(metas)
    return 4 * x.size * x.shape[attributes["axis"]].bit_length()


def _define_sort(name: str, infer: Infer, kernel: Kernel, scratch: Scratch, summary: str) -> None:
    define(
        name=name,
        inputs=1,
        infer=infer,
        summary=summary,
        attributes=(
            axis_attribute(-1),
            Attribute("descending", check_bool, default=False),
            Attribute("stable", check_bool, default=True),
        ),
        kernel=kernel,
        total=True,
        scratch=scratch,
        work=lines_work,
        needs=(name,),
        layouts=along_other_axes(),
    )


_define_sort(
    "sort", infer_sort, sort_kernel, sort_scratch, "x sorted along `axis`; equal elements keep their order if `stable`."
)
_define_sort(
    "argsort", infer_argsort, argsort_kernel, argsort_scratch, "The positions that sort x along `axis`, as int64."
)
