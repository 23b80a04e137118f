"""NaN and zeros in functions of order and equality: sets, sorting, searching; and matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ..each_case import each_case
from .batch import Batch, awake
from .conftest import TABLED
from .special import COMPLEX, REAL, join

INF, NAN = math.inf, math.nan
# Elements with three NaNs, which differ from each other, and zeros of both signs, which do not.
REPEATED = [NAN, 0.0, 2.0, -0.0, NAN, INF, -1.0, 0.0, INF, NAN]
DISTINCT = [-1.0, 0.0, 2.0, INF, NAN, NAN, NAN]
COUNTS = {-1.0: 1, 0.0: 3, 2.0: 1, INF: 2}
COMPLEX_REPEATED = [(NAN, 1.0), (0.0, -0.0), (NAN, 1.0), (-0.0, 0.0), (1.0, NAN), (1.0, 2.0), (1.0, 2.0), (NAN, NAN)]


@pytest.fixture(scope="module")
def started(session):
    return awake(session)


@pytest.fixture(params=TABLED)
def batch(request, started):
    return Batch(started, request.param)


def test_distinct_values_hold_every_nan_and_one_zero(batch):
    for dtype in REAL:
        found = batch.xp.unique_values(batch.tensor(REPEATED, dtype))
        batch.equal("unique_values", batch.xp.abs(batch.xp.sort(found)), np.abs(np.asarray(DISTINCT, dtype)))
    for dtype in COMPLEX:
        found = batch.xp.unique_values(batch.tensor(join(COMPLEX_REPEATED, dtype)))
        batch.equal("unique_values", batch.xp.count_nonzero(batch.xp.isnan(found)), 4)
        batch.expect("unique_values", found, lambda found: [] if found.size == 6 else [f"has {found.size} elements"])
    batch.settle()


def test_every_nan_counts_once_and_zeros_count_together(batch):
    for dtype in REAL:
        for unique in (batch.xp.unique_counts, batch.xp.unique_all):
            result = unique(batch.tensor(REPEATED, dtype))
            values, counts = batch.session.fetch([result.values, result.counts])
            nan = np.isnan(values)
            assert dict(zip(values[~nan].tolist(), counts[~nan].tolist(), strict=True)) == COUNTS
            assert counts[nan].tolist() == [1, 1, 1]
    for dtype in COMPLEX:
        result = batch.xp.unique_counts(batch.tensor(join(COMPLEX_REPEATED, dtype)))
        values, counts = batch.session.fetch([result.values, result.counts])
        assert counts[np.isnan(values)].tolist() == [1] * 4
        assert sorted(counts[~np.isnan(values)].tolist()) == [2, 2]


def test_inverse_indices_lead_to_equal_values_and_to_each_nan(batch):
    for dtype in REAL:
        x = np.asarray(REPEATED, dtype)
        for unique in (batch.xp.unique_inverse, batch.xp.unique_all):
            result = unique(batch.tensor(x))
            values, inverse = batch.session.fetch([result.values, result.inverse_indices])
            np.testing.assert_array_equal(values[inverse], x)
            assert len(set(inverse[np.isnan(x)].tolist())) == 3


def test_first_occurrences_are_where_the_values_are(batch):
    for dtype in REAL:
        x = np.asarray(REPEATED, dtype)
        result = batch.xp.unique_all(batch.tensor(x))
        values, indices, counts = batch.session.fetch([result.values, result.indices, result.counts])
        np.testing.assert_array_equal(x[indices], values)
        assert len(set(indices.tolist())) == len(values) == len(counts)
        assert indices[values == 0].tolist() == [1]


@each_case("descending", [False, True])
def test_a_stable_sort_keeps_zeros_of_both_signs_as_they_come(descending, batch):
    for dtype in REAL:
        x = np.asarray([1.0, 0.0, -0.0, -1.0, -0.0, 0.0], dtype)
        order = [0, 1, 2, 4, 5, 3] if descending else [3, 1, 2, 4, 5, 0]
        batch.equal("argsort", batch.xp.argsort(batch.tensor(x), descending=descending), order)
        batch.equal("sort", batch.xp.sort(batch.tensor(x), descending=descending), x[order])
    batch.settle()


@each_case("side", ["left", "right"])
def test_what_is_inserted_where_it_is_searched_is_sorted(side, batch):
    x2 = [NAN, -0.0, 0.0, INF, -INF, 0.5]
    for dtype in REAL:
        x1 = np.sort(np.asarray([0.0, -0.0, 1.0, -INF, INF, NAN, NAN], dtype))
        (indices,) = batch.session.fetch([batch.xp.searchsorted(batch.tensor(x1), batch.tensor(x2, dtype), side=side)])
        for value, index in zip(x2, indices, strict=True):
            inserted = np.insert(x1, index, value)
            batch.equal(f"sort with {value}", abs(batch.xp.sort(batch.tensor(inserted))), np.abs(inserted))
    batch.settle()


def test_logarithm_and_sign_of_a_zero_determinant(batch):
    for dtype in (*REAL, *COMPLEX):
        for matrix in (np.zeros((2, 2)), [[1.0, 2.0], [2.0, 4.0]], np.zeros((3, 3))):
            sign, logabsdet = batch.xp.linalg.slogdet(batch.tensor(matrix, dtype))
            batch.equal("sign", abs(sign), np.zeros((), dtype).real)
            batch.equal("logabsdet", logabsdet, np.asarray(-INF, np.finfo(dtype).dtype))
    batch.settle()


TRACES = [
    (np.zeros((0, 0)), 0.0),
    (np.zeros((0, 3)), 0.0),
    ([[1.0, NAN], [NAN, 2.0]], 3.0),
    ([[1.0, 0.0], [0.0, NAN]], NAN),
    ([[INF, 0.0], [0.0, 1.0]], INF),
    ([[INF, 0.0], [0.0, -INF]], NAN),
]


@each_case(("matrix", "expected"), TRACES)
def test_traces_are_sums(matrix, expected, batch):
    for dtype in (*REAL, *COMPLEX):
        found = batch.xp.linalg.trace(batch.tensor(matrix, dtype))
        batch.equal("trace", batch.xp.real(found), np.asarray(expected, np.finfo(dtype).dtype))
    batch.settle()


def test_the_trace_past_the_edge_is_that_of_nothing(batch):
    for dtype in REAL:
        batch.equal("trace", batch.xp.linalg.trace(batch.tensor(np.ones((2, 2)), dtype), offset=5), np.zeros((), dtype))
    batch.settle()
