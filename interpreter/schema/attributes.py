"""Checks of attributes: each takes a user's value, and returns its normal form, which is sent over the wire.

Normal forms are hashable, and made of msgpack's types: None, bool, int, float, str, and tuples of these. A check also
accepts its own normal form, because the daemon checks again what a client sent. Values with different meanings have
different normal forms, even under `==`, because signatures are looked up by normal forms.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Complex, Integral, Real
from typing import Any, TypeAlias

import numpy as np

from ..types.meta import DTYPES, MAX_NDIM, Shape
from .indexing import INT64, check_index, check_tensor_index
from .opdef import REQUIRED, Attribute

Check: TypeAlias = Callable[[Any], Any]
# The normal form of a number: an int, ("float", x), or ("complex", real, imag).
Number: TypeAlias = int | tuple[str, float] | tuple[str, float, float]


def check_bool(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"expected a bool, got {_kind(value)}")
    return bool(value)


def check_int(value: Any) -> int:
    """An integer of at most 64 bits; not a bool."""
    number = check_integer(value)
    if number not in INT64:
        raise ValueError("the integer has more than 64 bits")
    return number


def check_count(value: Any) -> int:
    """A positive integer of at most 64 bits."""
    count = check_int(value)
    if count < 1:
        raise ValueError(f"expected at least 1, got {count}")
    return count


def check_integer(value: Any) -> int:
    """An integer of any size; not a bool."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("expected an int, got a bool")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"expected an int, got {_kind(value)}") from None


def check_float(value: Any) -> float:
    """A finite real number, as a float."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"expected a number, got {_kind(value)}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {number}")
    return number + 0.0  # -0.0 == 0.0, so both must have the same normal form


def check_number(value: Any) -> Number:
    """A finite number that keeps its type: an int n is n, a float x is ("float", x), a complex number
    ("complex", real, imag); see `number`.

    In Python 1 == 1.0, so a bare float would find the signature of the int, which has another dtype.
    """
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "float":
        return ("float", check_float(value[1]))
    if isinstance(value, tuple) and len(value) == 3 and value[0] == "complex":
        return ("complex", check_float(value[1]), check_float(value[2]))
    if isinstance(value, Integral):
        return _check_wide_int(value)
    if isinstance(value, Complex) and not isinstance(value, Real):
        return ("complex", check_float(value.real), check_float(value.imag))
    return ("float", check_float(value))


def check_real_number(value: Any) -> Number:
    """As `check_number`, but not complex."""
    normal = check_number(value)
    if isinstance(normal, tuple) and normal[0] == "complex":
        raise TypeError("expected a real number, got a complex one")
    return normal


def number(normal: Number) -> int | float | complex:
    """The number behind the normal form of `check_number`."""
    if not isinstance(normal, tuple):
        return normal
    return complex(*normal[1:]) if normal[0] == "complex" else normal[1]


def _check_wide_int(value: Any) -> int:
    """An int that fits a dtype, including uint64."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("expected a number, got a bool")
    found = int(value)
    if not INT64.start <= found < 2**64:
        raise OverflowError("the integer has more than 64 bits")
    return found


def check_dtype(value: Any) -> str:
    """The name of a dtype, given as its name, a NumPy dtype or scalar type, or bool, int, float, complex."""
    if isinstance(value, str):
        name = value
    elif isinstance(value, (np.dtype, type)):
        dtype = np.dtype(value)
        name = dtype.name if dtype.isnative else str(dtype)
    else:
        raise TypeError(f"expected a dtype, got {_kind(value)}")
    if name not in DTYPES:
        raise TypeError(f"dtype {name[:40]!r} is not supported; use one of {', '.join(DTYPES)}")
    return name


def check_shape(value: Any) -> Shape:
    """A tuple of non-negative ints, at most 64; a single int is a shape of one dimension."""
    shape = check_axes(value)
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape} has a negative dimension")
    return shape


def check_new_shape(value: Any) -> Shape:
    """A shape in which one dimension may be -1, to be inferred from the size."""
    shape = check_axes(value)
    if any(n < -1 for n in shape) or shape.count(-1) > 1:
        raise ValueError(f"shape {shape}: only one dimension may be negative: -1")
    return shape


def check_axis(value: Any) -> int | Shape:
    """An axis or a tuple of axes."""
    return check_axes(value) if isinstance(value, (tuple, list)) else check_int(value)


def optional(check: Check) -> Check:
    """A check that also accepts None."""

    def check_optional(value: Any) -> Any:
        return None if value is None else check(value)

    return check_optional


def choice(*names: str) -> Check:
    """A check that accepts only these names."""

    def check_name(value: Any) -> str:
        expected = f"expected one of {', '.join(map(repr, names))}"
        if not isinstance(value, str):
            raise TypeError(f"{expected}, got {_kind(value)}")
        if value not in names:
            raise ValueError(f"{expected}, got {value[:40]!r}")
        return value

    return check_name


def check_axes(value: Any) -> Shape:
    """A tuple of axes; a single int is a tuple of one. The infer function checks that they exist."""
    if not isinstance(value, (tuple, list)):
        return (check_int(value),)
    if len(value) > MAX_NDIM:
        raise ValueError(f"there are {len(value)} dimensions; at most {MAX_NDIM} are possible")
    return tuple(map(check_int, value))


def _kind(value: object) -> str:
    return type(value).__name__


# Attributes that many ops share.
AXIS = Attribute("axis", optional(check_axis), None)
ONE_AXIS = Attribute("axis", optional(check_int), None)
KEEPDIMS = Attribute("keepdims", check_bool, default=False)
SHAPE = Attribute("shape", check_shape)
DTYPE = Attribute("dtype", check_dtype)
DTYPE_OR_NONE = Attribute("dtype", optional(check_dtype), None)
INDEX = Attribute("index", check_index)
TENSOR_INDEX = Attribute("index", check_tensor_index)


def axis_attribute(default: Any = REQUIRED) -> Attribute:
    """An attribute `axis` that is one int."""
    return Attribute("axis", check_int, default)
