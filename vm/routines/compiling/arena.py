"""The arena of a segment: one block of memory for the values that are used only inside the segment.

While a segment is laid out, each *part* of the arena has an address of its own, so that addresses identify values. The
parts' offsets in memory are planned at the end, when their lifetimes are known: large parts first, each at the lowest
offset that is free during its lifetime. Source: the greedy-by-size planner of TensorFlow Lite (Pisarchyk and Lee,
arXiv 2001.03288).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

ALIGNMENT: Final = 64
TOGETHER: Final = 256  # parts planned together: the time grows with the square of their number


class ArenaPart:
    """Bytes of one value, or of several values in turn. It lives from step `first` until step `last`."""

    __slots__ = ("address", "first", "last", "offset", "size")

    def __init__(self, address: int, size: int, first: int) -> None:
        self.address = address
        self.size = size
        self.first = first
        self.last = first
        self.offset = -1  # not planned yet


class Arena:
    """Parts, in the order of their addresses.

    `now`: the step that is being laid out. `size`: bytes, known after `plan`. `shares`: whether parts with disjoint
    lifetimes may share bytes. `alignment`: of each part, in bytes.
    """

    def __init__(self, *, shares: bool = True, alignment: int = ALIGNMENT) -> None:
        self.shares = shares
        self.alignment = alignment
        self.now = 0
        self.size = 0
        self._parts: list[ArenaPart] = []
        self._addresses: list[int] = []
        self._end = 0

    def allocate(self, nbytes: int) -> int:
        """The address of a new part of `nbytes`."""
        size = max(-(-nbytes // self.alignment), 1) * self.alignment
        address = self._end
        self._end += size
        self._parts.append(ArenaPart(address, size, self.now))
        self._addresses.append(address)
        return address

    def part_of(self, address: int) -> ArenaPart:
        """The part that contains an address."""
        return self._parts[bisect_right(self._addresses, address) - 1]

    def keep(self, address: int, last: int) -> None:
        """Extend the lifetime of the part with this address to the step `last`."""
        part = self.part_of(address)
        part.last = max(part.last, last)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self._parts)

    @property
    def unshared(self) -> int:
        """The bytes of all parts together, without sharing."""
        return self._end

    def plan(self) -> None:
        """Give each part its offset: its address, or, with sharing, an offset that other parts use at other times.

        Parts are planned in groups of `TOGETHER`, in order of decreasing size; each group lies behind the one before.
        """
        if not self.shares:
            for part in self._parts:
                part.offset = part.address
            self.size = self._end
            return
        parts = sorted(self._parts, key=lambda part: -part.size)
        for start in range(0, len(parts), TOGETHER):
            place_parts(parts[start : start + TOGETHER], self.size)
            self.size = max(part.offset + part.size for part in parts[: start + TOGETHER])

    def offset_of(self, address: int) -> int:
        """The offset of an address in the planned arena."""
        part = self.part_of(address)
        return part.offset + address - part.address


def place_parts(parts: Sequence[ArenaPart], least: int) -> None:
    """Give parts, in this order, the lowest offset of at least `least` that is free during their lifetime."""
    placed: list[ArenaPart] = []  # by offset
    for part in parts:
        offset = least
        for other in placed:
            if other.first <= part.last and part.first <= other.last:
                if other.offset - offset >= part.size:
                    break
                offset = max(offset, other.offset + other.size)
        part.offset = offset
        placed.insert(bisect_right(placed, offset, key=lambda each: each.offset), part)
