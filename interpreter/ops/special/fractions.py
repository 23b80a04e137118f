"""Series and continued fractions whose number of terms depends on the operands."""

from __future__ import annotations

from collections.abc import Callable

from ...schema.opdef import Array, ArrayModule

TINY = 1e-290  # in place of a zero that is divided by
DONE = 1e-17
CLOSE = 4e-16  # to 1, in a continued fraction
ROUNDING = 2e-15  # changes of this size that do not fall are rounding errors

Parts = tuple[Array, ...]


def repeat(xp: ArrayModule, step: Callable[[int, Parts], Parts], parts: Parts, most: int) -> Parts:
    """Step after step, until the last of the parts, the relative change, is small everywhere; looked at now and
    then.
    """
    for n in range(1, most):
        parts = step(n, parts)
        if n % 16 == 0 and not bool((xp.abs(parts[-1]) > DONE).any()):
            break
    return parts


def continued_fraction(xp: ArrayModule, first: Array, terms: Callable[[int], tuple[Array, Array]], most: int) -> Array:
    """first + n1 / (t1 + n2 / (t2 + ...)) by Lentz's algorithm, where terms(k) gives numerator and term of rank k.

    It stays as it is once its last place is reached: so an element's value does not depend on its neighbours.
    """

    def step(k: int, parts: Parts) -> Parts:
        value, c, d, before = parts
        numerator, term = terms(k)
        c, d = term + numerator / c, term + numerator * d
        c, d = xp.where(xp.abs(c) < TINY, TINY, c), 1 / xp.where(xp.abs(d) < TINY, TINY, d)
        change = c * d - 1
        size = xp.abs(change)
        done = (size < CLOSE) | ((size < ROUNDING) & (size >= xp.abs(before))) | (before == 0)
        change = xp.where(done, 0, change)
        return value * (1 + change), c, d, change

    return repeat(xp, step, (first, first, xp.zeros_like(first), xp.ones_like(first)), most)[0]
