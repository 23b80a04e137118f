"""Range checks of integers that number classes or rows.

On the host, a number out of range raises. On a device, its row of the result becomes NaN instead, since reading a value
from a device waits until the stream is empty. (Ops with `checks_data` are launched where they may wait: see
`positions`.) No kernel ever indexes with a number out of range, with which it would read another array's memory.
"""

from __future__ import annotations

import numpy as np

from ...schema.opdef import Array, ArrayModule


def in_range(xp: ArrayModule, numbers: Array, count: int, what: str) -> tuple[Array, Array | None]:
    """The numbers, with 0 in place of those outside of [0, count), and the mask of those, for `write_nan_rows`.

    On the host, a number out of range raises ValueError, and the mask is None.
    """
    if xp is np:
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise ValueError(f"{what} must be in [0, {count}), got {numbers.min()} to {numbers.max()}")
        return numbers, None
    wrong = (numbers < 0) | (numbers >= count)
    return xp.where(wrong, 0, numbers), wrong


def write_nan_rows(xp: ArrayModule, out: Array, wrong: Array | None) -> None:
    """Write NaN to the rows of `out` whose numbers were out of range."""
    if wrong is not None:
        rows = wrong.reshape(*wrong.shape, *[1] * (out.ndim - wrong.ndim))
        xp.copyto(
            out, np.nan, where=rows
        )  # assigning to out[rows] would copy the number from the host, which a CUDA graph cannot
