"""Texts that a session has sent to be shown to people, by number: lines of its program, names of its spans.

Clients give new numbers for as long as they run, so a table keeps what was sent last, within a bound of bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

Text = TypeVar("Text", str, tuple[str, ...])

ENTRY = 200  # bytes that an entry takes besides its texts
OBJECT, WIDEST = 80, 4  # of a text, and of each of its characters


class Texts(Generic[Text]):
    """The texts by number, oldest first; beyond `limit` bytes the oldest are forgotten. `nbytes` is what they take."""

    __slots__ = ("_found", "_limit", "nbytes")

    def __init__(self, limit: int) -> None:
        self._found: OrderedDict[int, Text] = OrderedDict()
        self._limit = limit
        self.nbytes = 0

    def get(self, number: int) -> Text | None:
        """The text of a number, if it is known."""
        return self._found.get(number)

    def values(self) -> Iterable[Text]:
        return self._found.values()

    def items(self) -> Iterable[tuple[int, Text]]:
        """Numbers and texts, oldest first."""
        return self._found.items()

    def keep(self, number: int, text: Text) -> None:
        """Keep a text under its number, in place of what had the number before."""
        self.forget(number)
        self._found[number] = text
        self.nbytes += size_of(text)
        while self.nbytes > self._limit:
            self.nbytes -= size_of(self._found.popitem(last=False)[1])

    def forget(self, number: int) -> None:
        """Drop the text of a number, if there is one."""
        old = self._found.pop(number, None)
        if old is not None:
            self.nbytes -= size_of(old)

    def __len__(self) -> int:
        return len(self._found)


def size_of(text: str | tuple[str, ...]) -> int:
    """The bytes that an entry takes at most: the same at any time, whatever forms of its texts Python keeps besides."""
    parts = text if isinstance(text, tuple) else (text,)
    return ENTRY + sum([OBJECT + WIDEST * len(part) for part in parts])
