"""The difference between two results: bit for bit, or in units of the rounding of the largest element."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..transport.replies import Reply

# Tolerance for results of a GPU against the host's: a sum in another order may be off by several roundings of the
# largest element.
BOUND_OF_GPUS: Final = 64.0


class Difference(NamedTuple):
    """Two results that differ.

    `text`: for people; `size`: the largest difference of two elements, None if there is none because the shapes,
    dtypes or errors differ; `roundings`: `size` in roundings of the largest element; `place`: the index of that
    difference, under the name that `--json` prints; `elements`: how many of the `of` elements differ.
    """

    text: str
    size: float | None = None
    roundings: float | None = None
    place: tuple[int, ...] = ()
    elements: int = 0
    of: int = 0


def difference(first: NDArray[Any], second: NDArray[Any], within: float) -> Difference | None:
    """The difference of two values; None if they are equal bit for bit, or floats that differ by at most `within`
    roundings of the largest element."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return Difference(f"{shown(first)} and {shown(second)}")
    differing = _differing(first, second)
    count = int(np.count_nonzero(differing))
    if not count:
        return None
    a, b = _wide(first), _wide(second)
    with np.errstate(all="ignore"):
        sizes = np.where(differing, np.abs(a - b), 0.0)
        sizes = np.where(differing & ~(np.isfinite(a) & np.isfinite(b)), np.inf, sizes)
        sizes = np.where(np.isnan(a) & np.isnan(b), 0.0, sizes)
    index = np.unravel_index(int(np.argmax(np.where(differing, sizes, -1.0))), first.shape)
    size = float(sizes[index])
    roundings = size / _rounding(first, b)
    if within and first.dtype.kind in "fc" and roundings <= within:
        return None
    where = tuple(int(n) for n in index)
    text = f"{count} of {first.size} elements differ, the most at {list(where)}: {first[index]!s} and {second[index]!s}"
    return Difference(text, size, roundings, where, count, first.size)


def outcome(reply: Reply) -> NDArray[Any] | str:
    """The value of a reply, or the name of its error's type."""
    return type(reply.error).__name__ if reply.error is not None else np.asarray(reply.value)


def outcome_difference(first: NDArray[Any] | str, second: NDArray[Any] | str, within: float) -> Difference | None:
    """The difference of two outcomes. Two errors of one type do not differ."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return difference(first, second, within)
    if isinstance(first, str) and isinstance(second, str):
        return None if first == second else Difference(f"{first} and {second}")
    one, other = (each if isinstance(each, str) else "a value" for each in (first, second))
    return Difference(f"{one} and {other}")


def shown(value: NDArray[Any]) -> str:
    return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"


def _differing(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """For each element, whether its bits differ."""
    a, b = _words(first), _words(second)
    return np.asarray((a != b).any(axis=1)).reshape(first.shape)


def _words(value: NDArray[Any]) -> NDArray[Any]:
    """The bits of each element, as one or two integers in a row."""
    word = min(value.dtype.itemsize, 8)
    return np.ascontiguousarray(value).reshape(-1).view(f"u{word}").reshape(-1, value.dtype.itemsize // word)


def _wide(value: NDArray[Any]) -> NDArray[Any]:
    return value if value.dtype.kind == "c" else value.astype(np.float64)


def _rounding(first: NDArray[Any], second: NDArray[Any]) -> float:
    """The rounding of the largest finite element of `second`, in the precision of `first`; 1 for integers."""
    if first.dtype.kind not in "fc":
        return 1.0
    finite = np.abs(second[np.isfinite(second)])
    largest = float(finite.max()) if finite.size else 0.0
    precision = np.finfo(first.dtype)
    return float(max(largest * float(precision.eps), float(precision.tiny)))
