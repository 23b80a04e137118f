"""The special cases of arithmetic and comparison of complex numbers, as functions and as operators."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from ..each_case import each_case
from .batch import Batch, awake
from .conftest import TABLED
from .special import COMPLEX, PARTS, Case, cases_of, join
from .tables_binary import REAL_BINARY
from .tables_complex import COMPLEX_BINARY

OPERATORS = {
    "divide": operator.truediv,
    "equal": operator.eq,
    "multiply": operator.mul,
    "not_equal": operator.ne,
    "pow": operator.pow,
}


@pytest.fixture(scope="module")
def started(session):
    return awake(session)


@pytest.fixture(params=TABLED)
def batch(request, started):
    return Batch(started, request.param)


@each_case("name", COMPLEX_BINARY)
def test_functions_and_operators(name, batch):
    for dtype in COMPLEX:
        cases = cases_of(COMPLEX_BINARY[name], PARTS[dtype])
        for function in (getattr(batch.xp, name), OPERATORS[name]):
            batch.cases(function, cases, dtype, name)
    batch.settle()


@each_case("name", ["divide", "multiply", "pow"])
def test_operators_in_place(name, batch):
    function = {"divide": operator.itruediv, "multiply": operator.imul, "pow": operator.ipow}[name]
    for dtype in COMPLEX:
        batch.cases(function, cases_of(COMPLEX_BINARY[name], PARTS[dtype]), dtype)
    batch.settle()


def test_sums_and_differences_are_those_of_the_parts(batch):
    for dtype in COMPLEX:
        cases = apart(cases_of(REAL_BINARY["add"].replace("x2", "0+x2"), PARTS[dtype]))
        for function in (batch.xp.add, operator.add, operator.iadd):
            batch.cases(function, cases, dtype, "add")
        negated = [Case((a, b, -c, -d), results, line) for (a, b, c, d), results, line in cases]
        for function in (batch.xp.subtract, operator.sub, operator.isub):
            batch.cases(function, negated, dtype, "subtract")
    batch.settle()


def apart(cases: list[Case]) -> list[Case]:
    """Complex cases whose parts are two of these real ones; each is once in either place, with a far one."""
    paired = zip(cases, cases[len(cases) // 2 :] + cases[: len(cases) // 2], strict=True)
    return [
        Case(
            (one.operands[0], other.operands[0], one.operands[1], other.operands[1]),
            (*one.results, *other.results),
            f"{one.line}, {other.line}",
        )
        for one, other in paired
    ]


def test_the_standards_example_of_a_sum(batch):
    for dtype in COMPLEX:
        z1, z2, expected = (join([parts], dtype) for parts in ((-0.0, 0.0), (-0.0, -0.0), (-0.0, 0.0)))
        total = batch.tensor(z1) + batch.tensor(z2)
        batch.equal("real(z1 + z2)", batch.xp.real(total), expected.real)
        batch.equal("imag(z1 + z2)", batch.xp.imag(total), expected.imag)
    batch.settle()


def test_quotients_of_ordinary_numbers_are_the_textbooks(batch):
    values = [0.5, -1.0, 3.0, 0.0, -2.5]
    for dtype in COMPLEX:
        plane = join([(a, b) for a in values for b in values], dtype)
        x1, x2 = (each.ravel() for each in np.meshgrid(plane, plane[plane != 0]))
        a, b, c, d = x1.real, x1.imag, x2.real, x2.imag
        norm = c * c + d * d
        textbook = join(list(zip((a * c + b * d) / norm, (b * c - a * d) / norm, strict=True)), dtype)
        close = 4 * np.finfo(dtype).eps
        quotient = batch.tensor(x1) / batch.tensor(x2)
        batch.expect(
            "divide",
            batch.xp.abs(quotient - batch.tensor(textbook)) <= close * batch.xp.abs(batch.tensor(textbook)),
            lambda found: [] if found.all() else [f"{np.count_nonzero(~found)} are not the textbook's"],
        )
    batch.settle()


def test_what_complex_zero_divides_is_not_finite(batch):
    for dtype in COMPLEX:
        zeros = join([(0.0, 0.0), (-0.0, 0.0), (0.0, -0.0), (-0.0, -0.0)], dtype)
        for x1 in (1 + 0j, -2j, 3 - 4j, 0j):
            batch.equal("divide", batch.xp.isfinite(x1 / batch.tensor(zeros)), [False] * 4)
    batch.settle()
