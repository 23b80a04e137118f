"""Elementwise ops. Most are the array module's ufunc of the same name; their dtypes come from NumPy's own tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import DTYPE
from ..schema.indexing import INT64
from ..schema.opdef import (
    ArrayModule,
    Arrays,
    Attributes,
    Infer,
    Kernel,
    OutputMetas,
    ScalarCheck,
    Work,
    cost_of,
    define,
)
from ..schema.promotion import DType, accepts_any, accepts_promoted, broadcast, check_mixing, describe, promote
from ..schema.scratch import scratch
from ..types import kinds
from ..types.kinds import DTypes
from ..types.meta import DTYPES, Meta, Metas, tensor_meta
from . import corrections
from .rules.combining import any_parts, any_parts_of, cast_rule, chained, extremes, linear, linear_in, linear_in_each
from .rules.stacks import pointwise

# Our name, or our name and NumPy's where they differ.
UNARY = "negative positive abs:absolute square sqrt signbit conj:conjugate isnan isinf isfinite bitwise_invert:invert"
UNARY_TRANSCENDENTAL = "exp sin cos sinh cosh asin:arcsin acos:arccos asinh:arcsinh"
BINARY = (
    "add subtract multiply copysign bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift:left_shift bitwise_right_shift:right_shift"
)
# Ops whose result may stay partial if operands are partial, with their layout rules.
PARTIAL_RULES = {
    "positive": any_parts,
    **dict.fromkeys(("add", "conj", "negative", "subtract"), linear),
    "multiply": linear_in_each,
    "divide": linear_in(0),
    "maximum": extremes("max"),
    "minimum": extremes("min"),
}
# Binary ops that are as slow as a transcendental function.
BINARY_SLOW = "hypot logaddexp atan2:arctan2"
# These ops do not cast a Python int to an integer dtype, so the int need not fit one.
BINARY_ANY_INT = "less less_equal greater greater_equal equal not_equal"
# Nor do these ops; but NumPy first makes an array from the int, which must fit a machine word.
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
ROUNDING = "floor ceil trunc round:rint"

TRANSCENDENTAL_COST = 8
_REMAINDER_COST = 16  # cost of a remainder of floats, relative to another slow function


def slow_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The work of an op that computes a transcendental function of each element."""
    return TRANSCENDENTAL_COST * sum(m.size for m in outputs if m is not None) * cost_of((*metas, *outputs))


def division_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The work of a division.

    A remainder of floats is computed bit by bit of the quotient, which may have two thousand bits.
    """
    real = any(isinstance(m, Meta) and m.dtype.kind == "f" for m in metas)
    return slow_work(metas, outputs, attributes) * (_REMAINDER_COST if real else 1)


def accepts_word(value: int, _metas: Metas, _attributes: Attributes) -> None:
    """OverflowError for ints that int64 cannot hold, for any dtype of the tensor."""
    if value not in INT64:
        raise OverflowError(f"the integer {value} does not fit int64")


def infer_ufunc(ufunc: np.ufunc) -> Infer:
    """The infer function of a NumPy ufunc with one output."""

    def infer(metas: Metas, _attributes: Attributes) -> OutputMetas:
        shape = broadcast(metas)
        check_mixing(metas)
        # resolve_dtypes knows int, float and complex as weak types; a Python bool is no weaker than a bool tensor.
        operands = [m.dtype if isinstance(m, Meta) else np.dtype(np.bool_) if m is bool else m for m in metas]
        try:
            dtypes = ufunc.resolve_dtypes((*operands, None))
        except TypeError:
            raise TypeError(f"not defined for {describe(metas)}") from None
        return (Meta.of(shape, dtypes[-1]),)

    return infer


def accepted_dtypes(ufunc: np.ufunc) -> DTypes:
    """The dtypes that the ufunc takes in each of its operands."""
    return frozenset(name for name, dtype in DTYPES.items() if _resolves(ufunc, dtype))


def _resolves(ufunc: np.ufunc, dtype: DType) -> bool:
    try:
        ufunc.resolve_dtypes((dtype,) * ufunc.nin + (None,))
    except TypeError:
        return False
    return True


def of_ufunc(entry: str) -> dict[str, Any]:
    """The common fields of the definition of an op that is a ufunc.

    `entry`: the op's name, or `op:ufunc` if NumPy has another name.
    """
    name, _, numpy_name = entry.partition(":")
    ufunc: np.ufunc = getattr(np, numpy_name or name)
    return {
        "name": name,
        "inputs": ufunc.nin,
        "infer": infer_ufunc(ufunc),
        "summary": f"numpy.{numpy_name or name}, elementwise with broadcasting.",
        "dtypes": (accepted_dtypes(ufunc),),
        "ufunc": numpy_name or name,
        "elementwise": True,
        "pointwise": True,
        "total": True,
        "layouts": chained(pointwise, PARTIAL_RULES[name]) if name in PARTIAL_RULES else pointwise,
    }


def _define_ufuncs(names: str, work: Work | None = None, scalars: ScalarCheck | None = None) -> None:
    for entry in names.split():
        define(**of_ufunc(entry), work=work, scalars=scalars)


_define_ufuncs(UNARY)
_define_ufuncs(UNARY_TRANSCENDENTAL, work=slow_work)
_define_ufuncs(BINARY)
_define_ufuncs(BINARY_SLOW, work=slow_work)
_define_ufuncs(BINARY_ANY_INT, scalars=accepts_any)


def _define_corrected_on_cupy(
    entry: str, correction: corrections.Correction, work: Work | None = None, scalars: ScalarCheck | None = None
) -> None:
    corrections.define_corrected(**of_ufunc(entry), correction=correction, of_numpy=False, work=work, scalars=scalars)


_define_corrected_on_cupy("remainder", corrections.remainder, work=division_work)
_define_corrected_on_cupy("divide", corrections.divide, scalars=accepts_any)
for _name, _of_e in (("log", 1.0), ("log2", math.log2(math.e)), ("log10", math.log10(math.e))):
    _define_corrected_on_cupy(_name, corrections.logarithm(_name, _of_e), work=slow_work)
_define_corrected_on_cupy("acosh:arccosh", corrections.arccosh, work=slow_work)
for _name in LOGICAL:
    _word = accepts_word if _name != "logical_not" else None
    _define_corrected_on_cupy(_name, corrections.logical(_name), scalars=_word)


_CORRECTED_WORK: dict[str, Work | None] = {
    "reciprocal": None,
    "sign": None,
    "nextafter": None,
    "floor_divide": division_work,
}
# Entry -> the correction of NumPy's special cases.
CORRECTED: dict[str, corrections.Correction] = {
    "atan:arctan": corrections.arctan,
    "atanh:arctanh": corrections.arctanh,
    "expm1": corrections.expm1,
    "floor_divide": corrections.floor_divide,
    "log1p": corrections.log1p,
    "nextafter": corrections.nextafter,
    "pow:power": corrections.power,
    "power": corrections.power,
    "reciprocal": corrections.reciprocal,
    "sign": corrections.sign,
    "tan": corrections.tan,
    "tanh": corrections.tanh,
}


def corrected_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The replacements of special values and their masks. Functions of one real number have few."""
    (out,) = outputs
    if out is None or out.dtype.kind in "biu" or (out.dtype.kind == "f" and len(metas) == 1):
        return 0
    return 3 * out.size + (out.nbytes if out.dtype.kind == "c" else 0)


def floor_divide_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The sums that show whether an operand is infinite; or, if one is, the quotients."""
    return corrected_scratch(metas, outputs, attributes) + sum(m.nbytes for m in outputs if m and m.dtype.kind == "f")


def is_total_power(metas: Metas, _attributes: Attributes) -> bool:
    """Whether no data make the kernel raise. A negative power of a signed integer does."""
    return promote(metas).kind != "i"


for _entry, _correction in CORRECTED.items():
    _fields = of_ufunc(_entry)
    _fields["summary"] = f"{_fields['summary'][:-1]}; special cases as the standard has them."
    if _correction is corrections.power:
        _fields["total"] = is_total_power
    corrections.define_corrected(
        **_fields,
        correction=_correction,
        scratch=floor_divide_scratch if _entry == "floor_divide" else corrected_scratch,
        work=_CORRECTED_WORK.get(_entry, slow_work),
    )


def extremum_kernel(name: str) -> Kernel:
    """A kernel that calls the ufunc with `out=`: for these two ufuncs only, NumPy deprecated a positional `out`."""

    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
        getattr(xp, name)(*inputs, out=outputs[0])

    return kernel


for _name in ("maximum", "minimum"):
    define(**{**of_ufunc(_name), "ufunc": None}, kernel=extremum_kernel(_name))


def _rounding_kernel(name: str) -> Kernel:
    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
        if outputs[0].dtype.kind in "biu":
            xp.copyto(outputs[0], inputs[0])
        else:
            getattr(xp, name)(inputs[0], outputs[0])

    return kernel


def _infer_rounding(ufunc: str) -> Infer:
    """The infer function of a rounding op.

    Integers keep their dtype, as the array API says; NumPy 2.0 and CuPy would return floats.
    """
    of_floats = infer_ufunc(getattr(np, ufunc))

    def infer(metas: Metas, attributes: Attributes) -> OutputMetas:
        x = tensor_meta(metas)
        return (x,) if x.dtype.kind in "biu" else of_floats(metas, attributes)

    return infer


for _entry in ROUNDING.split():
    _fields = of_ufunc(_entry)
    _ufunc = _fields.pop("ufunc")
    _fields["summary"] = f"numpy.{_ufunc} of floats; integers are returned unchanged."
    _fields["infer"] = _infer_rounding(_ufunc)
    _fields["dtypes"] = (_fields["dtypes"][0] | kinds.INTEGER_OR_BOOLEAN,)
    define(**_fields, kernel=_rounding_kernel(_ufunc))


def infer_part(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The real dtype of the same precision: half the size of a complex dtype."""
    x = tensor_meta(metas)
    return (Meta.of(x.shape, _PARTS[x.dtype.name]) if x.dtype.name in _PARTS else x,)


def real_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """A strided copy; a real number is its own real part."""
    xp.copyto(outputs[0], inputs[0].real)


def imag_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """A strided copy; zeros for real numbers."""
    if inputs[0].dtype.kind == "c":
        xp.copyto(outputs[0], inputs[0].imag)
    else:
        outputs[0].fill(0)


_PARTS: dict[str, DType] = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}
for _part, _take in (("real", real_kernel), ("imag", imag_kernel)):
    define(
        name=_part,
        inputs=1,
        infer=infer_part,
        summary=f"The {_part} part; of real numbers, {'themselves' if _part == 'real' else 'zeros'}.",
        dtypes=(kinds.NUMERIC,),
        kernel=_take,
        total=True,
        layouts=chained(pointwise, cast_rule),
    )


def infer_where(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The condition has to be bool; the others promote."""
    if not isinstance(metas[0], Meta) and metas[0] is not bool:
        raise TypeError(f"the condition must be bool, not {metas[0].__name__}")
    return (Meta.of(broadcast(metas), promote(metas[1:])),)


def accepts_chosen(value: int, metas: Metas, attributes: Attributes) -> None:
    """OverflowError unless the value fits the promoted dtype of the choices; the condition does not matter."""
    accepts_promoted(value, metas[1:], attributes)


def where_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Computes into a temporary, which is cheaper than two masked copies, and allows the output to be any of the
    inputs."""
    condition, x, y = inputs
    if isinstance(condition, bool):  # CuPy needs an array with a dtype
        outputs[0][...] = x if condition else y
    else:
        outputs[0][...] = xp.where(condition, x, y)


def infer_clip(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The dtypes of all three promote. x must be a tensor, since NumPy would choose another dtype for a scalar x."""
    if not isinstance(metas[0], Meta):
        raise TypeError(f"x must be a tensor, not a Python {metas[0].__name__}")
    dtype = promote(metas)
    return (Meta.of(broadcast(metas), dtype),)


def infer_astype(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Any dtype to any other, except complex to real numbers, which would silently lose a part."""
    x, dtype = tensor_meta(metas), np.dtype(attributes["dtype"])
    if x.dtype.kind == "c" and dtype.kind in "iuf":
        raise TypeError(f"{x.dtype.name} cannot become {dtype.name}")
    return (Meta.of(x.shape, dtype),)


def is_exact_cast(metas: Metas, attributes: Attributes) -> bool:
    """Whether the result of a cast does not depend on an element's position.

    For a float that no integer can hold it does: the vector instructions of a processor return other integers than
    its scalar instructions.
    """
    return tensor_meta(metas).dtype.kind in "biu" or np.dtype(attributes["dtype"]).kind not in "iu"


def astype_rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """The layout rule of casts: any axis may be split; exact if the cast is."""
    for one in pointwise(call, parts):
        yield one._replace(exact=is_exact_cast(call.metas, call.attributes))


def astype_kernel(_xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Assigns x to the output, which casts as `astype` does."""
    outputs[0][...] = inputs[0]


define(
    name="where",
    inputs=3,
    infer=infer_where,
    summary="x1 where the condition holds, else x2.",
    operands=("condition", "x1", "x2"),
    dtypes=(kinds.BOOLEAN, kinds.ANY),
    kernel=where_kernel,
    elementwise=True,
    pointwise=True,
    total=True,
    scratch=scratch(results=1),
    scalars=accepts_chosen,
    layouts=chained(pointwise, any_parts_of(1, 2)),
)
corrections.define_corrected(
    name="clip",
    inputs=3,
    infer=infer_clip,
    summary="x limited to [min, max], the limits being tensors or scalars.",
    operands=("x", "min", "max"),
    dtypes=(kinds.REAL,),
    ufunc="clip",
    correction=corrections.clip,
    of_numpy=False,
    elementwise=True,
    pointwise=True,
    total=True,
    layouts=pointwise,
)
for _name in ("astype", "cast"):
    define(
        name=_name,
        inputs=1,
        infer=infer_astype,
        summary="x with another dtype, cast as NumPy's astype does.",
        attributes=(DTYPE,),
        kernel=astype_kernel,
        elementwise=True,
        pointwise=is_exact_cast,
        total=True,
        layouts=chained(astype_rule, any_parts, cast_rule),
    )
