"""Promotion of dtypes, broadcasting of shapes, and the checks of Python scalars.

The rules are those of the Python array API standard: tensors of one kind (boolean, integer, floating-point) promote by
dtype, whatever their values; kinds do not mix; and a Python scalar is weak: it takes the tensor's dtype. Within a kind
NumPy decides the dtype (NEP 50), so that there is no second table that could differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..errors import metadata_error
from ..types.meta import Meta, Metas, OperandMeta, ScalarType, Shape
from .opdef import Attributes, OpDef, find

DType: TypeAlias = np.dtype[np.generic]

# One value for each type of Python scalar: NumPy takes a value for a weak type, but the type itself for a strong dtype.
_WEAK: dict[ScalarType, Any] = {bool: np.dtype(np.bool_), int: 0, float: 0.0, complex: 0j}
# In NumPy's letters: the kinds with which a kind promotes, and the kinds with which a type of scalar mixes.
_FAMILY = {"b": "b", "i": "iu", "u": "iu", "f": "fc", "c": "fc"}
_SCALAR_FAMILY: dict[ScalarType, str] = {bool: "b", int: "iufc", float: "fc", complex: "fc"}
# msgpack has no other integers.
WIRE_INTEGERS = range(-(2**63), 2**64)


def promote(metas: Iterable[OperandMeta]) -> DType:
    """The dtype to which all operands promote. There is at least one. TypeError if their kinds do not mix."""
    operands = tuple(metas)
    check_mixing(operands)
    return np.result_type(*(m.dtype if isinstance(m, Meta) else _WEAK[m] for m in operands))


def working_dtype(dtype: DType) -> DType:
    """The dtype in which a kernel computes: float32 for float16, which lacks digits, range and a BLAS."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def number_dtype(op: OpDef, metas: Sequence[OperandMeta | None]) -> DType | None:
    """The dtype to which a NumPy ufunc casts a Python number, its operand beside a tensor; None for other calls."""
    if op.ufunc is None or len(metas) != 2:
        return None
    tensor, number = metas if isinstance(metas[0], Meta) else metas[::-1]
    if not isinstance(tensor, Meta) or number is None or isinstance(number, Meta):
        return None
    return np.result_type(tensor.dtype, _WEAK[number])


def check_mixing(operands: Metas) -> None:
    """Raise TypeError unless the tensors are of one kind (integers: with a common integer dtype), and each Python
    scalar mixes with it."""
    dtypes = [m.dtype for m in operands if isinstance(m, Meta)]
    if not dtypes:
        return
    first = dtypes[0]
    for dtype in dtypes:
        if dtype.kind not in _FAMILY[first.kind]:
            raise TypeError(
                f"{first.name} and {dtype.name} are dtypes of different kinds, which do not mix: use astype"
            )
    for m in operands:
        if not isinstance(m, Meta) and first.kind not in _SCALAR_FAMILY[m]:
            raise TypeError(f"a Python {m.__name__} does not mix with {first.name}: use astype on the tensor")
    if first.kind in "iu" and np.result_type(*dtypes).kind == "f":
        raise TypeError(f"{' and '.join(dict.fromkeys(d.name for d in dtypes))} have no common integer dtype")


def broadcast_shapes(shapes: Iterable[Shape]) -> Shape:
    """The shape to which all shapes broadcast.

    ValueError if they do not. Sizes are Python ints, so they do not overflow.
    """
    result: Shape = ()
    for shape in shapes:
        result = shape if result in {(), shape} else _broadcast_two(result, shape)
    return result


def _broadcast_two(left: Shape, right: Shape) -> Shape:
    ndim = max(len(left), len(right))
    padded = zip((1,) * (ndim - len(left)) + left, (1,) * (ndim - len(right)) + right, strict=True)
    result = []
    for a, b in padded:
        if a != b and 1 not in {a, b}:
            raise ValueError(f"shapes {left} and {right} do not broadcast")
        result.append(b if a == 1 else a)
    return tuple(result)


def broadcast(metas: Iterable[OperandMeta]) -> Shape:
    """The shape to which the tensors broadcast. TypeError unless at least one operand is a tensor."""
    shapes = [m.shape for m in metas if isinstance(m, Meta)]
    if not shapes:
        raise TypeError("at least one operand must be a tensor")
    return broadcast_shapes(shapes)


def describe(metas: Iterable[OperandMeta | None]) -> str:
    """Operands as messages name them: `float32[2, 3], int`."""
    return ", ".join(m.__name__ if isinstance(m, type) else repr(m) for m in metas)


def check_scalars(
    op_name: str, values: Iterable[object], metas: tuple[OperandMeta | None, ...], attributes: Attributes | None = None
) -> None:
    """Raise MetadataError unless each Python int among the operands passes `check_scalar`."""
    for value in values:
        if type(value) is int:
            check_scalar(op_name, value, metas, attributes)


def check_scalar(
    op_name: str, value: object, metas: tuple[OperandMeta | None, ...], attributes: Attributes | None = None
) -> None:
    """Raise MetadataError if the Python int `value` cannot be an operand of the op among operands `metas`.

    An infer function only gets types; this is the only check of the value. As long as an operand is pending, and its
    dtype unknown, only the wire's range is checked; the machine checks again when the dtype is known. Kernels need
    this check: some would wrap a value that does not fit.
    """
    if type(value) is not int or 0 <= value <= 127:  # every dtype can hold these, and every seed may be one
        return
    op = find(op_name)
    try:
        accepts_any(value, (), {})
        known = tuple(m for m in metas if m is not None)
        if len(known) == len(metas):
            (op.scalars or accepts_promoted)(value, known, attributes or {})
    except (TypeError, ValueError, OverflowError) as error:
        raise metadata_error(error, f"{op_name}: {error}", op_name) from None


def accepts_any(value: int, _metas: Metas, _attributes: Attributes) -> None:
    """Accept every integer of the wire: for ops that do not cast the scalar to an integer dtype (comparisons, true
    division, logical ops)."""
    if value not in WIRE_INTEGERS:
        raise OverflowError(f"the integer {value if abs(value) < 10**40 else '(huge)'} has more than 64 bits")


def accepts_promoted(value: int, metas: Metas, attributes: Attributes) -> None:
    """Accept a value that fits the attribute `dtype` if the op has one, else the operands' promoted dtype.

    This is the default.
    """
    name = attributes.get("dtype")
    check_fits(value, promote(metas) if name is None else np.dtype(name))


def check_fits(value: int, dtype: DType) -> None:
    """Raise OverflowError if the dtype is an integer dtype that cannot hold the integer."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    if not int(limits.min) <= value <= int(limits.max):
        raise OverflowError(f"the integer {value} does not fit {dtype.name}")
