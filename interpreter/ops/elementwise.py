"""Elementwise ops. Most are the array module's ufunc of the same name, and NumPy's own tables give their dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attributes import DTYPE
from ..axes import tensor
from ..meta import Meta, OperandMeta
from ..opdef import Array, ArrayModule, Attributes, Infer, OpDef, OutputMetas, ScalarCheck, Work, define
from ..promotion import accepts_any, broadcast, describe, promote

# Our name, or ours and NumPy's where they differ.
UNARY = (
    "negative positive abs:absolute square sqrt sign reciprocal isnan isinf isfinite logical_not bitwise_invert:invert"
)
UNARY_TRANSCENDENTAL = "exp expm1 log log1p log2 log10 sin cos tan tanh sinh cosh"
BINARY = (
    "add subtract multiply bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift:left_shift bitwise_right_shift:right_shift"
)
# Slower by as much as a transcendental function: integer division does not vectorise, and power is exp and log.
BINARY_SLOW = "floor_divide remainder power"
# These do not cast a Python int to an integer dtype, so it need not fit one.
BINARY_ANY_INT = "divide less less_equal greater greater_equal equal not_equal logical_and logical_or logical_xor"
ROUNDING = "floor ceil trunc round:rint"

SLOW = 8


def slow_work(_metas: tuple[OperandMeta, ...], outputs: OutputMetas, _attributes: Attributes) -> int:
    """Work of a transcendental function of each element."""
    return SLOW * sum(m.size for m in outputs if m is not None)


def infer_ufunc(ufunc: np.ufunc) -> Infer:
    """The infer function of a NumPy ufunc with one output."""

    def infer(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
        shape = broadcast(metas)
        # resolve_dtypes knows int, float and complex as weak types; a Python bool is no weaker than a bool tensor.
        operands = [m.dtype if isinstance(m, Meta) else np.dtype(np.bool_) if m is bool else m for m in metas]
        try:
            dtypes = ufunc.resolve_dtypes((*operands, None))
        except TypeError:
            raise TypeError(f"not defined for {describe(metas)}") from None
        return (Meta.of(shape, dtypes[-1]),)

    return infer


def _define_ufuncs(names: str, inputs: int, work: Work | None = None, scalars: ScalarCheck | None = None) -> None:
    for name, _, numpy_name in (entry.partition(":") for entry in names.split()):
        ufunc = numpy_name or name
        define(
            OpDef(
                name=name,
                inputs=inputs,
                infer=infer_ufunc(getattr(np, ufunc)),
                summary=f"numpy.{ufunc}, elementwise with broadcasting.",
                ufunc=ufunc,
                elementwise=True,
                work=work,
                scalars=scalars,
            )
        )


_define_ufuncs(UNARY, inputs=1)
_define_ufuncs(UNARY_TRANSCENDENTAL, inputs=1, work=slow_work)
_define_ufuncs(BINARY, inputs=2)
_define_ufuncs(BINARY_SLOW, inputs=2, work=slow_work)
_define_ufuncs(BINARY_ANY_INT, inputs=2, scalars=accepts_any)


def _define_extremum(name: str) -> None:
    """By a kernel, although it is a ufunc: NumPy deprecated a positional `out` for these two alone."""

    def kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
        getattr(xp, name)(*inputs, out=outputs[0])

    define(
        OpDef(
            name=name,
            inputs=2,
            infer=infer_ufunc(getattr(np, name)),
            summary=f"numpy.{name}, elementwise with broadcasting.",
            kernel=kernel,
            elementwise=True,
        )
    )


for _name in ("maximum", "minimum"):
    _define_extremum(_name)


def _rounding_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], name: str) -> None:
    if outputs[0].dtype.kind in "biu":
        xp.copyto(outputs[0], inputs[0])
    else:
        getattr(xp, name)(inputs[0], outputs[0])


def _infer_rounding(ufunc: str) -> Infer:
    """Integers stay what they are, as the array API says; NumPy 2.0 and CuPy would make floats of them."""
    of_floats = infer_ufunc(getattr(np, ufunc))

    def infer(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
        x = tensor(metas)
        return (x,) if x.dtype.kind in "biu" else of_floats(metas, attributes)

    return infer


def _define_rounding(name: str, ufunc: str) -> None:
    define(
        OpDef(
            name=name,
            inputs=1,
            infer=_infer_rounding(ufunc),
            summary=f"numpy.{ufunc} of floats; integers stay what they are.",
            kernel=lambda xp, inputs, outputs, _attributes: _rounding_kernel(xp, inputs, outputs, ufunc),
            elementwise=True,
        )
    )


for _entry in ROUNDING.split():
    _name, _, _ufunc = _entry.partition(":")
    _define_rounding(_name, _ufunc or _name)


def infer_where(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """The condition has to be bool; the others promote."""
    condition = metas[0].dtype if isinstance(metas[0], Meta) else np.dtype(metas[0])
    if condition != np.bool_:
        raise TypeError(f"the condition has to be bool, not {condition.name}")
    return (Meta.of(broadcast(metas), promote(metas[1:])),)


def where_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """Through a temporary: it costs less than two masked copies, and lets the output be any of the inputs."""
    outputs[0][...] = xp.where(*inputs)


def infer_clip(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """All three promote; only ordered dtypes."""
    dtype = promote(metas)
    if dtype.kind not in "iuf":
        raise TypeError(f"not defined for {dtype.name}; it takes real numbers")
    return (Meta.of(broadcast(metas), dtype),)


def infer_astype(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """Any dtype to any other, except complex to real numbers, which would lose a part without a word."""
    x, dtype = tensor(metas), np.dtype(attributes["dtype"])
    if x.dtype.kind == "c" and dtype.kind in "iuf":
        raise TypeError(f"{x.dtype.name} cannot become {dtype.name}")
    return (Meta.of(x.shape, dtype),)


def astype_kernel(_xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """Assignment casts as `astype` does."""
    outputs[0][...] = inputs[0]


define(
    OpDef(
        name="where",
        inputs=3,
        infer=infer_where,
        summary="x where the condition holds, else y: (condition, x, y).",
        kernel=where_kernel,
        elementwise=True,
    )
)
define(
    OpDef(
        name="clip",
        inputs=3,
        infer=infer_clip,
        summary="x limited to [lo, hi]: (x, lo, hi), the limits being tensors or scalars.",
        ufunc="clip",
        elementwise=True,
    )
)
for _name in ("astype", "cast"):
    define(
        OpDef(
            name=_name,
            inputs=1,
            infer=infer_astype,
            summary="x with another dtype, cast as NumPy's astype does.",
            attributes=(DTYPE,),
            kernel=astype_kernel,
            elementwise=True,
        )
    )
