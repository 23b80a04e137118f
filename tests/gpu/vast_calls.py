"""Calls with more elements than 32 bits can count: some kernels of CuPy count no further, and use wrong addresses.

The operand is a tensor of zeros with a one at its end, so that each result is known without another computation. Calls
beyond the range of CuPy's counters have to be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tensord.client.session.session import Session

VAST = (1 << 31) + 64  # elements, of one byte each
SIDE = 1 << 16  # of a matrix that has more of them
REFUSED = "too many to be"


class Vast(NamedTuple):
    """A call. `expected`: its result, or a part of its error's message."""

    name: str
    call: Callable[[], Any]
    expected: Any


def calls(session: Session, device: str, elements: int = VAST, side: int = SIDE) -> Iterator[Vast]:
    """The calls, each to be made before the next one is requested."""
    xp, last = session.xp, elements - 1
    positions = session.asarray(np.array([last, -1, 0]), device)
    x = xp.zeros(elements, dtype=xp.int8, device=device)
    x[last] = 1
    yield Vast("sum", lambda: xp.sum(x), 1)
    yield Vast("argmax", lambda: xp.argmax(x), last)
    yield Vast("count_nonzero", lambda: xp.count_nonzero(x), 1)
    yield Vast("take", lambda: xp.take(x, positions), [1, 1, 0])
    yield Vast("index", lambda: x[positions], [1, 1, 0])
    yield Vast("masked_select", lambda: x[x > 0], [1])
    yield Vast("nonzero", lambda: xp.nonzero(x)[0], [last])
    yield Vast("searchsorted", lambda: xp.searchsorted(x, positions[:1] * 0 + 1), [last])
    yield Vast("sort", lambda: xp.sort(x, descending=True)[:2], [1, 0])
    yield Vast("roll", lambda: xp.roll(x, 1, axis=0)[:2], [1, 0])
    yield Vast("unique_values", lambda: xp.unique_values(x), [0, 1])
    yield Vast("histogram", lambda: xp.histogram(x, bins=2, range=(0.0, 1.0))[0], [last, 1])
    yield Vast("cumulative_sum", lambda: xp.cumulative_sum(x, dtype=xp.int8)[-2:], [0, 1])
    yield Vast("vecdot", lambda: xp.vecdot(half := xp.astype(x, xp.float32), half), 1)
    yield Vast("eye", lambda: xp.sum(xp.eye(side, dtype=xp.int8, device=device)), side)
    if elements >= 1 << 31:
        yield Vast("a scatter that CuPy cannot count", lambda: assigned(x, positions), REFUSED)
    if side * side >= 1 << 32:
        many = xp.zeros(side, dtype=xp.int64, device=device)
        wide = xp.zeros((2, 1, side), dtype=xp.int8, device=device)
        yield Vast("a gather that CuPy cannot count", lambda: xp.take(wide, many, axis=1), REFUSED)


def assigned(x: Any, positions: Any) -> Any:
    """x with a number at those positions."""
    x[positions] = 1
    return x


def problem(vast: Vast) -> str:
    """The fault of a call; "" if there is none."""
    try:
        found = vast.call().numpy()
    except Exception as error:
        refused = isinstance(vast.expected, str) and vast.expected in str(error)
        return "" if refused else f"{type(error).__name__}: {error}"
    if isinstance(vast.expected, str):
        return "it was not refused"
    return "" if np.array_equal(found, vast.expected) else f"{found!r} instead of {vast.expected!r}"
