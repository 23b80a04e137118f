"""Range checks of integers that number classes or rows.

On the host a number out of range raises. On a device its row of the result becomes NaN, since reading a value from a
device waits until the stream is empty. (Ops that `judges` marks are launched where they may wait: see `positions`.)
On no device does a kernel index with a number out of range: it would read another array's memory.
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


def mark(xp: ArrayModule, out: Array, wrong: Array | None) -> None:
    """NaN in the rows of `out` whose numbers were wrong."""
    if wrong is not None:
        rows = wrong.reshape(*wrong.shape, *[1] * (out.ndim - wrong.ndim))
        xp.copyto(out, np.nan, where=rows)  # an assignment to a mask brings the number from the host: no graph has that
