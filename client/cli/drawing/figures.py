"""Numbers as text for the command line's tables and messages: counts, bytes, durations, rates, shapes, times.

An amount that is not known yet is `?`. Durations change to the next unit at 59.5 and 999.5, from which on the text
would be rounded to `60 s` and `1e+03`. Scripts get the plain numbers (`--json`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ....interpreter.types import sizes

# The units of a duration, with their seconds: below a minute one unit is shown, from a minute on two.
_BELOW_A_MINUTE = (("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
_FROM_A_MINUTE = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def count(number: float) -> str:
    """`1,234,567`."""
    return f"{number:,.0f}"


def some(text: Callable[[Any], str], amount: Any) -> str:
    """`text(amount)`, for a cell of a table that stays empty if the amount is 0 or None."""
    return text(amount) if amount else ""


def plural(number: int, noun: str) -> str:
    """`1 tensor`, `1,234 tensors`."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def size(nbytes: int | None) -> str:
    """`0`, `512 B`, `1.5 KiB`, `64 MiB`; `?` for a size not known yet."""
    return "?" if nbytes is None else sizes.size(nbytes)


def duration(seconds: float) -> str:
    """`12 us`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `4 d 2 h`."""
    if seconds < 59.5:
        unit, length = next(((u, n) for u, n in _BELOW_A_MINUTE if seconds < 999.5 * n), _BELOW_A_MINUTE[-1])
        return f"{seconds / length:.3g} {unit}" if seconds else "0 s"
    whole = round(seconds)
    for (unit, length), (smaller, step) in pairwise(_FROM_A_MINUTE):
        if whole >= length:
            rest = whole % length // step
            return f"{whole // length} {unit} {rest} {smaller}" if rest else f"{whole // length} {unit}"
    return f"{whole} s"


def rate(per_second: float) -> str:
    """`12/s`, `3,400/s`; two digits below ten."""
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.2g}/s"


def shape(dimensions: list[int] | tuple[int, ...] | None, dtype: str | None) -> str:
    """`float32[2, 3]`; `?` for a shape that depends on data and is not known yet."""
    return "?" if dimensions is None else f"{dtype}[{', '.join(map(str, dimensions))}]"


def moment(seconds: float) -> str:
    """A local time: `2026-11-23 18:05:12`."""
    from datetime import datetime

    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
