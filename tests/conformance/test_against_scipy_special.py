"""The functions of `special`, which have SciPy's names and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from .arrays import FLOATING, REAL, arrays, broadcastable, rarely
from .calls import Call
from .judge import Entry
from .test_against_numpy_beyond import near

scipy_special = pytest.importorskip("scipy.special")
FRACTIONS = np.array([0.0, 1e-300, 1e-5, 0.1, 0.31, 0.5, 0.6, 0.75, 1 - 1e-9, 1.0, 1.5, -0.5, np.nan])
NUMBERS = np.array([0.0, -0.0, 1e-9, 0.3, 0.999, 1.0, 2.5, 6.0, 20.0, -1e-9, -0.3, -1.0, -3.5, np.inf, -np.inf, np.nan])


def chosen(pool: np.ndarray) -> Any:
    """Arrays of numbers from the pool; of small integers."""

    def values(shape: Any, dtype: str, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        if np.dtype(dtype).kind in "iu":
            return np.asarray(rng.integers(0, 4, shape)).astype(dtype)
        return np.asarray(rng.choice(pool, shape)).astype(dtype)

    return values


@st.composite
def one(draw: Any, pool: np.ndarray) -> Call:
    return Call((draw(arrays(FLOATING if draw(rarely) else REAL, None, chosen(pool))),), {})


@st.composite
def two(draw: Any) -> Call:
    dtypes = near(draw, REAL)
    return Call(tuple(draw(arrays(dtypes, shape, chosen(NUMBERS))) for shape in draw(broadcastable(2))), {})


def by_scipy(name: str) -> Any:
    """SciPy's values in float64, rounded to the promoted dtype; float64 for integers."""

    def function(*operands: np.ndarray) -> Any:
        dtype = np.result_type(*operands)
        if dtype.kind == "c":
            raise TypeError("not of real numbers")
        found = getattr(scipy_special, name)(*(each.astype(np.float64) for each in operands))
        return np.asarray(found).astype(dtype if dtype.kind == "f" else np.float64)

    return function


def special(name: str, calls: st.SearchStrategy[Call], **options: Any) -> Entry:
    return Entry(calls, text=by_scipy(name), ulps=8, signed_zeros=False, **options)


SPECIAL = {
    **{f"special.{name}": special(name, one(NUMBERS)) for name in ("entr", "erf", "erfc", "expit", "log_ndtr", "ndtr")},
    **{f"special.{name}": special(name, one(FRACTIONS)) for name in ("logit", "ndtri")},
    **{f"special.{name}": special(name, two(), promotes=(0, 1)) for name in ("kl_div", "rel_entr", "xlog1py", "xlogy")},
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special(name, conforms):
    conforms(name, SPECIAL[name], times=2)
