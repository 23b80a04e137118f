"""Polynomials and Chebyshev series, for arrays of any array module, and tables of their coefficients."""

from __future__ import annotations

from collections.abc import Sequence

from ...schema.opdef import Array


def numbers(text: str) -> tuple[float, ...]:
    """The numbers of a table."""
    return tuple(map(float, text.split()))


def polynomial(coefficients: Sequence[float], r: Array) -> Array:
    """The sum of coefficients times powers of r, the highest power first."""
    total = r * 0 + coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * r + coefficient
    return total


def chebyshev(coefficients: Sequence[float], t: Array) -> Array:
    """The sum of coefficients, the lowest first, times Chebyshev polynomials of t in [-1, 1]; by Clenshaw's rule."""
    one, two = t * 0, t * 0
    for coefficient in coefficients[:0:-1]:
        one, two = 2 * t * one - two + coefficient, one
    return t * one - two + coefficients[0]
