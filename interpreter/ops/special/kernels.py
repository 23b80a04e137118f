"""Calls SciPy's or CuPy's function for an op, after preparing its operands.

SciPy warns if an operand that must be whole is a float, and casts one that no int can hold to an arbitrary int. So such
operands are truncated to integers here, and the result is NaN where one is too large. A warning in a kernel would reach
the user's process from a thread that the user does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...schema.library import Library
from ...schema.opdef import Array, ArrayModule, Arrays
from .composed import COMPOSED

LIBRARY = Library(
    {"numpy": "scipy.special", "cupy": "cupyx.scipy.special"},
    extra="special",
    package="SciPy",
    names={"riemann_zeta": "zeta", "hurwitz_zeta": "zeta"},
    composed=COMPOSED,
    unfit=("lpmv",),  # CuPy 14.2 returns some wrong values for orders from 2 on and degrees that are not whole
)
MAX_INT32 = 2**31 - 1
MAX_ORDER = 20_000  # the largest order or degree: functions take a step for each, and larger ones would take seconds
# Op -> the operands that are truncated to whole numbers, and the largest allowed magnitude.
WHOLE_OPERANDS = {
    **dict.fromkeys(("bdtr", "bdtrc", "bdtri"), ((1,), MAX_INT32)),
    **dict.fromkeys(("nbdtr", "nbdtrc", "nbdtri"), ((0, 1), MAX_INT32)),
    **dict.fromkeys(("expn", "pdtri"), ((0,), MAX_INT32)),
    "yn": ((0,), MAX_ORDER),
}
# Op -> the least and the largest value of each operand. Beyond them, SciPy takes seconds for an element, or never ends.
ORDER_LIMITS, NO_LIMITS = (-MAX_ORDER, MAX_ORDER), (-math.inf, math.inf)
NOT_FAR_BELOW = (-MAX_ORDER, math.inf)
LIMITS = {
    "hurwitz_zeta": (NO_LIMITS, NOT_FAR_BELOW),
    "hyp1f1": (ORDER_LIMITS, ORDER_LIMITS, (-1e6, 1e6)),
    "lpmv": (ORDER_LIMITS, ORDER_LIMITS, NO_LIMITS),
    "polygamma": (NO_LIMITS, NOT_FAR_BELOW),
}


def function_of(xp: ArrayModule, name: str) -> Callable[..., Array]:
    """The function that computes the op from arrays of float64."""
    of = LIBRARY.of(xp)
    if xp.__name__ == "cupy" and name in COMPOSED:
        composed = COMPOSED[name]
        return lambda *operands: composed(xp, of, *operands)
    found: Callable[..., Array] = getattr(of, LIBRARY.names.get(name, name))
    return found


def compute(xp: ArrayModule, name: str, operands: Arrays) -> Array:
    """The function's values, in float64."""
    function = function_of(xp, name)
    if name in WHOLE_OPERANDS:
        return call_with_whole(xp, function, operands, *WHOLE_OPERANDS[name])
    if name in LIMITS:
        operands = [within(xp, x, limits) for x, limits in zip(operands, LIMITS[name], strict=True)]
    return function(*operands)


def within(xp: ArrayModule, x: Array, limits: tuple[float, float]) -> Array:
    """x, with NaN outside of the limits."""
    least, most = limits
    return xp.where((x >= least) & (x <= most), x, math.nan)


def call_with_whole(
    xp: ArrayModule, function: Callable[..., Array], operands: Arrays, positions: Sequence[int], most: int
) -> Array:
    """The function's values, with the operands at `positions` truncated to integers;

    NaN where the magnitude of one exceeds `most`.
    """
    given, valid = list(operands), True
    for n in positions:
        small = xp.abs(operands[n]) <= most
        given[n], valid = xp.where(small, operands[n], 0).astype(np.int64), valid & small
    return xp.where(valid, function(*given), math.nan)
