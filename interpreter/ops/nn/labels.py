"""Range checks of integers that number classes or rows.

On the host a number out of range raises. On a device it raises in ops that `judges` marks, which are launched where
they may wait. In other ops its row of the result becomes NaN there, since reading a value from a device waits until the
stream is empty. On no device does a kernel index with a number out of range: it would read another array's memory.
"""

from __future__ import annotations

import numpy as np

from ...schema.opdef import Array, ArrayModule


def in_range(xp: ArrayModule, numbers: Array, count: int, what: str) -> tuple[Array, Array | None]:
    """The numbers, all of them in [0, count), and the mask of those that were not, for `mark`.

    On the host raises ValueError instead, and the mask is None.
    """
    if xp is np:
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise ValueError(f"{what} have to be in [0, {count}), got {numbers.min()} to {numbers.max()}")
        return numbers, None
    wrong = (numbers < 0) | (numbers >= count)
    return xp.where(wrong, 0, numbers), wrong


def check_range(numbers: Array, count: int, what: str) -> None:
    """IndexError unless all numbers are in [0, count). Waits for a device."""
    if numbers.size:
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= count:
            raise IndexError(f"{what} have to be in [0, {count}), got {low} to {high}")


def mark(out: Array, wrong: Array | None) -> None:
    """NaN in the rows of `out` whose numbers were wrong."""
    if wrong is not None:
        out[wrong] = np.nan
