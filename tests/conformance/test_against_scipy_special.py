"""The functions of `special`, which have SciPy's names and values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from .arrays import FLOATING, REAL, REAL_FLOATING, arrays, broadcastable, rarely
from .calls import Call
from .judge import Entry
from .test_against_numpy_beyond import near

scipy_special = pytest.importorskip("scipy.special")
FRACTIONS = np.array([0.0, 1e-300, 1e-5, 0.1, 0.31, 0.5, 0.6, 0.75, 1 - 1e-9, 1.0, 1.5, -0.5, np.nan])
NUMBERS = np.array([0.0, -0.0, 1e-9, 0.3, 0.999, 1.0, 2.5, 6.0, 20.0, -1e-9, -0.3, -1.0, -3.5, np.inf, -np.inf, np.nan])


def chosen(pool: np.ndarray) -> Any:
    """Arrays of numbers from the pool; of small integers. The same function for the same pool, as `arrays` needs it."""
    return chosen_of(pool.tobytes())


@cache
def chosen_of(pool_bytes: bytes) -> Any:
    pool = np.frombuffer(pool_bytes)

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
        dtype = np.result_type(*(each for each in operands if isinstance(each, np.ndarray)))
        if dtype.kind == "c":
            raise TypeError("not of real numbers")
        found = getattr(scipy_special, name)(
            *(each.astype(np.float64) if isinstance(each, np.ndarray) else each for each in operands)
        )
        return np.asarray(found).astype(dtype if dtype.kind == "f" else np.float64)

    return function


def special(name: str, calls: st.SearchStrategy[Call], ulps: int = 64, **options: Any) -> Entry:
    return Entry(calls, text=by_scipy(name), ulps=ulps, signed_zeros=False, **options)


POSITIVE = np.array(
    [1e-9, 0.01, 0.3, 0.5, 0.999, 1.0, 1.4616, 1.5, 2.0, 3.7, 7.9, 8.0, 9.5, 10.0, 24.0, 26.5, 41.0, 110.0]
)
SIGNED = np.concatenate([POSITIVE, -POSITIVE])
WHOLE = np.arange(40.0)


@st.composite
def drawn(draw: Any, *pools: np.ndarray) -> Call:
    """One operand from each pool; a pool of integers gives integers in any dtype."""
    dtypes = near(draw, REAL_FLOATING)
    shapes = draw(broadcastable(len(pools)))
    return Call(tuple(draw(arrays(dtypes, shape, chosen(pool))) for shape, pool in zip(shapes, pools, strict=True)), {})


# Functions and their operands.
DEGREES = ("sindg", "cosdg", "tandg")
EASY = ("erfcx", "erfinv", "erfcinv", "cbrt", "sinc", "cosm1", "exp2", "exp10", "exprel", "expi", *DEGREES)
GAMMA = ("gamma", "gammaln", "rgamma", "gammasgn", "psi", "digamma")
BESSEL = ("i0", "i0e", "i1", "i1e", "j0", "j1")
LOGARITHMIC = ("k0", "k0e", "k1", "k1e", "y0", "y1", "exp1", "loggamma", "ellipkm1")
PAIRS = ("gammainc", "gammaincc", "chdtr", "chdtrc", "beta", "betaln", "poch", "boxcox", "boxcox1p", "inv_boxcox")
UNARY = {
    **dict.fromkeys((*EASY, *GAMMA, *BESSEL), SIGNED),
    **dict.fromkeys(LOGARITHMIC, POSITIVE),
    "ellipk": FRACTIONS,
    "cotdg": POSITIVE[3:],
    "zetac": SIGNED[SIGNED < 30],
}
OPERANDS = {
    **dict.fromkeys((*PAIRS, "inv_boxcox1p"), (POSITIVE, POSITIVE)),
    **dict.fromkeys(("betainc", "betaincc"), (POSITIVE, POSITIVE, FRACTIONS)),
    **dict.fromkeys(("fdtr", "fdtrc", "gdtr", "gdtrc", "radian"), (POSITIVE, POSITIVE, POSITIVE)),
    **dict.fromkeys(("bdtr", "bdtrc"), (WHOLE, WHOLE + 40, FRACTIONS)),
    **dict.fromkeys(("nbdtr", "nbdtrc"), (WHOLE, WHOLE + 1, FRACTIONS)),
    **dict.fromkeys(("pdtr", "pdtrc"), (WHOLE, POSITIVE)),
    **dict.fromkeys(("huber", "pseudo_huber"), (POSITIVE, SIGNED)),
    "binom": (WHOLE, WHOLE),
    "stdtr": (POSITIVE, SIGNED),
    "polygamma": (WHOLE[:6], POSITIVE),
    "zeta": (POSITIVE + 1, POSITIVE),
}
# Inverses, at their ends and outside, too; only where SciPy has all digits itself.
PROBABILITIES = np.array([0.0, 1e-9, 0.01, 0.3, 0.5, 0.75, 0.999, 1.0, 1.5, -0.5, np.nan])
INSIDE = np.array([-1.0, -0.9, -0.5, -1e-3, 0.0, 0.3, 0.75, 0.99, 1.0])
SHAPES = np.array([0.5, 0.999, 1.0, 1.5, 2.0, 3.7, 8.0, 24.0, 110.0])
OPERANDS |= {
    **dict.fromkeys(("gammaincinv", "gammainccinv", "chdtri"), (SHAPES, PROBABILITIES)),
    **dict.fromkeys(("betaincinv", "fdtri"), (SHAPES, SHAPES, PROBABILITIES)),
    "bdtri": (WHOLE, WHOLE, np.delete(PROBABILITIES, 1)),  # at 1e-9 SciPy itself loses digits
    "nbdtri": (WHOLE, WHOLE + 1, PROBABILITIES),
    "pdtri": (WHOLE, PROBABILITIES),
    "stdtrit": (SHAPES, PROBABILITIES[1:]),  # at 0 SciPy gives inf
    "expn": (WHOLE, np.append(POSITIVE, [0.0, -1.0, np.inf, np.nan])),
    "yn": (WHOLE[:8], POSITIVE[:5]),
    "lpmv": (WHOLE[:4], WHOLE[:8], INSIDE),
    "hyp1f1": (POSITIVE[1:12], POSITIVE[1:12], SIGNED[np.abs(SIGNED) < 30]),
}
UNARY["spence"] = np.append(SIGNED, [0.0, np.nan])
ROUGH = 1 << 12  # units: SciPy's functions of several operands, and its loggamma near 1, lose digits


@st.composite
def multigammaln(draw: Any) -> Call:
    return Call((draw(arrays(REAL_FLOATING, None, chosen(POSITIVE + 2))), draw(st.integers(1, 4))), {})


SPECIAL = {
    **{f"special.{name}": special(name, drawn(pool)) for name, pool in UNARY.items()},
    "special.loggamma": special("loggamma", drawn(POSITIVE), ulps=ROUGH),
    **{f"special.{name}": special(name, drawn(*pools), ulps=ROUGH) for name, pools in OPERANDS.items()},
    "special.multigammaln": special("multigammaln", multigammaln()),
    **{f"special.{name}": special(name, one(NUMBERS)) for name in ("entr", "erf", "erfc", "expit", "log_ndtr", "ndtr")},
    **{f"special.{name}": special(name, one(FRACTIONS)) for name in ("logit", "ndtri")},
    **{f"special.{name}": special(name, two(), promotes=(0, 1)) for name in ("kl_div", "rel_entr", "xlog1py", "xlogy")},
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special(name, conforms):
    conforms(name, SPECIAL[name])
