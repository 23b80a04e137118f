"""The special cases of functions of one complex number, with the symmetries that make rules of a half plane whole."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from ..each_case import each_case
from .batch import Batch, awake
from .conftest import TABLED
from .special import COMPLEX, NEAR, PARTS, Case, Result, cases_of, finite_values, join, symmetric, turned
from .tables_complex import (
    BRANCH_CUTS,
    COMPLEX_ABS,
    COMPLEX_PREDICATES,
    COMPLEX_SIGN,
    COMPLEX_UNARY,
    LOGARITHMS,
    PARITY,
    TURNED,
)
from .tables_unary import REAL_UNARY

ANALYTIC = (*COMPLEX_UNARY, *TURNED, *LOGARITHMS)
INF, NAN = math.inf, math.nan


@pytest.fixture(scope="module")
def started(session):
    return awake(session)


@pytest.fixture(params=TABLED)
def batch(request, started):
    return Batch(started, request.param)


def complex_cases(name: str, part: str) -> list[Case]:
    """All cases of a function, of parts of that dtype."""
    if name in TURNED:
        base, back = TURNED[name]
        return turned(complex_cases(base, part), back=back)
    if name in LOGARITHMS:
        return [scaled(case, LOGARITHMS[name]) for case in complex_cases("log", part)]
    return symmetric(cases_of(COMPLEX_UNARY[name], part), PARITY.get(name, ""))


def scaled(case: Case, base: float) -> Case:
    """The same case of the logarithm to that base."""
    results = (Result(r.value / math.log(base), NEAR) if r.how == NEAR else r for r in case.results)
    return Case(case.operands, tuple(results), case.line)


@each_case("name", ANALYTIC)
def test_functions(name, batch):
    for dtype in COMPLEX:
        batch.cases(getattr(batch.xp, name), complex_cases(name, PARTS[dtype]), dtype)
    batch.settle()


@each_case("name", BRANCH_CUTS)
def test_branch_cuts(name, batch):
    for dtype in COMPLEX:
        batch.cases(getattr(batch.xp, name), symmetric(cases_of(BRANCH_CUTS[name], PARTS[dtype])), dtype)
    batch.settle()


@each_case("name", ANALYTIC)
def test_the_function_of_the_conjugate_is_the_conjugate(name, batch):
    function, conj = getattr(batch.xp, name), batch.xp.conj
    for dtype in COMPLEX:
        x = batch.tensor(plane(dtype))
        there, back = batch.session.fetch([function(conj(x)), conj(function(x))])
        batch.equal(f"real({name})", batch.tensor(there.real), back.real)
        finite = np.isfinite(back)  # the sign of other numbers may be unspecified
        batch.equal(f"imag({name})", batch.tensor(there.imag[finite]), back.imag[finite])
    batch.settle()


def plane(dtype: str) -> np.ndarray:
    """Points all over the complex plane, on the axes, too."""
    values = [*finite_values(PARTS[dtype])[:-1], 0.1, -0.7, 5.0]
    return join([(a, b) for a in values for b in values], dtype)


@each_case("name", COMPLEX_PREDICATES)
def test_predicates(name, batch):
    for dtype in COMPLEX:
        batch.cases(getattr(batch.xp, name), cases_of(COMPLEX_PREDICATES[name], PARTS[dtype]), dtype)
    batch.settle()


@each_case(("name", "table"), [("abs", COMPLEX_ABS), ("sign", COMPLEX_SIGN)])
def test_magnitude_and_direction(name, table, batch):
    for dtype in COMPLEX:
        cases = cases_of(table, PARTS[dtype])
        batch.cases(getattr(batch.xp, name), cases, dtype)
    batch.settle()


def test_magnitudes_neither_overflow_nor_underflow(batch):
    for dtype in COMPLEX:
        limits = np.finfo(PARTS[dtype])
        for scale in (float(limits.max) / 8, float(limits.smallest_normal)):
            found = batch.xp.abs(batch.tensor([complex(3 * scale, -4 * scale)], dtype))
            near = 4 * float(limits.eps) if batch.rounded else 0.0
            batch.expect("abs", found, partial(unlike_five, scale=scale, near=near))
    batch.settle()


def unlike_five(found: np.ndarray, scale: float, near: float) -> list[str]:
    """The value, unless it is five times the scale to that precision."""
    return [] if abs(found / scale - 5) <= near else [repr(found)]


@each_case("name", ["negative", "positive", "conj", "real", "imag"])
def test_parts_and_signs(name, batch):
    values = [0.0, -0.0, 1.5, -2.0, INF, -INF, NAN]
    for dtype in COMPLEX:
        x = join([(a, b) for a in values for b in values], dtype)
        expected = {
            "negative": (-x.real, -x.imag),
            "positive": (x.real, x.imag),
            "conj": (x.real, -x.imag),
            "real": (x.real,),
            "imag": (x.imag,),
        }[name]
        found = getattr(batch.xp, name)(batch.tensor(x))
        if len(expected) == 1:
            batch.equal(name, found, expected[0])
        else:
            batch.equal(f"real({name})", batch.xp.real(found), expected[0])
            batch.equal(f"imag({name})", batch.xp.imag(found), expected[1])
    batch.settle()


def test_parts_are_rounded_independently(batch):
    for dtype in COMPLEX:
        cases = both_parts(cases_of(REAL_UNARY["round"], PARTS[dtype]))
        batch.cases(batch.xp.round, cases, dtype)
    batch.settle()


def both_parts(cases: list[Case]) -> list[Case]:
    """Complex cases whose parts are these real ones, each with each."""
    return [
        Case((*a.operands, *b.operands), (*a.results, *b.results), f"{a.line}, {b.line}") for a in cases for b in cases
    ]


def test_a_reciprocal_is_a_quotient_and_a_square_a_product(batch):
    values = [0.0, -0.0, 1.0, -0.5, 3.0, INF, -INF, NAN]
    for dtype in COMPLEX:
        x = batch.tensor(join([(a, b) for a in values for b in values], dtype))
        quotient, product = batch.session.fetch([1.0 / x, x * x])
        for label, found, expected in (
            ("reciprocal", batch.xp.reciprocal(x), quotient),
            ("square", batch.xp.square(x), product),
        ):
            batch.equal(f"real({label})", batch.xp.real(found), expected.real)
            batch.equal(f"imag({label})", batch.xp.imag(found), expected.imag)
    batch.settle()


def test_log1p_and_expm1_keep_the_digits_of_small_numbers(batch):
    for dtype in COMPLEX:
        small = float(np.finfo(dtype).eps) / 4
        for name in ("log1p", "expm1"):
            found = getattr(batch.xp, name)(batch.tensor(join([(small, small), (-small, small)], dtype)))
            batch.equal(f"real({name})", batch.xp.real(found), np.array([small, -small], PARTS[dtype]))
    batch.settle()


@each_case("name", PARITY)
def test_odd_and_even_functions(name, batch):
    function = getattr(batch.xp, name)
    for dtype in COMPLEX:
        x = batch.tensor(plane(dtype))
        there, back = batch.session.fetch([function(-x), function(x)])
        finite = np.isfinite(back)
        expected = back[finite] if PARITY[name] == "even" else -back[finite]
        batch.equal(f"real({name})", batch.tensor(there.real[finite]), expected.real)
        batch.equal(f"imag({name})", batch.tensor(there.imag[finite]), expected.imag)
    batch.settle()
