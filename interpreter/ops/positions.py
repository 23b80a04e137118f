"""Positions that come as data: no array module sees one that is out of bounds.

`in_bounds` waits for the device to find out, and raises. This is the one place to change for a device whose launches
report late: it would clamp the positions there, set the launch's error word, and return without a wait. So callers go
on with the positions that it returns, and with no others.

CuPy's kernels for positions count in 32 bits (up to 14.2): beyond that they read and write elsewhere, so such calls are
refused on a device, as `check_gather` and `check_scatter` say.
"""

from __future__ import annotations

import numpy as np

from ..schema.opdef import Array, ArrayModule

UNSIGNED, SIGNED = 1 << 32, 1 << 31  # what kernels of CuPy cannot count to


def in_bounds(xp: ArrayModule, positions: Array, low: int, high: int, wrong: str) -> Array:
    """The positions. IndexError unless all are in [low, high). Waits for a device.

    `wrong`: the error's text, with places for `high`, the `first` that is out of bounds, the `least` and the `most`.
    """
    if positions.size:
        least, most = int(xp.min(positions)), int(xp.max(positions))
        if least < low or most >= high:
            first = least if least < low else most
            raise IndexError(wrong.format(high=high, first=first, least=least, most=most))
    return positions


def from_either_end(xp: ArrayModule, positions: Array, size: int) -> Array:
    """The positions along an axis of that size, of which negative ones count from the end; IndexError as above."""
    return in_bounds(xp, positions, -size, size, "index {first} is out of bounds for an axis of size {high}")


def from_the_front(xp: ArrayModule, positions: Array, size: int, what: str) -> Array:
    """The positions along an axis of that size, none of them negative; IndexError as above. `what` they are."""
    return in_bounds(xp, positions, 0, size, what + " have to be in [0, {high}), got {least} to {most}")


def wide(positions: Array) -> Array:
    """The positions in a dtype that CuPy can compute with.

    As NumPy casts them, the largest uint64 is -1, the last element. CuPy's scatter (up to 14.2) adds the length of the
    axis to a negative position in the dtype of the positions: an int8 overflows, and memory of others is written.
    """
    kind, size = positions.dtype.kind, positions.dtype.itemsize
    return positions.astype(np.int64) if (kind == "u" and size == 8) or (kind == "i" and size < 4) else positions


def check_gather(xp: ArrayModule, before: int, count: int, after: int) -> None:
    """ValueError if a device cannot read so many positions at once, between axes with so many elements."""
    if xp is not np and (after >= UNSIGNED or (before != 1 and max(before, count * after) >= UNSIGNED)):
        raise ValueError(f"{before} x {count} x {after} elements are too many to be selected on a GPU at once")


def check_scatter(xp: ArrayModule, length: int, count: int, after: int) -> None:
    """ValueError if a device cannot write to so many positions at once, along axes of that length."""
    if xp is not np and max(length, count * after) >= SIGNED:
        raise ValueError(f"{count} x {after} elements, along {length}, are too many to be written on a GPU at once")
