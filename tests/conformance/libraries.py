"""Programs of users of scikit-learn and SciPy, in a process of their own: SCIPY_ARRAY_API has to be set before SciPy is
imported. Nothing here knows tensord but the import of the namespace, and `.numpy()`, to look at results.

Python expressions such as `"PCA(n_components=2)"` and `"stats.skew(A, axis=1)"` are evaluated twice, on NumPy arrays
and on tensors. The results have to be equal in all their parts, and arrays have to be tensors on the data's device.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import tensord.array_api as xp

ROUNDING = {"float32": 1e-4, "float64": 1e-9}  # of results, against their largest element
METHODS = ("predict", "predict_proba", "decision_function", "score_samples", "transform")


def numbers(dtype: str) -> dict[str, np.ndarray]:
    """The arrays in the expressions.

    `X`: 40 rows in three groups, the labels `y`, and `z` with some wrong; `o`, `q`: the same of only two; `t`, `u`:
    reals that depend on X; `w`: weights; `P`: probabilities of the groups; `A`, `B`: positive numbers; `v`: a row.
    """
    rng = np.random.default_rng(7)
    y = np.arange(40) % 3
    z = np.where(np.arange(40) % 7 == 0, (y + 1) % 3, y)
    x = rng.normal(size=(40, 5)) + y[:, None] * [2.0, -1.0, 0.5, 0.0, 1.0]
    near, positive = rng.random((40, 3)) + np.eye(3)[y], rng.random((2, 6, 7)) + 0.1
    reals = {"X": x, "P": near / near.sum(1, keepdims=True), "A": positive[0], "B": positive[1]}
    reals["u"] = x @ [1.0, -2.0, 0.5, 0.0, 3.0]
    reals["t"], reals["w"], reals["v"] = reals["u"] + rng.normal(size=40), rng.random(40) + 0.5, rng.normal(size=64)
    labels = {"y": y, "z": z, "o": np.minimum(y, 1), "q": np.minimum(z, 1)}
    return labels | {name: array.astype(dtype) for name, array in reals.items()}


def check_expression(expression: str, names: Mapping[str, Any], device: str | None, dtype: str) -> None:
    """The expression has the same value on tensors. `device`: that of the tensors, by default the first device."""
    arrays = numbers(dtype)
    expected = value(expression, {**names, "xp": np, **arrays})
    with dispatching():
        found = value(expression, {**names, "xp": xp, **on(device, arrays)})
    Comparison(device, dtype).check(expression, found, expected)


def check_estimator(
    expression: str, names: Mapping[str, Any], device: str | None, dtype: str, *, slack: float = 1.0
) -> None:
    """The estimator learns the same from tensors, and its methods give the same for rows that it has not seen.

    `slack`: the factor by which results may differ more than by rounding.
    """
    from sklearn import base

    reference = value(expression, names)
    estimator, target = base.clone(reference), "y" if base.is_classifier(reference) else "t"
    arrays, comparison = numbers(dtype), Comparison(device, dtype, slack)
    reference.fit(arrays["X"][:30, :], np.abs(arrays[target][:30]))
    with dispatching():
        tensors = on(device, arrays)
        estimator.fit(tensors["X"][:30, :], xp.abs(tensors[target][:30]))
        for name, learned in vars(reference).items():
            if name.endswith("_") and isinstance(learned, np.ndarray):
                comparison.check(name, getattr(estimator, name), learned)
        for name in (name for name in METHODS if hasattr(reference, name)):
            found, expected = getattr(estimator, name)(tensors["X"][30:, :]), getattr(reference, name)(arrays["X"][30:])
            comparison.check(name, found, expected)
            if name == "transform" and hasattr(reference, "inverse_transform"):
                back = estimator.inverse_transform(found), reference.inverse_transform(expected)
                comparison.check("inverse_transform", *back)


def value(expression: str, names: Mapping[str, Any]) -> Any:
    """The value of the expression with those names."""
    return eval(expression, {**names})  # noqa: S307 - they are written in our tests


def dispatching() -> AbstractContextManager[None]:
    """Has scikit-learn, if it is imported, dispatch on the arrays' types."""
    if "sklearn" not in sys.modules:
        return nullcontext()
    import sklearn

    return sklearn.config_context(array_api_dispatch=True)


def on(device: str | None, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The arrays as tensors."""
    return {name: xp.asarray(array, device=device) for name, array in arrays.items()}


class Comparison:
    """Results on tensors against results on NumPy arrays."""

    def __init__(self, device: str | None, dtype: str, slack: float = 1.0) -> None:
        self.device = device or xp.__array_namespace_info__().default_device()
        self.dtype = dtype
        self.rounding = slack * ROUNDING[dtype]

    def check(self, what: str, found: Any, expected: Any) -> None:
        """Both are equal, in all their parts."""
        if isinstance(expected, np.ndarray):
            assert found.__array_namespace__() is xp, f"{what}: {type(found)}"
            assert found.device == self.device, f"{what} is on {found.device}"
            allowed = (expected.dtype, self.dtype)  # on NumPy arrays it may be float64 for any input
            assert found.dtype in allowed, f"{what}: {found.dtype}"
            self._check_values(what, found.numpy(), expected)
        elif isinstance(expected, np.generic | float | int):
            self._check_values(what, np.asarray(float(found)), np.asarray(expected))
        elif isinstance(expected, list | tuple):
            assert len(found) == len(expected), what
            for position, (one, other) in enumerate(zip(found, expected, strict=True)):
                self.check(f"{what}[{position}]", one, other)
        else:
            raise TypeError(f"{what}: there is no way to compare {type(expected)}")

    def _check_values(self, what: str, found: np.ndarray, expected: np.ndarray) -> None:
        assert found.shape == expected.shape, f"{what}: {found.shape}, not {expected.shape}"
        size = float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=size * self.rounding, err_msg=what)
