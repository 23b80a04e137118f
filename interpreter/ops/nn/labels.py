"""Range checks of integers that number classes or rows, without stalling a device.

On the host a number out of range raises. On a device its row of the result becomes NaN, since reading a value from a
device waits until its stream is empty.
"""

from __future__ import annotations

import numpy as np

from ...schema.opdef import Array, ArrayModule


def in_range(
    xp: ArrayModule, numbers: Array, count: int, what: str, error: type[Exception] = ValueError
) -> tuple[Array, Array | None]:
    """The numbers, all of them in [0, count), and the mask of those that were not, for `mark`.

    On the host raises `error` instead, and the mask is None.
    """
    if xp is np:
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise error(f"{what} have to be in [0, {count}), got {numbers.min()} to {numbers.max()}")
        return numbers, None
    wrong = (numbers < 0) | (numbers >= count)
    return xp.where(wrong, 0, numbers), wrong


def mark(out: Array, wrong: Array | None) -> None:
    """NaN in the rows of `out` whose numbers were wrong."""
    if wrong is not None:
        out[wrong] = np.nan
