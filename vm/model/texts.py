"""The texts that a session has sent for reports, by number: lines of its program, names of its spans.

Clients send texts under new numbers for as long as they run, so a table keeps the newest texts, within a bound of
bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from ...interpreter.wire.locations import line_of, span_of

Text = TypeVar("Text", str, tuple[str, ...])

ENTRY = 200  # bytes of an entry without its texts
OBJECT, WIDEST = 80, 4  # bytes of a text without its characters, and the most bytes of a character


class Texts(Generic[Text]):
    """Texts by number, oldest first; beyond `limit` bytes the oldest are forgotten. `nbytes`: the bytes in use."""

    __slots__ = ("_found", "_limit", "nbytes")

    def __init__(self, limit: int) -> None:
        self._found: OrderedDict[int, Text] = OrderedDict()
        self._limit = limit
        self.nbytes = 0

    def get(self, number: int) -> Text | None:
        """The text of a number; None if it is unknown."""
        return self._found.get(number)

    def values(self) -> Iterable[Text]:
        return self._found.values()

    def items(self) -> Iterable[tuple[int, Text]]:
        """Numbers and texts, oldest first."""
        return self._found.items()

    def keep(self, number: int, text: Text) -> None:
        """Store a text under its number, in place of any earlier text."""
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


class SourceTexts:
    """The lines and spans of a session's program. `limit`: bytes of the lines, and of the spans."""

    __slots__ = ("lines", "spans")

    def __init__(self, limit: int) -> None:
        self.lines: Texts[str] = Texts(limit)
        self.spans: Texts[tuple[str, ...]] = Texts(limit)

    @property
    def nbytes(self) -> int:
        return self.lines.nbytes + self.spans.nbytes

    def where(self, location: int) -> str | None:
        """The user's line behind a location number; None for one that was never sent."""
        try:
            return self.lines.get(line_of(location))
        except TypeError:  # a damaged message ran before this field was checked
            return None

    def span(self, location: int) -> tuple[str, ...]:
        """The names of the spans behind a location number, the outermost first."""
        return self.spans.get(span_of(location)) or ()


def size_of(text: str | tuple[str, ...]) -> int:
    """An upper bound of an entry's bytes, which does not depend on the representation that Python chooses."""
    parts = text if isinstance(text, tuple) else (text,)
    return ENTRY + sum([OBJECT + WIDEST * len(part) for part in parts])
