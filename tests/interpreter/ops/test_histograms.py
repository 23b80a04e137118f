"""Histograms. How they compare with NumPy's is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

X = Meta.of((3,), "float64")


@pytest.mark.parametrize(
    ("metas", "attributes", "message"),
    [
        ([X, X], {}, "2 tensors do not go with bins=10"),
        ([X], {"bins": None}, "1 tensors do not go with bins=None"),
        ([X, X], {"weighted": True, "bins": 0}, "number of bins is positive"),
        ([X, Meta.of((2, 2), "float64")], {"bins": None}, "edges have one dimension"),
        ([X, Meta.of((0,), "float64")], {"bins": None}, "there have to be edges"),
        ([X, Meta.of((2,), "complex64")], {"bins": None}, "real ones"),
        ([X, Meta.of((2,), "float64")], {"weighted": True}, "weights have the shape of x"),
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
