"""Positions that come as data: no array module sees one that is out of bounds.

`in_bounds` waits for the device to find out, and raises. A device whose launches report late (`LATE`) has the least and
the most of the positions read when it gets there: then `in_bounds` clamps them and returns without a wait. So callers
go on with the positions that it returns, and with no others.

CuPy's kernels for positions count in 32 bits (up to 14.2): beyond that they read and write elsewhere, so such calls are
refused on a device, as `check_gather` and `check_scatter` say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from ..schema.opdef import Array, ArrayModule

UNSIGNED, SIGNED = 1 << 32, 1 << 31  # what kernels of CuPy cannot count to
# Of how many positions along an axis a table is made, whatever is asked for, and for each position that is; how many
# are compared each with each.
TABLE, BESIDE, PAIRED = 1 << 20, 8, 1 << 8


# The least and the most position, arrays of one element that the device has yet to compute; and a function that raises
# if these are out of bounds.
Check: TypeAlias = tuple[Array, Array, Callable[[Any, Any], None]]


class Late(threading.local):
    """The checks of the launch that this thread is in the middle of; None where kernels wait."""

    checks: list[Check] | None = None


LATE: Final = Late()


def in_bounds(xp: ArrayModule, positions: Array, low: int, high: int, wrong: str) -> Array:
    """The positions. IndexError unless all are in [low, high): after a wait for the device, or late (`LATE`).

    `wrong`: the error's text, with places for `high`, the `first` that is out of bounds, the `least` and the `most`.
    """
    if not positions.size:
        return positions
    judge = partial(refuse_outside, low, high, wrong)
    least, most = xp.min(positions), xp.max(positions)
    if LATE.checks is None or low >= high:  # there is nothing to go on with
        judge(least, most)
        return positions
    LATE.checks.append((least, most, judge))
    limits = np.iinfo(positions.dtype.name)
    return xp.clip(positions, max(low, limits.min), min(high - 1, limits.max))


def refuse_outside(low: int, high: int, wrong: str, least: Any, most: Any) -> None:
    """IndexError unless the least and the most of some positions are in [low, high)."""
    least, most = int(least), int(most)
    if least < low or most >= high:
        first = least if least < low else most
        raise IndexError(wrong.format(high=high, first=first, least=least, most=most))


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


def last_of_equals(xp: ArrayModule, positions: Array, room: int) -> Array:
    """For each position, of those in [0, room), the place of the last one that is equal.

    The largest of some places is the same in whatever order a device writes them. Many positions of far more are
    sorted, which waits for the device.
    """
    count = positions.size
    places = xp.arange(count, dtype=np.int32)
    if has_table(room, count):
        table = xp.zeros(room, np.int32)
        xp.maximum.at(table, positions, places)
        return table[positions]
    if count <= PAIRED:
        return xp.max(xp.where(positions[:, None] == positions, places, 0), axis=1)
    order = xp.argsort(positions, kind="stable")
    return order[xp.searchsorted(positions[order], positions, side="right") - 1]


def has_table(room: int, count: int) -> bool:
    """Are so many positions found in a table of all that there are?"""
    return room <= max(TABLE, BESIDE * count)


def sorts(room: int, count: int) -> bool:
    """Does `last_of_equals` sort so many positions?"""
    return count > PAIRED and not has_table(room, count)
