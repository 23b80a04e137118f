"""Histograms. The comparison with NumPy is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.ops import histograms
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from ..conftest import evaluate_all
from .elsewhere import Elsewhere, evaluate_elsewhere, run_on

X = Meta.of((3,), "float64")


@each_case(
    ("metas", "attributes", "message"),
    [
        ([X, X], {}, "2 tensors do not match bins=10"),
        ([X], {"bins": None}, "1 tensors do not match bins=None"),
        ([X, X], {"weighted": True, "bins": 0}, "number of bins must be positive"),
        ([X, Meta.of((2, 2), "float64")], {"bins": None}, "edges must have one dimension"),
        ([X, Meta.of((0,), "float64")], {"bins": None}, "at least one edge"),
        ([X, Meta.of((2,), "complex64")], {"bins": None}, "edges must be real"),
        ([X, Meta.of((2,), "float64")], {"weighted": True}, "weights must have the shape of x"),
        ([X], {"bins": 2**61}, "too large for any memory"),
        ([X], {"range": (1.0, 0.0)}, "above the upper end"),
        ([X], {"range": (0.0, float("inf"))}, "finite"),
        ([X], {"range": 3}, "pair of numbers"),
    ],
)
def test_what_is_refused(metas, attributes, message):
    op = find("histogram")
    with pytest.raises(ValueError, match=message):
        infer_once(op, tuple(metas), op.freeze(attributes))


def test_data_that_are_not_fit_for_bins_are_a_fault(session):
    xp = session.xp
    for made in (xp.histogram(xp.asarray([1.0, np.nan])), xp.histogram(xp.ones(2), xp.asarray([2.0, 1.0]))):
        for result in made:
            with pytest.raises(ValueError, match=r"finite|monotonically"):
                result.numpy()
    counts, edges = xp.histogram(xp.asarray([1.0, np.nan]), bins=2, range=(0.0, 2.0))
    assert (counts.tolist(), edges.tolist()) == ([0, 1], [0.0, 1.0, 2.0])


@each_case("dtype", ["int8", "int64", "float32"])
def test_every_element_is_counted_once_elsewhere(dtype):
    limits = np.iinfo(dtype) if dtype != "float32" else np.finfo(dtype)
    x = np.array([limits.min / 2, -1, 0, 1, limits.max / 2, limits.max / 2], dtype)
    for given in ({"bins": 4}, {"bins": 3, "range": (-1.0, 1.0)}):
        np.testing.assert_array_equal(evaluate_elsewhere("histogram", x, **given), evaluate_first(x, **given))


@each_case("dtype", ["bool", "int8", "int64", "uint64", "float16", "float32", "float64"])
@each_case("limits", [None, (-1.0, 1.0), (0.0, 0.0), (-0.1, 7.3), (1e-300, 3e-300)])
def test_edges_are_numpys_elsewhere(dtype, limits):
    """The counts of elements on an edge are NumPy's, too."""
    for x in (np.arange(12) % 5 - (dtype[0] in "if"), np.zeros(0), np.full(3, 100)):
        for bins in (1, 3, 10, 97):
            given = {"bins": bins, "range": limits}
            found = outcome(Elsewhere(), x.astype(dtype), **given)
            assert found == outcome(np, x.astype(dtype), **given), (x, bins)


@each_case(("x", "message"), [([1e30], "Too many bins"), ([np.nan, 1.0], "not finite"), ([np.inf, 1.0], "not finite")])
def test_data_without_room_for_bins_are_refused_elsewhere_too(x, message):
    for xp in (np, Elsewhere()):
        with pytest.raises(ValueError, match=message):
            run_on(xp, "histogram", np.array(x), bins=5)


def outcome(xp, x, **attributes):
    """The results, or the error."""
    try:
        return [each.tolist() for each in run_on(xp, "histogram", x, **attributes)]
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("weighted", [False, True])
def test_nan_is_not_counted_elsewhere(weighted):
    x, weights = np.array([np.nan, 0.5, 1.5]), (np.array([4.0, 2.0, 1.0]),) if weighted else ()
    found = evaluate_elsewhere("histogram", x, *weights, bins=2, range=(0.0, 2.0), weighted=weighted)
    np.testing.assert_array_equal(found, [2, 1] if weighted else [1, 1])


@each_case("x", [[1.0, 2.0], [np.nan], []])
def test_one_edge_makes_no_bin_elsewhere(x):
    found = run_on(Elsewhere(), "histogram", np.array(x), np.array([1.0]), bins=None)
    assert [each.tolist() for each in found] == [[], [1.0]]


def test_more_edges_than_a_device_can_count_are_refused_there(monkeypatch):
    monkeypatch.setattr(histograms, "MAX_EDGES", 4)
    x = np.arange(5.0)
    assert evaluate_elsewhere("histogram", x, bins=3).sum() == 5
    with pytest.raises(ValueError, match="4 bins are too many for a GPU"):
        evaluate_elsewhere("histogram", x, bins=4)
    assert evaluate_first(x, bins=4).sum() == 5


def evaluate_first(*operands, **attributes):
    return evaluate_all("histogram", *operands, **attributes)[0]
