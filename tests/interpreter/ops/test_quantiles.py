"""Order statistics. How they compare with NumPy's is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.ops.quantiles import METHODS


def test_nothing_has_no_median_and_no_quantile(evaluate):
    assert np.isnan(evaluate("median", np.zeros((0, 3)), axis=0)).all()
    with pytest.raises(ValueError, match="no elements along axis 0"):
        evaluate("quantile", np.zeros((0, 3)), 0.5, axis=0)
    assert evaluate("quantile", np.zeros((0, 3)), 0.5, axis=1).shape == (0,)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_numpys_is_known(evaluate, assert_same, method):
    x, q = np.arange(5, dtype="int16"), np.array([0.1, 0.7])
    assert_same(evaluate("quantile", x, q, method=method), np.quantile(x, q, method=method))


@pytest.mark.parametrize(("q", "kind", "message"), [(1j, TypeError, "real number"), (True, TypeError, "real number")])
def test_what_is_no_fraction_is_refused(evaluate, q, kind, message):
    with pytest.raises(kind, match=message):
        evaluate("quantile", np.ones(3), q)
    with pytest.raises(ValueError, match="is no method"):
        evaluate("quantile", np.ones(3), 0.5, method="guess")
    with pytest.raises(TypeError, match="expected a str"):
        evaluate("quantile", np.ones(3), 0.5, method=None)
