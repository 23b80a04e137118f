"""Finds the owner of the code that a frame runs, and the frames that describe the origin of a call.

A file of code belongs to this package, to installed code (Python's own library and site-packages), or to the user's
program. Frames are found by walking outwards from one of this package's own, never by counting: a call may come from a
function in C with no Python frame below it, so the walk may find none. That is no error: a location is then empty.

The nearest frame outside this package made the call. If it is installed code, which the user did not write, its callers
matter: they are followed to the first line of the program, which is always shown.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from enum import IntEnum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, TypeAlias

from ...interpreter.wire.limits import Limits
from ...interpreter.wire.locations import CALLED_BY

Line: TypeAlias = tuple[CodeType, int]  # a line number in the code
MAX_LOCATION = Limits().text  # characters of a location
MAX_EXAMINED_FRAMES = 16  # outside the package: each costs a lookup at each call
MAX_FILES = 1 << 14  # files whose owners are cached: each cell of a notebook is a file

_HERE = str(Path("client", "locations", "frames.py"))
_ROOT = (lambda: None).__code__.co_filename.removesuffix(_HERE)
_COMPILED = str(Path("src", "tensord", ""))  # the sources of compiled modules, as the build named them
_LIBRARY = str(Path(os.__file__).parent) + os.sep
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_GENERATED = ("<frozen ", "<__array_function__ ")  # the import system, and NumPy's wrappers of its functions


class FrameOwner(IntEnum):
    """The owner of code."""

    PACKAGE = auto()
    INSTALLED = auto()
    PROGRAM = auto()


class _Owners(dict[str, FrameOwner]):
    """File name -> owner."""

    def __missing__(self, file: str) -> FrameOwner:
        if len(self) >= MAX_FILES:
            self.clear()
        self[file] = owner = owner_of(file)
        return owner


OWNERS = _Owners()
PACKAGE, PROGRAM = FrameOwner.PACKAGE, FrameOwner.PROGRAM


def owner_of(file: str) -> FrameOwner:
    """The owner of a file, by its name in code objects."""
    if file.startswith((_ROOT, _COMPILED)):
        return PACKAGE
    installed = name_in_package(file) != file or file.startswith(_GENERATED)
    return FrameOwner.INSTALLED if installed else FrameOwner.PROGRAM


def name_in_package(file: str) -> str:
    """The name of an installed file within its package: "sklearn/base.py", "asyncio/events.py"."""
    for folder in _INSTALLED:
        if folder in file:
            return file.rpartition(folder)[2]
    return file.removeprefix(_LIBRARY)


def lines_from(frame: FrameType | None, count: int, *, every: bool) -> tuple[list[FrameType], list[FrameType | None]]:
    """Up to `count` frames, nearest first. The last one is the program's, if the program has any.

    They end at the program's nearest frame, or with `every` go on from there. Also returns the path to them: all frames
    up to the last one, or the whole stack, followed by None, if all of it was examined.
    """
    frames: list[FrameType] = []
    path: list[FrameType | None] = []
    reached = count == 1  # the program's frame
    left = MAX_EXAMINED_FRAMES
    while left:
        path.append(frame)
        if frame is None:
            return frames, path
        owner = OWNERS[frame.f_code.co_filename]
        if owner is not PACKAGE:
            left -= 1
            reached = reached or owner is FrameOwner.PROGRAM
            if len(frames) < count:
                frames.append(frame)
            elif reached:
                frames[-1] = frame
            if reached and (not every or len(frames) == count):
                return frames, path
        frame = frame.f_back
    if not reached:  # no line of the program was found: keep the nearest lines
        del path[path.index(frames[-1]) + 1 :]
    return frames, path


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the user's line, as `warnings.warn` does with the right stack level."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the interpreter's own
    while frame is not None and OWNERS[frame.f_code.co_filename] is PACKAGE:
        frame = frame.f_back
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, names.get("__name__"), registry)


def describe(frames: Iterable[FrameType]) -> str:
    """ "file:line in function" of each frame, the nearest first; "" for no frames."""
    return describe_lines(lines_of(frames))


def lines_of(frames: Iterable[FrameType]) -> list[Line]:
    """The present lines of the frames, to be described later, if at all, since a description costs ten times as
    much."""
    return [(frame.f_code, frame.f_lineno) for frame in frames]


def describe_lines(lines: Sequence[Line]) -> str:
    """`describe` for lines whose frames may be gone."""
    room = (MAX_LOCATION + len(CALLED_BY)) // max(1, len(lines)) - len(CALLED_BY)
    texts = (f"{line_in(code.co_filename, line)} in {code.co_qualname}" for code, line in lines)
    return CALLED_BY.join(printable(text)[-room:] for text in texts)


def printable(text: str) -> str:
    """The text in valid UTF-8: file names may hold arbitrary bytes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def describe_offset(code: CodeType, offset: int) -> str:
    """ "file:line" of an instruction's offset."""
    line = next((line for start, end, line in code.co_lines() if start <= offset < end), None)
    return printable(line_in(code.co_filename, line or code.co_firstlineno))


def line_in(file: str, line: int) -> str:
    """ "file:line", or "Cell In[12], line 1" where that is a notebook's cell."""
    cell = cell_of(file)
    return f"{cell}, line {line}" if cell else f"{shown(file)}:{line}"


def shown(file: str) -> str:
    """A file's name for people: relative to its package, or to the working directory if it lies below."""
    short = name_in_package(file)
    if short != file:
        return short
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


# -- cells of notebooks ------------------------------------------------------------------------------------------------

_IN_THE_NAME: Final = (
    (re.compile(r"<ipython-input-(\d+)-"), "Cell In[{}]"),
    (re.compile(r"__marimo__cell_(\w+?)_[^/]*$"), "Cell {}"),
)


def cell_of(file: str) -> str:
    """ "Cell In[12]" for the file name of a notebook cell's code; "" for other files."""
    asked = asked_of_ipython(file)
    if asked:
        return asked
    found = ((pattern.search(file), form) for pattern, form in _IN_THE_NAME)
    return next((form.format(match[1]) for match, form in found if match is not None), "")


def asked_of_ipython(file: str) -> str:
    """The name that this process's IPython shell gives the cell; "" without a shell, or if the shell does not know it.

    IPython, and so Jupyter's kernel, is asked in the same way as its own tracebacks ask: the shell's compiler knows the
    cell and the run of the code. Nothing is imported, and every error is ignored: a line is described while something
    else has failed.
    """
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_shell is None:
        return ""
    try:
        label, name = get_shell().compile.format_code_name(file)
    except Exception:  # no shell, no such cell, or another version
        return ""
    return f"{label} {name}" if isinstance(label, str) and isinstance(name, str) else ""
