"""The number of a call as an array: NumPy computes the same with both, bit for bit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.types.meta import Meta
from tensord.vm.model.number import NumberArray, number_of

from ...each_case import each_case

DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
NUMBERS = [True, 0, 1, -3, 300, 1 << 40, 0.0, -0.0, 0.1, 1e300, math.inf, -math.inf, math.nan, 1j, -0.0 + 2.5j]
UFUNCS = sorted(name for name, op in REGISTRY.items() if op.ufunc is not None and op.inputs == 2)


def result(function: Any, *operands: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            found = function(*operands)
    except (TypeError, OverflowError, ValueError) as error:
        return type(error)
    return found.dtype, found.tobytes()


@each_case("name", UFUNCS)
def test_a_function_gives_the_same_bits_for_the_array_as_for_the_number(name: str) -> None:
    op, function = REGISTRY[name], getattr(np, str(REGISTRY[name].ufunc))
    for dtype, value in itertools.product(DTYPES, NUMBERS):
        x = np.array([0, 1, 2, 100], dtype)
        meta = Meta.of(x.shape, dtype)
        number = number_of(op, (meta, type(value)))
        assert number is not None
        with np.errstate(all="ignore"):
            held = number.of(value)
        if held is value:
            continue  # the dtype does not hold it, so it stays a Python number
        assert result(function, x, held) == result(function, x, value), (dtype, value)
        assert result(function, held, x) == result(function, value, x), (dtype, value)


def test_zeros_are_told_apart_by_their_signs() -> None:
    number = NumberArray(np.dtype("float64"))
    assert math.copysign(1, number.of(0.0)) == 1
    assert math.copysign(1, number.of(-0.0)) == -1


def test_a_number_that_is_refused_leaves_the_array_as_it_was() -> None:
    number = NumberArray(np.dtype("int8"))
    assert number.of(5) == 5
    assert number.of(300) == 300
    assert number.of(5) == 5


@each_case(
    ("name", "metas"),
    [
        ("add", (Meta.of((2,), "float32"), Meta.of((2,), "float32"))),
        ("negative", (Meta.of((2,), "float32"),)),
        ("where", (Meta.of((2,), "bool"), Meta.of((2,), "float32"), float)),
        ("add", (None, float)),
    ],
)
def test_other_calls_have_none(name: str, metas: Any) -> None:
    assert number_of(REGISTRY[name], metas) is None
