"""The arena of a segment: one block of memory for the values that nobody outside sees.

While a segment is laid out, each of its *parts* has an address of its own, so that values are told apart by addresses.
Their offsets in memory are planned at the end, when it is known how long each is used: large ones first, each at the
lowest offset that is free as long as it lives. Source: the greedy-by-size planner of TensorFlow Lite (Pisarchyk and
Lee, arXiv 2001.03288).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

ALIGNMENT: Final = 64
TOGETHER: Final = 256  # parts: the time grows with the square of their number


class ArenaPart:
    """Bytes of one value, or of several one after the other. It lives from step `first` until step `last`."""

    __slots__ = ("address", "first", "last", "offset", "size")

    def __init__(self, address: int, size: int, first: int) -> None:
        self.address = address
        self.size = size
        self.first = first
        self.last = first
        self.offset = -1  # until it is planned


class Arena:
    """Parts, in the order of their addresses. `now`: the step that is laid out. `size`: once it is planned. `shares`:
    may parts that do not live at the same time share bytes? `alignment`: of each part, in bytes."""

    def __init__(self, *, shares: bool = True, alignment: int = ALIGNMENT) -> None:
        self.shares = shares
        self.alignment = alignment
        self.now = 0
        self.size = 0
        self._parts: list[ArenaPart] = []
        self._addresses: list[int] = []
        self._end = 0

    def allocate(self, nbytes: int) -> int:
        """The address of a new part of so many bytes."""
        size = max(-(-nbytes // self.alignment), 1) * self.alignment
        address = self._end
        self._end += size
        self._parts.append(ArenaPart(address, size, self.now))
        self._addresses.append(address)
        return address

    def part_of(self, address: int) -> ArenaPart:
        """The part that an address lies in."""
        return self._parts[bisect_right(self._addresses, address) - 1]

    def keep(self, address: int, last: int) -> None:
        """The part with that address is used until that step."""
        part = self.part_of(address)
        part.last = max(part.last, last)

    @property
    def parts(self) -> int:
        """How many parts it has."""
        return len(self._parts)

    @property
    def unshared(self) -> int:
        """The bytes of all parts together."""
        return self._end

    def plan(self) -> None:
        """Give each part its offset: its address, or one where others were before. So many parts are planned together,
        the smaller ones behind the larger ones."""
        if not self.shares:
            for part in self._parts:
                part.offset = part.address
            self.size = self._end
            return
        parts = sorted(self._parts, key=lambda part: -part.size)
        for start in range(0, len(parts), TOGETHER):
            place(parts[start : start + TOGETHER], self.size)
            self.size = max(part.offset + part.size for part in parts[: start + TOGETHER])

    def offset_of(self, address: int) -> int:
        """Where an address lies, once that is planned."""
        part = self.part_of(address)
        return part.offset + address - part.address


def place(parts: Sequence[ArenaPart], least: int) -> None:
    """Give parts their offsets, from `least` on, in this order: each the lowest that is free as long as it lives."""
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
