"""The elementwise functions, and `where`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tensord.interpreter.schema.opdef import find

from ..each_case import each_case
from .arrays import ALL, COMPLEX, Shape, arrays, broadcastable, operands, ordinary, rarely, values
from .calls import Call, call
from .judge import Entry
from .rules import FAMILIES, unbroadcastable

UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor isfinite isinf isnan log "
    "log10 log1p log2 logical_not negative positive reciprocal sign signbit sin sinh sqrt square tan tanh trunc"
)
BINARY = (
    "add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor divide equal floor_divide greater "
    "greater_equal less less_equal logical_and logical_or logical_xor maximum minimum multiply not_equal remainder "
    "subtract"
)
# Complex products, which NumPy rounds once or twice, depending on where the operands lie in memory.
FUSED = {"abs", "multiply", "square"}
FLOATING_BINARY = "atan2 copysign hypot logaddexp nextafter"


@st.composite
def where(draw: Any) -> Call:
    condition, *others = draw(operands(3))
    if isinstance(condition, np.ndarray) and draw(st.integers(0, 5)):
        condition = values(condition.shape, "bool", draw(st.integers(0, 99)))
    return Call((condition, *others), {})


@st.composite
def clip(draw: Any) -> Call:
    """Limits have the dtype of x, or rarely any; a scalar fits in it."""
    shapes, dtype = draw(broadcastable(3)), draw(st.sampled_from(ALL))
    foreign = tuple(d for d in ALL if FAMILIES[np.dtype(d).kind] != FAMILIES[np.dtype(dtype).kind])
    fitting = (0, 2, 100) if np.dtype(dtype).kind in "iu" else (0, 2, 2.5, float("nan"), float("-inf"))

    def limit(shape: Shape) -> Any:
        if draw(rarely):
            return draw(arrays(foreign, shape))
        return draw(st.none() | st.sampled_from(fitting) | arrays((dtype,), shape))

    names = draw(st.sampled_from([(), ("max",), ("min", "max")]))
    x, low, high = draw(arrays((dtype,), shapes[0])), limit(shapes[1]), limit(shapes[2])
    limits = {"min": low, "max": high}
    return Call((x, *(value for name, value in limits.items() if name not in names)), {n: limits[n] for n in names})


def where_by_numpy(condition: Any, x1: Any, x2: Any) -> np.ndarray:
    """A condition is of bools, and a Python int has to fit."""
    if np.asarray(condition).dtype != np.bool_:
        raise TypeError("the condition is not of bools")
    np.add(x1, x2)
    return np.where(condition, x1, x2)


def clip_by_numpy(x: Any, min: Any = None, max: Any = None) -> np.ndarray:  # noqa: A002 - the standard's names
    """Real numbers only."""
    if np.result_type(*(each for each in (x, min, max) if each is not None)).kind in "bc":
        raise TypeError("not of real numbers")
    return np.clip(x, min, max)


def numbers(function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """The function, which refuses bools."""

    def of_numbers(x: np.ndarray) -> Any:
        if x.dtype == np.bool_:
            raise TypeError("not of bools")
        return function(x)

    return of_numbers


def fitting(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The function, which refuses a Python int that does not fit the tensor's dtype."""

    def with_fitting(x1: Any, x2: Any) -> Any:
        np.add(x1, x2)
        return function(x1, x2)

    return with_fitting


def tame(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Special values of real numbers alone."""
    return (ordinary if dtype in COMPLEX else values)(shape, dtype, seed)


def values_for(name: str) -> dict[str, Any]:
    """The drawn arguments, and the comparison.

    A corrected ufunc gives the standard's special values, where NumPy has others, and complex results by formulas of
    its own: interpreter/ops/corrections.py, which has tests of its own.
    """
    if name == "floor_divide":  # of infinities
        return {"make": ordinary}
    if name in FUSED or getattr(find(name), "of_numpy", False):
        return {"make": tame, "loosely": True}
    return {"make": values}


def unary(name: str, **options: Any) -> Entry:
    drawn = values_for(name)
    return Entry(call(arrays(make=drawn.pop("make"))), **drawn, **options)


def binary(name: str, **options: Any) -> Entry:
    drawn = values_for(name)
    calls = st.builds(Call, operands(2, drawn.pop("make")), st.just({}))
    return Entry(calls, promotes=(0, 1), forbids=unbroadcastable, **drawn, **options)


ELEMENTWISE = {
    **{name: unary(name) for name in UNARY.split()},
    **{name: binary(name) for name in BINARY.split()},
    **{name: binary(name, numpy=fitting(getattr(np, name))) for name in FLOATING_BINARY.split()},
    "clip": Entry(clip(), promotes=(0, 1, 2, "min", "max"), numpy=clip_by_numpy, signed_zeros=False),
    "imag": unary("imag", numpy=numbers(np.imag)),
    "pow": binary("pow", late=True),
    "real": unary("real", numpy=numbers(np.real)),
    "round": unary("round", numpy=lambda x: x if x.dtype == np.bool_ else np.round(x)),
    "where": Entry(where(), promotes=(1, 2), forbids=unbroadcastable, numpy=where_by_numpy),
}


@each_case("name", ELEMENTWISE)
def test_elementwise(name, conforms):
    conforms(name, ELEMENTWISE[name])
