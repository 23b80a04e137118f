"""Integers that number classes or rows: whether they are in range, without stalling a device to ask.

On the host a number out of range raises. On a device it marks the result: its row becomes NaN, since whoever asks a
device for a value waits until its stream is empty.
"""

from __future__ import annotations

import numpy as np

from ...schema.opdef import Array, ArrayModule


def in_range(
    xp: ArrayModule, numbers: Array, count: int, what: str, error: type[Exception] = ValueError
) -> tuple[Array, Array | None]:
    """The numbers, all of them in [0, count), and where they were not, if that is for the result to show.

    Raises `error` on the host.
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
