"""The arena of a segment: offsets in one block of memory for the values that nobody outside sees."""

from __future__ import annotations

from typing import Final

ALIGNMENT: Final = 64


class Arena:
    """Offsets in one block of memory, by liveness: first fit."""

    def __init__(self) -> None:
        self.size = 0
        self.taken: list[list[int]] = []  # [offset, end, last step that uses it], by offset

    def allocate(self, nbytes: int) -> int:
        """The offset of so many bytes."""
        size = max(-(-nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        offset = 0
        for index, (start, end, _) in enumerate(self.taken):
            if start - offset >= size:
                self.taken.insert(index, [offset, offset + size, -1])
                return offset
            offset = end
        self.taken.append([offset, offset + size, -1])
        self.size = max(self.size, offset + size)
        return offset

    def block_of(self, offset: int) -> int:
        """The offset of the block that an offset lies in."""
        return next(start for start, end, _ in self.taken if start <= offset < end)

    def keep(self, block: int, last: int) -> None:
        """A value in the block is used until that step."""
        for entry in self.taken:
            if entry[0] == block:
                entry[2] = max(entry[2], last)

    def free_until(self, position: int) -> None:
        """Free the blocks that no step behind that position uses."""
        self.taken = [entry for entry in self.taken if entry[2] > position]
