"""Checks of positions that are read from tensors, so that no array module gets a position that is out of bounds.

`in_bounds` waits for the device to compute the least and the largest position, and raises. If the launches of a device
report late (`LATE_CHECKS`), these two are read when the device has computed them: `in_bounds` then clamps the positions
and returns without a wait. So callers must continue with the positions that it returns, and with no others.

CuPy's kernels for positions (up to 14.2) count in 32 bits. Beyond that they read and write wrong memory, so
`check_gather` and `check_scatter` refuse such calls on a device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from ..schema.opdef import Array, ArrayModule

UNSIGNED_LIMIT, SIGNED_LIMIT = 1 << 32, 1 << 31  # CuPy's kernels count elements below these limits
# `last_of_equals` makes a table if there are at most TABLE_ENTRIES positions along an axis, or
# TABLE_ENTRIES_PER_POSITION for each requested position. A few requested positions are compared in pairs.
TABLE_ENTRIES, TABLE_ENTRIES_PER_POSITION, MAX_COMPARED_IN_PAIRS = 1 << 20, 8, 1 << 8


# The least and the largest position, as arrays of one element that the device has yet to compute, and a function that
# raises if these are out of bounds.
Check: TypeAlias = tuple[Array, Array, Callable[[Any, Any], None]]


class LateChecks(threading.local):
    """The checks of the launch that this thread is making; None if kernels wait."""

    checks: list[Check] | None = None


LATE_CHECKS: Final = LateChecks()


def in_bounds(xp: ArrayModule, positions: Array, low: int, high: int, wrong: str) -> Array:
    """The positions, clamped if they are checked late.

    IndexError unless all are in [low, high): after a wait for the device, or late (`LATE_CHECKS`). `wrong`: the error's
    text, a format of `high`, the `first` position out of bounds, the `least` and the `most`.
    """
    if not positions.size:
        return positions
    check = partial(refuse_outside, low, high, wrong)
    least, most = xp.min(positions), xp.max(positions)
    if LATE_CHECKS.checks is None or low >= high:  # no position is in bounds, so there is nothing to clamp to
        check(least, most)
        return positions
    LATE_CHECKS.checks.append((least, most, check))
    limits = np.iinfo(positions.dtype.name)
    return xp.clip(positions, max(low, limits.min), min(high - 1, limits.max))


def refuse_outside(low: int, high: int, wrong: str, least: Any, most: Any) -> None:
    """Raise IndexError unless the least and the largest of some positions are in [low, high)."""
    least, most = int(least), int(most)
    if least < low or most >= high:
        first = least if least < low else most
        raise IndexError(wrong.format(high=high, first=first, least=least, most=most))


def from_either_end(xp: ArrayModule, positions: Array, size: int) -> Array:
    """The positions along an axis of that size; negative ones count from the end. IndexError as in `in_bounds`."""
    return in_bounds(xp, positions, -size, size, "index {first} is out of bounds for an axis of size {high}")


def from_the_front(xp: ArrayModule, positions: Array, size: int, what: str) -> Array:
    """The positions along an axis of that size, none of them negative.

    IndexError as in `in_bounds`. `what`: their name in the error.
    """
    return in_bounds(xp, positions, 0, size, what + " must be in [0, {high}), got {least} to {most}")


def safe_positions(positions: Array) -> Array:
    """The positions in a dtype that is safe for CuPy. uint64 is cast to int64 as NumPy casts it: the largest uint64
    becomes -1, the last element. CuPy's scatter (up to 14.2) adds the length of the axis to a negative position in
    the dtype of the positions: an int8 would overflow, and the kernel would write to wrong memory.
    """
    kind, size = positions.dtype.kind, positions.dtype.itemsize
    return positions.astype(np.int64) if (kind == "u" and size == 8) or (kind == "i" and size < 4) else positions


def check_gather(xp: ArrayModule, before: int, count: int, after: int) -> None:
    """Raise ValueError if a device cannot read `count` positions at once, between axes of `before` and `after`
    elements."""
    if xp is not np and (after >= UNSIGNED_LIMIT or (before != 1 and max(before, count * after) >= UNSIGNED_LIMIT)):
        raise ValueError(f"{before} x {count} x {after} elements are too many to be selected on a GPU at once")


def check_scatter(xp: ArrayModule, length: int, count: int, after: int) -> None:
    """Raise ValueError if a device cannot write `count` x `after` elements at once, along axes of `length`
    positions."""
    if xp is not np and max(length, count * after) >= SIGNED_LIMIT:
        raise ValueError(f"{count} x {after} elements, along {length}, are too many to be written on a GPU at once")


def last_of_equals(xp: ArrayModule, positions: Array, room: int) -> Array:
    """For each position (in [0, room)), the index of the last equal position.

    A table keeps the largest index of each position, which does not depend on the order in which a device writes. If
    a table would be far larger than the positions, they are sorted, which waits for the device.
    """
    count = positions.size
    indices = xp.arange(count, dtype=np.int32)
    if has_table(room, count):
        table = xp.zeros(room, np.int32)
        xp.maximum.at(table, positions, indices)
        return table[positions]
    if count <= MAX_COMPARED_IN_PAIRS:
        return xp.max(xp.where(positions[:, None] == positions, indices, 0), axis=1)
    order = xp.argsort(positions, kind="stable")
    return order[xp.searchsorted(positions[order], positions, side="right") - 1]


def has_table(room: int, count: int) -> bool:
    """Whether `count` positions are found in a table of all `room` positions."""
    return room <= max(TABLE_ENTRIES, TABLE_ENTRIES_PER_POSITION * count)


def sorts(room: int, count: int) -> bool:
    """Whether `last_of_equals` sorts `count` positions."""
    return count > MAX_COMPARED_IN_PAIRS and not has_table(room, count)
