"""The special cases of elementwise functions of real numbers, as functions and as operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..each_case import each_case
from .batch import Batch, awake
from .conftest import TABLED
from .special import REAL, Case, cases_of, finite_values
from .tables_binary import CLIP, INTEGER_BINARY, REAL_BINARY
from .tables_unary import REAL_UNARY

OPERATORS = {
    "__add__": "add",
    "__eq__": "equal",
    "__floordiv__": "floor_divide",
    "__mod__": "remainder",
    "__mul__": "multiply",
    "__ne__": "not_equal",
    "__pow__": "pow",
    "__sub__": "subtract",
    "__truediv__": "divide",
}
COMPARISONS = {"__eq__", "__ne__"}
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Properties that hold for an argument and its negative: equal results, or negative ones.
PARITY = {"cosh": 1.0, "sinh": -1.0, "tanh": -1.0}


@pytest.fixture(scope="module")
def started(session):
    return awake(session)


@pytest.fixture(params=TABLED)
def batch(request, started):
    return Batch(started, request.param)


def binary_cases(name: str, dtype: str) -> list[Case]:
    """x1 - x2 is x1 + (-x2)."""
    if name != "subtract":
        return cases_of(REAL_BINARY[name], dtype)
    return [
        Case((case.operands[0], -case.operands[1]), case.results, f"{case.line}  (x2 negated)")
        for case in cases_of(REAL_BINARY["add"].replace("x2", "0+x2"), dtype)
    ]


def operator_function(name: str) -> Callable[..., Any]:
    """Python's operators; of two operands, either may be the tensor."""
    return getattr(operator, name)


@each_case("name", REAL_UNARY)
def test_functions_of_one_operand(name, batch):
    for dtype in REAL:
        batch.cases(getattr(batch.xp, name), cases_of(REAL_UNARY[name], dtype), dtype)
    batch.settle()


@each_case("name", [*REAL_BINARY, "subtract"])
def test_functions_of_two_operands(name, batch):
    for dtype in REAL:
        batch.cases(getattr(batch.xp, name), binary_cases(name, dtype), dtype)
    batch.settle()


@each_case("name", [*REAL_BINARY, "subtract"])
def test_functions_of_a_tensor_and_a_number(name, batch):
    for position, dtype in enumerate(REAL):
        batch.scalars(getattr(batch.xp, name), binary_cases(name, dtype), dtype, position)
    batch.settle()


@each_case("name", OPERATORS)
def test_operators(name, batch):
    for position, dtype in enumerate(reversed(REAL)):
        cases = binary_cases(OPERATORS[name], dtype)
        batch.cases(operator_function(name), cases, dtype)
        batch.scalars(operator_function(name), cases, dtype, position)
    batch.settle()


@each_case("name", sorted(OPERATORS.keys() - COMPARISONS))
def test_operators_in_place(name, batch):
    for dtype in REAL:
        batch.cases(operator_function(f"__i{name[2:]}"), binary_cases(OPERATORS[name], dtype), dtype)
    batch.settle()


def test_abs_as_an_operator(batch):
    for dtype in REAL:
        batch.cases(operator.abs, cases_of(REAL_UNARY["abs"], dtype), dtype)
    batch.settle()


def test_clip(batch):
    for dtype in REAL:
        cases = cases_of(CLIP, dtype)
        batch.cases(batch.xp.clip, cases, dtype)
        for case in cases:
            x, *limits = case.operands
            batch.equal("clip to scalars", batch.xp.clip(batch.tensor([x], dtype), *limits), [case.results[0].value])
    batch.settle()


@each_case("limits", [{"min": float("nan")}, {"max": float("nan")}])
def test_clip_on_one_side(limits, batch):
    for dtype in REAL:
        batch.equal("clip", batch.xp.clip(batch.tensor([1, np.inf], dtype), **limits), [np.nan] * 2)
        (side,) = limits
        batch.equal("clip", batch.xp.clip(batch.tensor([np.nan], dtype), **{side: 1.0}), [np.nan])
    batch.settle()


@each_case("name", PARITY)
def test_symmetries(name, batch):
    function = getattr(batch.xp, name)
    for dtype in REAL:
        x = np.array([*finite_values(dtype), 0.1, 0.7, 5.0, 11.0, np.inf, np.nan], dtype)
        batch.equal(name, function(batch.tensor(x)) * PARITY[name] - function(batch.tensor(-x)), vanishing(name, x))
    batch.settle()


def vanishing(name: str, x: np.ndarray) -> np.ndarray:
    """The difference of equal numbers: nothing, but for infinities and NaN."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(getattr(np, name)(x)), 0.0, np.nan)


def test_hypot_knows_no_signs_and_no_order(batch):
    for dtype in REAL:
        values = np.array([*finite_values(dtype), np.inf, np.nan], dtype)
        x1, x2 = map(np.ravel, np.meshgrid(values, values))
        hypot = batch.xp.hypot
        reference = batch.session.fetch([hypot(batch.tensor(x1), batch.tensor(x2))])[0]
        for one, other in ((x2, x1), (x1, -x2), (-x1, x2), (-x1, -x2)):
            batch.equal("hypot", hypot(batch.tensor(one), batch.tensor(other)), reference)
    batch.settle()


@each_case("name", ["ceil", "floor", "round", "trunc"])
def test_what_is_whole_is_not_rounded(name, batch):
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        values = np.array([limits.min, 0, 1, 7, limits.max], dtype)
        batch.equal(name, getattr(batch.xp, name)(batch.tensor(values)), values)
    batch.settle()


@each_case("name", INTEGER_BINARY)
def test_integers(name, batch):
    for dtype in INTEGERS:
        cases = [c for c in cases_of(INTEGER_BINARY[name], "float64") if min(c.operands) >= np.iinfo(dtype).min]
        batch.cases(getattr(batch.xp, name), cases, dtype)
    batch.settle()


def test_sign_of_integers(batch):
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        values = np.array([limits.min, 0, 1, limits.max], dtype)
        batch.equal("sign", batch.xp.sign(batch.tensor(values)), [-1 if limits.min else 0, 0, 1, 1])
    batch.settle()


@each_case(
    ("name", "expected"),
    [
        ("logical_and", [False, True, True]),
        ("logical_or", [True, True, True]),
        ("logical_xor", [True, False, False]),
    ],
)
def test_zeros_are_false_and_all_else_is_true(name, expected, batch):
    for dtype in REAL:
        x1, x2 = np.array([-0.0, np.nan, np.inf], dtype), np.array([np.nan, -np.inf, 1], dtype)
        batch.equal(name, getattr(batch.xp, name)(batch.tensor(x1), batch.tensor(x2)), expected)
        batch.equal("logical_not", batch.xp.logical_not(batch.tensor(x1)), [True, False, False])
        batch.equal("astype", batch.xp.astype(batch.tensor(x1), batch.xp.bool), [False, True, True])
    batch.settle()
