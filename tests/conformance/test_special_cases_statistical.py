"""The special cases of reductions and of running sums and products: nothing to reduce, NaN, infinities, zeros.

Rows are (operands, the result), results of real numbers with the sign of zeros.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ..each_case import each_case
from .batch import Batch, awake
from .conftest import TABLED
from .special import COMPLEX, PARTS, REAL, join

INF, NAN = math.inf, math.nan

REAL_ROWS: dict[str, list[tuple[list[float], Any]]] = {
    # Additions one after the other.
    "sum": [
        ([], 0.0),
        ([1.0, NAN, 2.0], NAN),
        ([INF, 1.0], INF),
        ([-INF, 1.0, -INF], -INF),
        ([INF, -INF], NAN),
        ([1.0, INF, -INF, INF], NAN),
        ([-0.0, 0.0], 0.0),
        ([0.0, -0.0], 0.0),
        ([1.5, -1.5], 0.0),
    ],
    # Multiplications one after the other.
    "prod": [
        ([], 1.0),
        ([1.0, NAN, 2.0], NAN),
        ([0.0, NAN], NAN),
        ([INF, 0.0], NAN),
        ([-0.0, INF, 2.0], NAN),
        ([INF, -2.0], -INF),
        ([-INF, -INF], INF),
        ([0.0, -2.0], -0.0),
        ([-0.0, -3.0], 0.0),
        ([-0.0], -0.0),
    ],
    "max": [
        ([NAN, 1.0], NAN),
        ([1.0, NAN], NAN),
        ([INF, NAN, -INF], NAN),
        ([-INF, -INF], -INF),
        ([-INF, 3.0, INF], INF),
    ],
    "min": [
        ([NAN, 1.0], NAN),
        ([1.0, NAN], NAN),
        ([INF, NAN, -INF], NAN),
        ([INF, INF], INF),
        ([INF, 3.0, -INF], -INF),
    ],
    "mean": [
        ([], NAN),
        ([1.0, NAN], NAN),
        ([INF, 1.0], INF),
        ([INF, -INF], NAN),
        ([3.0], 3.0),
    ],
    # Divided by n - correction, which is not positive for an empty row.
    "var": [
        ([], NAN),
        ([1.0, NAN], NAN),
        ([INF, 1.0], NAN),
        ([3.0], 0.0),
        ([1.0, 3.0], 1.0),
    ],
    "std": [
        ([], NAN),
        ([1.0, NAN], NAN),
        ([INF, 1.0], NAN),
        ([3.0], 0.0),
        ([1.0, 3.0], 1.0),
    ],
    # Infinities and NaN are true, zeros of both signs are false.
    "all": [
        ([], True),
        ([NAN, INF, -INF, 1.0], True),
        ([1.0, -0.0], False),
        ([0.0], False),
        ([NAN], True),
    ],
    "any": [
        ([], False),
        ([0.0, NAN], True),
        ([0.0, -0.0], False),
        ([0.0, -INF], True),
        ([INF], True),
    ],
    "count_nonzero": [
        ([], 0),
        ([0.0, -0.0], 0),
        ([NAN, INF, 0.0, -1.0], 3),
    ],
}

# Elements and results as (real, imaginary) parts.
COMPLEX_ROWS = {
    "sum": [
        ([], (0.0, 0.0)),
        ([(NAN, 1.0), (1.0, 2.0)], (NAN, 3.0)),
        ([(INF, 1.0), (1.0, -INF)], (INF, -INF)),
        ([(INF, 1.0), (-INF, 2.0)], (NAN, 3.0)),
    ],
    "prod": [
        ([], (1.0, 0.0)),
        ([(1.0, 2.0), (3.0, -1.0)], (5.0, 5.0)),
        ([(NAN, NAN), (NAN, NAN)], (NAN, NAN)),
    ],
    # Part by part, which NumPy does not do.
    "mean": [
        ([], (NAN, NAN)),
        ([(NAN, 1.0), (1.0, 3.0)], (NAN, 2.0)),
        ([(1.0, NAN), (3.0, 1.0)], (2.0, NAN)),
        ([(INF, 1.0), (1.0, 3.0)], (INF, 2.0)),
        ([(NAN, INF), (1.0, 3.0)], (NAN, INF)),
    ],
}
COMPLEX_TRUTHS: dict[str, list[tuple[list[tuple[float, float]], int]]] = {
    "all": [([], True), ([(0.0, NAN), (INF, 0.0)], True), ([(-0.0, 0.0)], False), ([(0.0, 1.0)], True)],
    "any": [([], False), ([(0.0, 0.0), (-0.0, -0.0)], False), ([(0.0, NAN)], True), ([(0.0, -1.0)], True)],
    "count_nonzero": [([(0.0, 1.0), (1.0, 0.0), (0.0, -0.0), (NAN, 0.0)], 3)],
}

CUMULATIVE_ROWS = {
    "cumulative_sum": [
        ([], []),
        ([1.0, NAN, 2.0], [1.0, NAN, NAN]),
        ([INF, 1.0, -INF, INF], [INF, INF, NAN, NAN]),
        ([-0.0, -0.0, 0.0], [-0.0, -0.0, 0.0]),
        ([1.5, -1.5, -0.0], [1.5, 0.0, 0.0]),
    ],
    "cumulative_prod": [
        ([], []),
        ([2.0, NAN, 0.0], [2.0, NAN, NAN]),
        ([INF, -1.0, 0.0, 2.0], [INF, -INF, NAN, NAN]),
        ([-0.0, 2.0, -1.0], [-0.0, -0.0, 0.0]),
    ],
}
INITIAL = {"cumulative_sum": 0.0, "cumulative_prod": 1.0}


@pytest.fixture(scope="module")
def started(session):
    return awake(session)


@pytest.fixture(params=TABLED)
def batch(request, started):
    return Batch(started, request.param)


def in_dtype(result: float | bool, dtype: str) -> np.ndarray:
    """Results of floats are of their dtype; truths and counts of their own."""
    return np.asarray(result, dtype if isinstance(result, float) else None)


@each_case("name", REAL_ROWS)
def test_real_reductions(name, batch):
    reduce = getattr(batch.xp, name)
    for dtype in REAL:
        for values, expected in REAL_ROWS[name]:
            whole = in_dtype(expected, dtype)
            batch.equal(f"{name} of {values}", reduce(batch.tensor(values, dtype)), whole)
            rows = batch.tensor([values, values, values], dtype)
            batch.equal(f"{name} of rows {values}", reduce(rows, axis=1), np.stack([whole] * 3))
            columns = reduce(batch.tensor(np.asarray([values] * 3, dtype).T.copy()), axis=0, keepdims=True)
            batch.equal(f"{name} of columns {values}", columns, np.stack([whole] * 3)[None])
    batch.settle()


@each_case("name", ["sum", "prod", "max", "min", "mean", "var", "std"])
def test_nan_among_many(name, batch):
    for dtype in REAL:
        for position in (0, 17, 99):
            values = np.ones(100, dtype)
            values[position] = NAN
            batch.equal(name, getattr(batch.xp, name)(batch.tensor(values)), np.asarray(NAN, dtype))
    batch.settle()


@each_case("name", ["var", "std"])
@each_case("correction", [2, 2.5, 1e300])
def test_no_freedom_left_by_the_correction(name, correction, batch):
    for dtype in REAL:
        found = getattr(batch.xp, name)(batch.tensor([1.0, 3.0], dtype), correction=correction)
        batch.equal(name, found, np.asarray(NAN, dtype))
    batch.settle()


@each_case("correction", [0, 0.5, 1, 1.5, 2, 3])
def test_the_correction_is_taken_from_the_number_of_elements(correction, batch):
    values = [1.0, 2.0, 4.0, 9.0]  # 38 is the sum of the squares of their distances from the mean
    for dtype in REAL:
        expected = np.asarray(38.0 / (4 - correction), dtype)
        batch.equal("var", batch.xp.var(batch.tensor(values, dtype), correction=correction), expected)
        batch.equal("std", batch.xp.std(batch.tensor(values, dtype), correction=correction), np.sqrt(expected))
    batch.settle()


@each_case("name", COMPLEX_ROWS)
def test_complex_reductions(name, batch):
    for dtype in COMPLEX:
        for values, expected in COMPLEX_ROWS[name]:
            found = getattr(batch.xp, name)(batch.tensor(join(values, dtype)))
            for part, value in zip((batch.xp.real, batch.xp.imag), expected, strict=True):
                batch.equal(f"{name} of {values}", part(found), np.asarray(value, PARTS[dtype]))
    batch.settle()


@each_case("name", COMPLEX_TRUTHS)
def test_complex_numbers_are_true_unless_both_parts_are_zero(name, batch):
    for dtype in COMPLEX:
        for values, expected in COMPLEX_TRUTHS[name]:
            batch.equal(f"{name} of {values}", getattr(batch.xp, name)(batch.tensor(join(values, dtype))), expected)
    batch.settle()


@each_case(("name", "nothing"), [("sum", 0), ("prod", 1)])
@each_case("dtype", ["int8", "int64", "uint16"])
def test_nothing_but_integers(name, nothing, dtype, batch):
    found = getattr(batch.xp, name)(batch.tensor(np.zeros((2, 0), dtype)), axis=1)
    batch.equal(name, found, np.full(2, nothing))
    batch.settle()


@each_case("name", CUMULATIVE_ROWS)
def test_running_sums_and_products(name, batch):
    running = getattr(batch.xp, name)
    for dtype in REAL:
        for values, results in CUMULATIVE_ROWS[name]:
            expected = np.asarray(results, dtype)
            batch.equal(f"{name} of {values}", running(batch.tensor(values, dtype)), expected)
            initial = np.concatenate([np.asarray([INITIAL[name]], dtype), expected])
            # The initial value is put in front of the results, and is not added to them: +0 + -0 would give +0.
            found = running(batch.tensor(values, dtype), include_initial=True)
            batch.equal(f"{name} of {values}, with the initial value", found, initial)
    batch.settle()


def test_running_sums_of_complex_numbers_are_those_of_the_parts(batch):
    for dtype in COMPLEX:
        found = batch.xp.cumulative_sum(batch.tensor(join([(1.0, INF), (NAN, 1.0), (2.0, -INF)], dtype)))
        batch.equal("real", batch.xp.real(found), np.asarray([1, NAN, NAN], PARTS[dtype]))
        batch.equal("imag", batch.xp.imag(found), np.asarray([INF, INF, NAN], PARTS[dtype]))
    batch.settle()


def test_where_nonzero_elements_are(batch):
    for dtype in REAL:
        (found,) = batch.xp.nonzero(batch.tensor([0.0, NAN, -0.0, INF], dtype))
        batch.equal("nonzero", found, [1, 3])
    for dtype in COMPLEX:
        (found,) = batch.xp.nonzero(batch.tensor(join([(0.0, -0.0), (0.0, 1.0), (NAN, 0.0)], dtype)))
        batch.equal("nonzero", found, [1, 2])
    batch.settle()
