"""The functions of `special`, which have SciPy's names and values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tensord.interpreter.ops.special.functions import FUNCTIONS
from tensord.interpreter.ops.special.kernels import LIBRARY, WHOLE_OPERANDS

from ..each_case import each_case
from .arrays import FLOATING, REAL, REAL_FLOATING, arrays, broadcastable, rarely
from .calls import Call
from .judge import Entry
from .test_against_numpy_beyond import near

scipy_special = pytest.importorskip("scipy.special")
NUMBERS = np.array([0.0, -0.0, 1e-9, 0.3, 0.5, 0.999, 1.0, 2.5, 6.0, 20.0, -1e-9, -0.3, -1.0, -3.5, np.nan])
COUNTS = np.arange(13.0)
POSITIVE = np.array([3.0, 3.7, 5.5, 8.0, 24.0, 110.0])
COMBINED = {"hurwitz_zeta": "zeta", "riemann_zeta": ""}  # ops that have no function of their name


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
def calls_of(draw: Any, name: str, inputs: int) -> Call:
    """Operands of near dtypes; counts where SciPy takes whole numbers."""
    dtypes = FLOATING if inputs == 1 and draw(rarely) else near(draw, REAL)
    pools = [chosen(COUNTS if n in WHOLE_OPERANDS.get(name, ((),))[0] else NUMBERS) for n in range(inputs)]
    shapes = draw(broadcastable(inputs)) if inputs > 1 else [None]
    return Call(tuple(draw(arrays(dtypes, shape, pool)) for shape, pool in zip(shapes, pools, strict=True)), {})


def by_scipy(name: str, counts: tuple[int, ...] = ()) -> Any:
    """SciPy's values in float64, rounded to the promoted dtype; float64 for integers."""

    def function(*operands: np.ndarray) -> Any:
        dtype = np.result_type(*(each for each in operands if isinstance(each, np.ndarray)))
        if dtype.kind == "c":
            raise TypeError("not of real numbers")
        given = [
            each.astype(np.int64 if n in counts else np.float64) if isinstance(each, np.ndarray) else each
            for n, each in enumerate(operands)
        ]
        found = getattr(scipy_special, name)(*given)
        return np.asarray(found).astype(dtype if dtype.kind == "f" else np.float64)

    return function


def entry(name: str, op: str, inputs: int) -> Entry:
    counts, _ = WHOLE_OPERANDS.get(op, ((), 0))
    promotes = tuple(range(inputs)) if inputs > 1 else ()
    return Entry(calls_of(op, inputs), text=by_scipy(LIBRARY.names.get(op, name), counts), promotes=promotes, ulps=1)


@st.composite
def multigammaln(draw: Any) -> Call:
    return Call((draw(arrays(REAL_FLOATING, None, chosen(POSITIVE))), draw(st.integers(1, 4))), {})


SPECIAL = {
    f"special.{COMBINED.get(op, op)}": entry(op, op, inputs) for op, inputs, _ in FUNCTIONS if COMBINED.get(op, op)
}
SPECIAL["special.digamma"] = entry("digamma", "psi", 1)
SPECIAL["special.multigammaln"] = Entry(multigammaln(), text=by_scipy("multigammaln"), ulps=64)


@each_case("name", SPECIAL)
def test_special(name, conforms):
    conforms(name, SPECIAL[name], times=0.5)
