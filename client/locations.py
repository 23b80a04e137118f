"""Locations: where the user's code issued a call. Captured as (code, instruction offset), resolved to text once.

Reading a frame's line number walks the code's line table; the offset is one attribute. So each call site is looked up
by its offset, and only a site never seen before is resolved, named and sent. A line of the program's own is a site by
itself: one lookup. A line of installed code is a site together with its callers, up to the program's line (`frames`),
so these are walked at each call. `frames=` gives every site that many callers.

A location number is that of the line, and above it that of the open spans (`spans`).
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Any, TypeVar

from ..interpreter.errors import MetadataError, TensordError
from ..interpreter.wire.forms import shown
from ..interpreter.wire.messages import Location, NamedMessage
from .frames import OWNERS, Owner, describe, lines_from, outside
from .spans import Spans

Raised = TypeVar("Raised", bound=TensordError)
LIMIT = 1 << 14
NUMBERS = 4 * LIMIT
VARIABLE = "TENSORD_FRAMES"
FRAMES = 4  # lines of a location, unless another number is set
MOST = 16


class Locations:
    """The call sites of one session, by number. Looked up without the session's lock, added under it.

    `sites` are the lines that need no callers, by (id of code, instruction offset); `chains` the others, by those of
    each frame. Both hold the number, and the code: it is kept, so that its id is not used again.
    """

    __slots__ = ("_count", "_every", "chains", "lock", "newest", "sites", "spans", "unsent")

    def __init__(self, lock: AbstractContextManager[bool], frames: int | None = None) -> None:
        self.lock = lock
        self.sites: dict[tuple[int, ...], tuple[int, list[CodeType]]] = {}
        self.chains: dict[tuple[int, ...], tuple[int, list[CodeType]]] = {}
        self.newest = 0
        self.unsent: list[NamedMessage] = []
        self.spans = Spans(self)
        self._count = FRAMES if frames is None else frames
        self._every = frames is not None

    def here(self) -> int:
        """The number of the place from which the program has come to this function's caller; 0 if it is not known."""
        return self.site(sys._getframe(1)) | self.spans.bits()

    def site(self, frame: FrameType | None) -> int:
        """The number of the line where that frame is now, or the nearest frame around it outside this package."""
        frame = outside(frame)
        if frame is None:
            return 0
        known = self.sites.get((id(frame.f_code), frame.f_lasti))
        return self._lookup(frame) if known is None else known[0]

    def _lookup(self, frame: FrameType) -> int:
        """The number of a line that needs callers, or is not known."""
        owner = OWNERS[frame.f_code.co_filename]
        alone = self._count == 1 or (owner is Owner.PROGRAM and not self._every)
        frames = [frame] if alone else lines_from(frame, self._count, every=self._every)
        key = tuple([part for each in frames for part in (id(each.f_code), each.f_lasti)])
        table = self.sites if alone else self.chains
        known = table.get(key)
        return self._add(table, key, frames) if known is None else known[0]

    def _add(self, table: dict[tuple[int, ...], Any], key: tuple[int, ...], frames: list[FrameType]) -> int:
        text = describe(frames)
        with self.lock:
            if len(self.sites) + len(self.chains) >= LIMIT:
                self.sites.clear()
                self.chains.clear()
            self.newest = self.newest % NUMBERS + 1  # used again, the oldest first, so that no table grows with history
            self.unsent.append(Location(self.newest, text))
            table[key] = (self.newest, [frame.f_code for frame in frames])
            return self.newest


def user_line() -> str | None:
    """The line from which the program has come to this function's caller; None if there is none."""
    return describe(lines_from(sys._getframe(1), FRAMES, every=False)) or None


def located(error: Raised) -> Raised:
    """The error with the user's line."""
    if error.location is None:
        error.location = user_line()
    return error


def check_frames(frames: int | None) -> int | None:
    """The number of lines of a location: as given, else $TENSORD_FRAMES, else None. MetadataError for other values."""
    if frames is not None:
        if type(frames) is not int or not 1 <= frames <= MOST:
            raise located(MetadataError(f"frames= is a number from 1 to {MOST}, not {shown(frames)}"))
        return frames
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not named.isdecimal() or not 1 <= int(named) <= MOST:
        raise located(MetadataError(f"${VARIABLE} is a number from 1 to {MOST}, not {shown(named)}"))
    return int(named)
