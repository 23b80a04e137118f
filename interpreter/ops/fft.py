"""Discrete Fourier transforms. Lengths are attributes, so shapes are known before anything runs.

A transform keeps the precision of x: float32 gives complex64, and complex64 gives float32. float16 is transformed as
float32.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Any, TypeAlias

import numpy as np

from ..schema.attributes import DTYPE_OR_NONE, check_axes, check_axis, check_float, check_int, choice, optional
from ..schema.opdef import ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import DType
from ..schema.scratch import is_single, scratch
from ..types.axes import normal_axes, normal_axis
from ..types.kinds import FLOATING, REAL_FLOATING, DTypes
from ..types.meta import Meta, Metas, Shape, tensor_meta
from .matrices import real_dtype
from .rearranging import ROLL_BLOCK_COST
from .rules.axes import along_other_axes, on_axes
from .rules.combining import any_parts, cast_rule, chained
from .rules.reasons import MADE_WHOLE

_WHOLE_AXIS = -1  # stands for the length of the axis

# The transformed axes (a real transform is along the last one), and the number of points along each.
Plan: TypeAlias = tuple[Shape, Shape]


class SpectrumKind(Enum):
    """The kinds of input and output of a transform.

    A Hermitian spectrum of n points is stored as its first n//2 + 1 points.
    """

    COMPLEX = auto()  # n points to n points
    REAL = auto()  # n real points to half a spectrum
    HERMITIAN = auto()  # half a spectrum to n real points


_OPERAND_DTYPES: dict[SpectrumKind, DTypes] = {
    SpectrumKind.COMPLEX: FLOATING,
    SpectrumKind.REAL: REAL_FLOATING,
    SpectrumKind.HERMITIAN: FLOATING,
}


def check_length(value: Any) -> int:
    """A positive number of points."""
    length = check_int(value)
    if length < 1:
        raise ValueError(f"a transform must have at least one point, not {length}")
    return length


def check_lengths(value: Any) -> Shape:
    """Positive numbers of points; -1 is the whole axis."""
    return tuple(n if n == _WHOLE_AXIS else check_length(n) for n in check_axes(value))


# --- axes and lengths


def plan(shape: Shape, form: SpectrumKind, attributes: Attributes) -> Plan:
    """Axes and lengths. ValueError if there is nothing to transform along one of them."""
    axes, given = _along_one(shape, attributes) if "axis" in attributes else _along_several(shape, attributes)
    lengths = [shape[a] if n == _WHOLE_AXIS else n for a, n in zip(axes, given, strict=True)]
    if form is not SpectrumKind.COMPLEX and not axes:
        raise ValueError("the transform needs at least one axis")
    if form is SpectrumKind.HERMITIAN and given[-1] == _WHOLE_AXIS:
        lengths[-1] = 2 * (shape[axes[-1]] - 1)
    for axis, length in zip(axes, lengths, strict=True):
        if length < 1:
            raise ValueError(f"shape {shape} has too few points along axis {axis}, and no length is given")
    return axes, tuple(lengths)


def _along_one(shape: Shape, attributes: Attributes) -> Plan:
    length = attributes["n"]
    return (normal_axis(attributes["axis"], len(shape)),), (_WHOLE_AXIS if length is None else length,)


def _along_several(shape: Shape, attributes: Attributes) -> Plan:
    sizes, axes = attributes["s"], normal_axes(attributes["axes"], len(shape))
    if sizes is None:
        return axes, (_WHOLE_AXIS,) * len(axes)
    if attributes["axes"] is None:
        raise ValueError("`axes` is required if the sizes `s` are given")
    if len(sizes) != len(axes):
        raise ValueError(f"`s` and `axes` differ in length: {len(sizes)} and {len(axes)}")
    return axes, sizes


def _used_index(shape: Shape, form: SpectrumKind, axes: Shape, lengths: Shape) -> tuple[slice, ...]:
    """The index of the used part of x.

    It cuts all axes at once: array modules process axis by axis, and may pad one axis before they cut another.
    """
    index = [slice(None)] * len(shape)
    for axis, length in zip(axes, lengths, strict=True):
        index[axis] = slice(length)
    if form is SpectrumKind.HERMITIAN:
        index[axes[-1]] = slice(lengths[-1] // 2 + 1)
    return tuple(index)


def result_dtype(dtype: DType, form: SpectrumKind) -> DType:
    """The dtype of the result, in the precision of x: real for a Hermitian spectrum, else complex."""
    found = np.result_type(dtype, np.complex64)
    return real_dtype(found) if form is SpectrumKind.HERMITIAN else found


# --- the table of transforms


def fft_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """x and the result as complex numbers of double precision; single precision is cast first."""
    size = sum(m.size for m in outputs if m is not None)
    return 16 * (tensor_meta(metas).size + size * (2 if is_single(metas) else 1))


def single_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The result before it is stored, for a transform that NumPy computes in the precision of x; float16 is cast."""
    x = tensor_meta(metas)
    return sum(m.nbytes for m in outputs if m is not None) + (4 * x.size if x.dtype == np.float16 else 0)


def _define_transform(name: str, form: SpectrumKind, summary: str, *attributes: Attribute) -> None:
    def infer(metas: Metas, given: Attributes) -> OutputMetas:
        x = tensor_meta(metas)
        axes, lengths = plan(x.shape, form, given)
        shape = list(x.shape)
        for axis, length in zip(axes, lengths, strict=True):
            shape[axis] = length
        if form is SpectrumKind.REAL:
            shape[axes[-1]] = lengths[-1] // 2 + 1
        return (Meta.of(tuple(shape), result_dtype(x.dtype, form)),)

    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, given: Attributes) -> None:
        (x,), (out,) = inputs, outputs
        axes, lengths = plan(x.shape, form, given)
        if not x.size or not axes:
            out[...] = x if not axes else 0  # only padding; NumPy would read beyond an empty axis
            return
        x = x[_used_index(x.shape, form, axes, lengths)]
        x = x.astype(np.float32) if x.dtype == np.float16 else x
        along = {"n": lengths[0], "axis": axes[0]} if "axis" in given else {"s": lengths, "axes": axes}
        out[...] = getattr(xp.fft, name)(x, **along, norm=given["norm"])

    def work(metas: Metas, outputs: OutputMetas, given: Attributes) -> int:
        x = tensor_meta(metas)
        size = max(m.size for m in (x, *outputs) if m is not None)
        return size * math.prod(plan(x.shape, form, given)[1]).bit_length()

    define(
        name=name,
        inputs=1,
        infer=infer,
        summary=summary,
        dtypes=(_OPERAND_DTYPES[form],),
        attributes=attributes,
        kernel=kernel,
        scratch=single_scratch if name == "ihfft" else fft_scratch,
        work=work,
        needs=(f"fft.{name}",),
        layouts=chained(along_other_axes(lambda x, given: plan(x.shape, form, given)[0]), cast_rule),
    )


_NORM = Attribute("norm", choice("backward", "ortho", "forward"), "backward")
_ATTRIBUTES_OF_ONE_AXIS = (Attribute("n", optional(check_length), None), Attribute("axis", check_int, -1), _NORM)
_ATTRIBUTES_OF_SEVERAL_AXES = (
    Attribute("s", optional(check_lengths), None),
    Attribute("axes", optional(check_axes), None),
    _NORM,
)

for _name, _form, _attributes, _summary in (
    ("fft", SpectrumKind.COMPLEX, _ATTRIBUTES_OF_ONE_AXIS, "Fourier transform of `n` points along `axis`"),
    ("ifft", SpectrumKind.COMPLEX, _ATTRIBUTES_OF_ONE_AXIS, "Inverse of fft"),
    (
        "rfft",
        SpectrumKind.REAL,
        _ATTRIBUTES_OF_ONE_AXIS,
        "The first n//2 + 1 points of the Fourier transform of `n` real points along `axis`",
    ),
    ("irfft", SpectrumKind.HERMITIAN, _ATTRIBUTES_OF_ONE_AXIS, "Inverse of rfft, with `n` real points"),
    (
        "hfft",
        SpectrumKind.HERMITIAN,
        _ATTRIBUTES_OF_ONE_AXIS,
        "Fourier transform of a Hermitian signal, of which x is half; `n` real points",
    ),
    (
        "ihfft",
        SpectrumKind.REAL,
        _ATTRIBUTES_OF_ONE_AXIS,
        "Inverse of hfft: the first n//2 + 1 points of a Hermitian signal",
    ),
    ("fftn", SpectrumKind.COMPLEX, _ATTRIBUTES_OF_SEVERAL_AXES, "Fourier transform of `s` points along `axes`"),
    ("ifftn", SpectrumKind.COMPLEX, _ATTRIBUTES_OF_SEVERAL_AXES, "Inverse of fftn"),
    (
        "rfftn",
        SpectrumKind.REAL,
        _ATTRIBUTES_OF_SEVERAL_AXES,
        "fftn of real points, of which the last axis keeps the first n//2 + 1 points",
    ),
    ("irfftn", SpectrumKind.HERMITIAN, _ATTRIBUTES_OF_SEVERAL_AXES, "Inverse of rfftn, with `s` real points"),
):
    _define_transform(_name, _form, f"{_summary}; x is padded with zeros or cut.", *_attributes)


# --- frequencies


def _define_frequencies(name: str, *, half: bool, summary: str) -> None:
    def infer(_metas: Metas, attributes: Attributes) -> OutputMetas:
        n, dtype = attributes["n"], attributes["dtype"] or "float64"
        if dtype not in REAL_FLOATING:
            raise TypeError(f"frequencies must have a real floating-point dtype, not {dtype}")
        if attributes["d"] == 0:
            raise ValueError("the spacing `d` of the samples must not be zero")
        return (Meta.of((n // 2 + 1 if half else n,), dtype),)

    def kernel(xp: ArrayModule, _inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        outputs[0][...] = getattr(xp.fft, name)(attributes["n"], attributes["d"])

    define(
        name=name,
        inputs=0,
        infer=infer,
        summary=summary,
        attributes=(Attribute("n", check_length), Attribute("d", check_float, 1.0), DTYPE_OR_NONE),
        kernel=kernel,
        scratch=scratch(elements=26),
        needs=(f"fft.{name}",),
        layouts=MADE_WHOLE,
    )


_define_frequencies("fftfreq", half=False, summary="Frequencies of the points of an fft of `n` samples `d` apart.")
_define_frequencies("rfftfreq", half=True, summary="Frequencies of the points of an rfft of `n` samples `d` apart.")


# --- shifts


def infer_shift(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x."""
    x = tensor_meta(metas)
    normal_axes(attributes["axes"], x.ndim)
    return (x,)


def shift_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """The work of a roll along the axes."""
    x = tensor_meta(metas)
    return x.size + (ROLL_BLOCK_COST << sum(x.shape[a] > 1 for a in normal_axes(attributes["axes"], x.ndim)))


def _define_shift(name: str, summary: str) -> None:
    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        (x,), (out,) = inputs, outputs
        axes = normal_axes(attributes["axes"], x.ndim)
        out[...] = getattr(xp.fft, name)(x, axes=axes) if axes else x

    define(
        name=name,
        inputs=1,
        infer=infer_shift,
        summary=summary,
        attributes=(Attribute("axes", optional(check_axis), None),),
        kernel=kernel,
        scratch=scratch(results=1),
        work=shift_work,
        needs=(f"fft.{name}",),
        layouts=chained(along_other_axes(on_axes), any_parts),
    )


_define_shift("fftshift", "The halves along `axes` (None: all) swapped, so that frequency zero is in the middle.")
_define_shift("ifftshift", "Inverse of fftshift, from which it differs where an axis is of odd length.")
