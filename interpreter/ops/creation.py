"""Creation of tensors from attributes.

No memory is allocated for a shape, however large, until a device computes the op.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..schema.attributes import (
    DTYPE_OR_NONE,
    SHAPE,
    check_bool,
    check_dtype,
    check_int,
    check_number,
    check_real_number,
    number,
    optional,
)
from ..schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, Kernel, OutputMetas, define
from ..schema.promotion import DType, check_fits, promote
from ..schema.scratch import scratch
from ..types import kinds
from ..types.meta import Meta, Metas, OperandMeta, tensor_meta
from .positions import check_scatter
from .rules.reasons import MADE_WHOLE
from .rules.stacks import pointwise

_FLOAT64 = Attribute("dtype", check_dtype, "float64")


def infer_shaped(_metas: Metas, attributes: Attributes) -> OutputMetas:
    """The shape and dtype of the attributes."""
    return (Meta.of(attributes["shape"], attributes["dtype"]),)


def infer_like(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The operand's meta, with another dtype if one is given."""
    x = tensor_meta(metas)
    return (Meta.of(x.shape, attributes["dtype"] or x.dtype),)


def infer_full(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The scalar's own dtype by default: bool, int64, float64 or complex128."""
    dtype = attributes["dtype"] or promote((_scalar(metas[0]),))
    return (Meta.of(attributes["shape"], _fillable(metas[0], np.dtype(dtype))),)


def infer_full_like(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The first operand's meta, as in `infer_like`; the second operand is the scalar."""
    (like,) = infer_like(metas, attributes)
    if like is not None:
        _fillable(_scalar(metas[1]), like.dtype)
    return (like,)


def _scalar(meta: OperandMeta) -> OperandMeta:
    if isinstance(meta, Meta):
        raise TypeError("the fill value has to be a Python scalar")
    return meta


def _fillable(scalar: OperandMeta, dtype: DType) -> DType:
    """The dtype, if it can hold scalars of that type; only ints are checked by value, in `check_scalar`."""
    kinds = {bool: "biufc", int: "iufcb", float: "fc", complex: "c"}
    if dtype.kind not in kinds[scalar]:  # type: ignore[index]
        raise TypeError(f"a value of type {scalar.__name__} does not fill {dtype.name}")  # type: ignore[union-attr]
    return dtype


def infer_arange(_metas: Metas, attributes: Attributes) -> OutputMetas:
    """int64 if start, stop and step are ints, else float64, unless `dtype` says otherwise."""
    start, stop, step = _arange_bounds(attributes)
    if step == 0:
        raise ValueError("the step cannot be zero")
    whole = all(isinstance(n, int) for n in (start, stop, step))
    dtype = np.dtype(attributes["dtype"] or ("int64" if whole else "float64"))
    if dtype.kind not in "iuf":
        raise TypeError(f"not defined for {dtype.name}; it takes real numbers")
    length = max(math.ceil((stop - start) / step), 0)  # the quotient is a float for ints, too, as in the array module
    for value in (start, start + step)[:length]:  # as NumPy does
        check_fits(int(value), dtype)
    return (Meta.of((length,), dtype),)


def _arange_bounds(attributes: Attributes) -> tuple[Any, Any, Any]:
    start, stop, step = attributes["start"], attributes["stop"], attributes["step"]
    return (0, number(start), number(step)) if stop is None else (number(start), number(stop), number(step))


def infer_linspace(_metas: Metas, attributes: Attributes) -> OutputMetas:
    """`num` numbers, floats unless `dtype` says otherwise."""
    bounds = number(attributes["start"]), number(attributes["stop"])
    is_complex = any(isinstance(bound, complex) for bound in bounds)
    dtype = np.dtype(attributes["dtype"] or ("complex128" if is_complex else "float64"))
    if dtype.kind not in ("c" if is_complex else "iufc"):
        raise TypeError(f"{dtype.name} does not hold numbers from {bounds[0]} to {bounds[1]}")
    if attributes["num"] < 0:
        raise ValueError(f"num is negative: {attributes['num']}")
    return (Meta.of((attributes["num"],), dtype),)


def infer_eye(_metas: Metas, attributes: Attributes) -> OutputMetas:
    """Square unless `n_cols` is given."""
    rows, columns = attributes["n_rows"], attributes["n_cols"]
    return (Meta.of((rows, rows if columns is None else columns), attributes["dtype"]),)


def _filling(value: int) -> Kernel:
    def kernel(_xp: ArrayModule, _inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
        outputs[0].fill(value)

    return kernel


def full_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """The scalar is the last operand, in full and full_like alike."""
    value, out = inputs[-1], outputs[0]
    out.fill(value)
    if xp is not np and value == 0 and out.dtype.kind in "fc":  # CuPy sets all bytes to zero, so -0.0 loses its sign
        for part, zero in zip(_parts(out), (value.real, value.imag), strict=False):
            if math.copysign(1.0, zero) < 0:
                xp.copysign(part, zero, part)


def _parts(x: Array) -> tuple[Array, ...]:
    """The real and the imaginary part, if there are two."""
    return (x.real, x.imag) if x.dtype.kind == "c" else (x,)


def arange_kernel(xp: ArrayModule, _inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The array module's own values, bit for bit."""
    outputs[0][...] = xp.arange(*_arange_bounds(attributes), dtype=outputs[0].dtype)


def linspace_kernel(xp: ArrayModule, _inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The array module's own values, bit for bit."""
    start, stop, num = number(attributes["start"]), number(attributes["stop"]), attributes["num"]
    (out,), endpoint = outputs, attributes["endpoint"]
    if xp is np or out.dtype.kind != "c":
        out[...] = xp.linspace(start, stop, num, endpoint=endpoint, dtype=out.dtype)
        return
    ends = (start.real, stop.real), (start.imag, stop.imag)
    for part, (low, high) in zip(_parts(out), ends, strict=True):  # CuPy takes real numbers only
        part[...] = xp.linspace(low, high, num, endpoint=endpoint, dtype=part.dtype)


def eye_kernel(xp: ArrayModule, _inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Writes in place, since NumPy's own function holds the interpreter lock."""
    (out,) = outputs
    rows, columns = out.shape
    k = max(-rows, min(attributes["k"], columns))  # all diagonals outside of the matrix are alike
    out.fill(0)
    row, last = max(-k, 0), min(rows, columns - k) - 1
    if out.flags.c_contiguous and row <= last:  # index arrays would take memory, and a GPU counts positions in 32 bits
        flat, step = out.reshape(-1), columns + 1
        flat[row * step + k : last * step + k + 1 : step] = 1
        return
    check_scatter(xp, out.size, 1, 1)
    row = xp.arange(row, last + 1)
    out[row, row + k] = 1


for _name, _value in {"zeros": 0, "ones": 1, "empty": 0}.items():
    define(
        name=_name,
        inputs=0,
        infer=infer_shaped,
        summary=f"A tensor of {_value}s.",
        attributes=(SHAPE, _FLOAT64),
        kernel=_filling(_value),
        total=True,
        layouts=MADE_WHOLE,
    )
    define(
        name=f"{_name}_like",
        inputs=1,
        infer=infer_like,
        summary=f"A tensor of {_value}s with the shape of x, and its dtype unless one is given.",
        attributes=(DTYPE_OR_NONE,),
        kernel=_filling(_value),
        total=True,
        layouts=pointwise,
    )
define(
    name="full",
    inputs=1,
    operands=("fill_value",),
    dtypes=(kinds.SCALAR,),
    infer=infer_full,
    summary="A tensor of one value, which is the operand, a Python scalar.",
    attributes=(SHAPE, DTYPE_OR_NONE),
    kernel=full_kernel,
    total=True,
    layouts=MADE_WHOLE,
)
define(
    name="full_like",
    inputs=2,
    operands=("x", "fill_value"),
    dtypes=(kinds.ANY, kinds.SCALAR),
    infer=infer_full_like,
    summary="A tensor of one value with the shape of x, and its dtype unless one is given.",
    attributes=(DTYPE_OR_NONE,),
    kernel=full_kernel,
    total=True,
    layouts=pointwise,
)
define(
    name="arange",
    inputs=0,
    infer=infer_arange,
    summary="Evenly spaced numbers in [start, stop); with `stop` None, in [0, start).",
    attributes=(
        Attribute("start", check_real_number),
        Attribute("stop", optional(check_real_number), None),
        Attribute("step", check_real_number, 1),
        DTYPE_OR_NONE,
    ),
    kernel=arange_kernel,
    scratch=scratch(results=1),
    layouts=MADE_WHOLE,
)
define(
    name="linspace",
    inputs=0,
    infer=infer_linspace,
    summary="`num` evenly spaced numbers from start to stop, which is included if `endpoint`.",
    attributes=(
        Attribute("start", check_number),
        Attribute("stop", check_number),
        Attribute("num", check_int),
        DTYPE_OR_NONE,
        Attribute("endpoint", check_bool, default=True),
    ),
    kernel=linspace_kernel,
    scratch=scratch(results=1, elements=8),
    layouts=MADE_WHOLE,
)
define(
    name="eye",
    inputs=0,
    infer=infer_eye,
    summary="Ones on the k-th diagonal of an n_rows by n_cols matrix, zeros elsewhere.",
    attributes=(
        Attribute("n_rows", check_int),
        Attribute("n_cols", optional(check_int), None),
        Attribute("k", check_int, 0),
        _FLOAT64,
    ),
    kernel=eye_kernel,
    total=True,
    layouts=MADE_WHOLE,
)
