"""Values that a recording must not contain: of tensors with certain names, or uploaded at certain lines.

A name is published after its value was uploaded, so the value is in the file by then, and is removed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from ...interpreter.recordings.entries import ANSWER, IMPORT, MESSAGE, PIECE, VALUE, decode_entry
from ...interpreter.recordings.messages import messages_in
from ...interpreter.recordings.writer import RecordingWriter
from ...interpreter.wire.locations import line_of
from ...interpreter.wire.messages import Fetch, Location, Publish, Release, Upload

REASON: Final = "left out (--without)"


class LeftOut:
    """Examines each written entry. `patterns`: of names, and of lines (`train.py:12`)."""

    def __init__(self, writer: RecordingWriter, patterns: Sequence[str]) -> None:
        self.writer = writer
        self.patterns = patterns
        self.count = 0  # values that were removed
        self._pieces: dict[int, list[tuple[int, int]]] = {}  # by value: offsets and lengths
        self._of: dict[tuple[int, int], list[int]] = {}  # values by session and id
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}  # tensors by session and request
        self._lines: dict[tuple[int, int], str] = {}
        self._names: set[tuple[int, int]] = set()  # tensors to leave out

    def look(self, body: bytes, offset: int) -> None:
        """Examine an entry that was written at that offset."""
        entry = decode_entry(body)
        kind = entry[0]
        if kind == VALUE:
            self._pieces[entry[1]] = []
        elif kind == PIECE:
            self._pieces[entry[1]].append((offset, len(entry[2])))
        elif kind == MESSAGE:
            values = iter(entry[4])
            for message in messages_in(entry[3]):
                self._message(entry[1], message, values)
        elif kind == IMPORT:
            self._asked[entry[1], entry[5]] = (entry[1], entry[3])
        elif kind == ANSWER and (tensor := self._asked.pop((entry[1], entry[2]), None)) is not None:
            self._note_value(tensor, entry[3])

    def _message(self, session: int, message: Any, values: Iterator[int]) -> None:
        kind = type(message)
        if kind is Location:
            self._lines[session, message.number] = message.text
        elif kind is Upload:
            tensor = (session, message.output)
            line = self._lines.get((session, line_of(message.location)), "")
            if self._matches(line.partition(" in ")[0].rpartition("/")[2]):
                self._names.add(tensor)
            self._note_value(tensor, next(values, 0))
        elif kind is Fetch:
            self._asked[session, message.request] = (session, message.id)
        elif kind is Release:
            for id_ in message.ids:
                for number in self._of.pop((session, id_), ()):
                    self._pieces.pop(number, None)
        elif kind is Publish:
            for name, id_ in zip(message.names, message.ids, strict=False):
                if self._matches(name):
                    self._names.add((session, id_))
                    for number in self._of.pop((session, id_), ()):
                        self._blank(number)

    def _matches(self, text: str) -> bool:
        return any(fnmatchcase(text, pattern) for pattern in self.patterns)

    def _note_value(self, tensor: tuple[int, int], number: int) -> None:
        """Note that a tensor has that value."""
        if tensor in self._names:
            self._blank(number)
        elif number:
            self._of.setdefault(tensor, []).append(number)

    def _blank(self, number: int) -> None:
        if number in self._pieces:
            self.count += 1
            self.writer.blank(number, REASON, self._pieces.pop(number))
