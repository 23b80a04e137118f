"""Locations: where the user's code issued a call. Captured as (code, instruction offset), resolved to text once.

Reading a frame's line number walks the code's line table; the offset is one attribute. So each call site is looked up
by its offset, and only a site never seen before is resolved, named and sent.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar

from ..interpreter.errors import TensordError

Raised = TypeVar("Raised", bound=TensordError)
PACKAGE = __name__.partition(".")[0]
LIMIT = 1 << 14
NUMBERS = 4 * LIMIT
_ours: set[int] = set()  # ids of the globals of this package's modules


class Locations:
    """The call sites of one session, by number. Looked up without the session's lock, added under it."""

    __slots__ = ("lock", "newest", "sites", "unsent")

    def __init__(self, lock: AbstractContextManager[bool]) -> None:
        self.lock = lock
        # (id of code, instruction offset) -> (number, code): the code is kept, so that its id is not used again.
        self.sites: dict[tuple[int, int], tuple[int, CodeType]] = {}
        self.newest = 0
        self.unsent: list[tuple[int, str]] = []

    def number(self, frame: FrameType) -> int:
        """The number of the place where that frame is now."""
        code = frame.f_code
        site = self.sites.get((id(code), frame.f_lasti))
        return site[0] if site is not None else self._add(frame, code)

    def _add(self, frame: FrameType, code: CodeType) -> int:
        text = describe(frame)
        with self.lock:
            if len(self.sites) >= LIMIT:
                self.sites.clear()
            self.newest = self.newest % NUMBERS + 1  # used again, the oldest first, so that no table grows with history
            self.unsent.append((self.newest, text))
            self.sites[id(code), frame.f_lasti] = (self.newest, code)
            return self.newest


def user_frame(depth: int) -> FrameType:
    """The nearest frame outside this package, from `depth` callers up."""
    frame: FrameType = sys._getframe(depth + 1)
    while frame.f_back is not None and is_ours(frame):
        frame = frame.f_back
    return frame


def located(error: Raised) -> Raised:
    """The error with the user's line."""
    if error.location is None:
        error.location = describe(user_frame(1))
    return error


def is_ours(frame: FrameType) -> bool:
    """Is the frame one of this package?"""
    names = frame.f_globals
    if id(names) in _ours:
        return True
    module = str(names.get("__name__", ""))
    if module != PACKAGE and not module.startswith(PACKAGE + "."):
        return False
    if getattr(sys.modules.get(module), "__dict__", None) is names:  # the dict stays, so its id is not reused
        _ours.add(id(names))
    return True


def describe(frame: FrameType) -> str:
    """ "file:line in function", the file relative to the working directory where it lies below it."""
    code = frame.f_code
    path = Path(code.co_filename)
    try:
        shown = path.relative_to(Path.cwd())
    except (ValueError, OSError):
        shown = path
    return f"{shown}:{frame.f_lineno} in {code.co_qualname}"
