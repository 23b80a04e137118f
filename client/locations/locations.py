"""Locations: where the user's code issued a call. Captured as (code, instruction offset), resolved to text once.

Reading a frame's line number walks the code's line table; the offset is one attribute. So each call site is looked up
by its offset, and only a new site is resolved, named and sent. A line of the program is a site by itself: one lookup. A
line of installed code is a site together with its callers, up to the program's line (`frames`): one lookup each.
`frames=` gives every site that many callers.

Ops that a handler issues count as issued at the line of the op that it handles (`Handled`), not in the handler.

A location number consists of the number of the line and, in its upper bits, the number of the open spans (`spans`).
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.wire.forms import shown
from ...interpreter.wire.locations import LINE_MASK
from ...interpreter.wire.message_kinds import LOCATION
from .frames import OWNERS, PACKAGE, PROGRAM, Line, describe, describe_lines, describe_offset, lines_from, lines_of
from .spans import Spans

Raised = TypeVar("Raised", bound=TensordError)
MAX_SITES = 1 << 14  # call sites that a session remembers
SITE_NUMBERS = 4 * MAX_SITES  # numbers of call sites
# Numbers of lines of programs come after those of call sites, since a routine may outlive a site.
PROGRAM_LINE_NUMBERS = LINE_MASK - SITE_NUMBERS
RETRY_INTERVAL = 1024  # lines that get no number between two searches for freed numbers
VARIABLE = "TENSORD_FRAMES"
DEFAULT_FRAMES = 4  # lines of a location, unless another number is set
MAX_FRAMES = 16  # the most lines of a location


class Numbered(Protocol):
    """An owner of numbered lines, such as a linked program."""

    lines: set[int]

    def __hash__(self) -> int: ...


class Handled(threading.local):
    """For each thread: the frame of this package that has called its handlers, if any is active, and the line of the
    program for which the thread takes a later step, if it does (`waiting`)."""

    frame: FrameType | None = None
    line: str | None = None


HANDLED = Handled()
_lines: dict[tuple[int, int], tuple[CodeType, str]] = {}  # the texts of lines of the program, by code and offset
Callers: TypeAlias = dict[Any, Any]  # (id of code, instruction offset) -> a number, or the callers of that line


class Locations:
    """The call sites of one session, by number. Lookups need no lock; additions hold the session's lock.

    `sites` is a tree: a line of the program has a number, a line of a library has the lines that called it, and so on.
    If the stack ends without a line of the program, the key is None. Code objects are kept, so that their ids are not
    reused.
    """

    def __init__(self, lock: AbstractContextManager[bool], frames: int | None = None) -> None:
        self.lock = lock
        self.sites: Callers = {}
        self.size = 0  # keys in the tree, or slightly more
        self._codes: dict[int, CodeType] = {}
        self._texts: dict[str, int] = {}  # lines of programs
        self._users: WeakSet[Numbered] = WeakSet()  # their programs
        self._given = 0  # numbers given to their lines; beyond PROGRAM_LINE_NUMBERS, free numbers are reused
        self._free: list[int] = []
        self._missed = 0
        self.newest = 0
        self.unsent: list[list[Any]] = []
        self.spans = Spans(self)
        self._count = DEFAULT_FRAMES if frames is None else frames
        self._every = frames is not None
        self.command = ""  # of the command line, which then counts as the line of all calls

    def here(self, ours: int = 1) -> int:
        """The number of the line at which the program has called into this package; 0 if it is unknown.

        `ours`: the number of callers of this method that certainly belong to this package, and need not be examined.
        """
        try:
            frame = sys._getframe(ours + 1)  # noqa: SLF001 - the interpreter's own
        except ValueError:  # the outermost of them was called from C
            return self.spans.bits()
        line = self.site(frame)
        span = self.spans.get()
        return line if span is None else line | (span.bits or self.spans.number(span))

    def issued(self) -> int:
        """The number of the line that has called the current op."""
        if HANDLED.frame is None:
            return self.here(2)
        return self.site(HANDLED.frame) | self.spans.bits()

    def numbered(self, text: str, user: Numbered) -> int:
        """A number for the text of a line while its user lives; 0 if none is left. The caller holds the lock."""
        number = self._texts.get(text, 0)
        if not number and (number := self._free_number()):
            self._texts[text] = number
            self.unsent.append([LOCATION, number, text])
        user.lines.add(number)
        self._users.add(user)
        return number

    def _free_number(self) -> int:
        """A number that no line of a living user has; 0 if there is none."""
        if self._given < PROGRAM_LINE_NUMBERS:
            self._given += 1
            return SITE_NUMBERS + self._given
        if not self._free and self._missed % RETRY_INTERVAL == 0:
            used = set[int]().union(*[user.lines for user in self._users])
            unused = [text for text, number in self._texts.items() if number not in used]
            self._free = [self._texts.pop(text) for text in unused]
        if not self._free:
            self._missed += 1
            return 0
        self._missed = 0
        return self._free.pop()

    def line_of_site(self, number: int) -> str:
        """`train.py:12`, the line of a site; "" if it is gone. Searches all sites; the caller holds the lock."""
        found = [(self._codes[key[0]], key[1]) for key in path_to(self.sites, number) if key is not None]
        ours = (each for each in found if OWNERS[each[0].co_filename] is PROGRAM)
        return describe_offset(*next(ours, found[-1])) if found else ""

    def site(self, frame: FrameType | None) -> int:
        """The number of the current line of that frame, or of the nearest frame outside this package."""
        while frame is not None and OWNERS[frame.f_code.co_filename] is PACKAGE:
            frame = frame.f_back
        nearest, callers = frame, self.sites
        while frame is not None:
            entry = callers.get((id(frame.f_code), frame.f_lasti))
            if type(entry) is int:
                return entry
            if entry is None:
                return self._add(nearest)
            frame, callers = frame.f_back, entry
        return 0 if nearest is None else callers.get(None) or self._add(nearest)

    def _add(self, nearest: FrameType | None) -> int:
        frames, path = lines_from(nearest, self._count, every=self._every)
        text = self.command or describe(frames)
        with self.lock:  # ordered so that an exception from outside does no harm: at worst a number is lost
            if self.size >= MAX_SITES:
                self.sites.clear()
                self._codes.clear()
                self.size = 0
            self.newest = (
                self.newest % SITE_NUMBERS + 1
            )  # the oldest is reused first, so that no table grows with history
            self.unsent.append([LOCATION, self.newest, text])
            self._keep(path)
            return self.newest

    def _keep(self, path: list[FrameType | None]) -> None:
        """Associate the newest number with these frames."""
        callers = self.sites
        *nearer, last = [None if frame is None else self._key(frame) for frame in path]
        for key in nearer:
            if key not in callers:
                callers[key] = {}
                self.size += 1
            callers = callers[key]
            if type(callers) is int:  # another thread has added it
                return
        self.size += last not in callers
        callers[last] = self.newest

    def _key(self, frame: FrameType) -> tuple[int, int]:
        code = frame.f_code
        self._codes[id(code)] = code
        return id(code), frame.f_lasti


def path_to(callers: Callers, number: int) -> list[Any]:
    """The keys that lead to a number in a tree of call sites, nearest line first; empty if it is not there."""
    for key, inner in callers.items():
        rest = path_to(inner, number) if type(inner) is dict else []
        if rest or inner == number:
            return [key, *rest]
    return []


def user_line() -> str | None:
    """The user's line from which this package was called; None if there is none."""
    if HANDLED.line is not None:
        return HANDLED.line
    frame: FrameType | None = HANDLED.frame or sys._getframe(1)  # noqa: SLF001 - the interpreter's own
    while frame is not None and OWNERS[frame.f_code.co_filename] is PACKAGE:
        frame = frame.f_back
    if frame is None or OWNERS[frame.f_code.co_filename] is not PROGRAM:
        return describe_lines(user_lines()) or None
    code, text = _lines.get((id(frame.f_code), frame.f_lasti), (None, ""))
    if code is not frame.f_code:
        text = describe([frame])
        if len(_lines) >= MAX_SITES:
            _lines.clear()
        _lines[id(frame.f_code), frame.f_lasti] = frame.f_code, text
    return text


def user_lines() -> list[Line]:
    """The same line, undescribed, with its callers if it is in a library."""
    frame = HANDLED.frame or sys._getframe(1)  # noqa: SLF001 - the interpreter's own
    return lines_of(lines_from(frame, DEFAULT_FRAMES, every=False)[0])


def located(error: Raised) -> Raised:
    """The error with the user's line."""
    if error.location is None:
        error.location = user_line()
    return error


def check_frames(frames: int | None) -> int | None:
    """The number of lines of a location: `frames`, else $TENSORD_FRAMES, else None. MetadataError for other values."""
    if frames is not None:
        if type(frames) is not int or not 1 <= frames <= MAX_FRAMES:
            raise MetadataError(f"frames= must be a number from 1 to {MAX_FRAMES}, not {shown(frames)}")
        return frames
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not named.isdecimal() or not 1 <= int(named) <= MAX_FRAMES:
        raise MetadataError(f"${VARIABLE} is a number from 1 to {MAX_FRAMES}, not {shown(named)}")
    return int(named)
