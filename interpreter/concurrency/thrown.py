"""The door for exceptions that one thread throws at another: `ctypes.pythonapi.PyThreadState_SetAsyncExc`.

Debuggers and timeouts throw through this function of the interpreter, which Python programs reach by `ctypes.pythonapi`
alone. While there are sessions, the name there leads to this door. It keeps back what is for a thread in a region
(`interrupts`), or at the end of a block, and gives everything else to the interpreter. The look at regions and what
follows from it have no checkpoint between them, so the thread cannot enter or leave one meanwhile.

Not covered: what C code throws, or Python code by a function that it took before the first session was opened. If that
hits a region, the machine in this process, or the session on a daemon, ends with an error that says so.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from typing import Any, Final

from .blocks import is_ending

NAME: Final = "PyThreadState_SetAsyncExc"


class Door:
    """`inside` and `asleep` are the threads in regions; `thrown` takes what is kept for them."""

    __slots__ = ("_asleep", "_inside", "_ours", "_thrown")

    def __init__(self, inside: Container[int], asleep: Container[int], thrown: dict[int, Any]) -> None:
        self._inside = inside
        self._asleep = asleep
        self._thrown = thrown
        self._ours: Any = None

    def open(self) -> None:
        """Put the door in its place, unless it is there."""
        try:
            from ctypes import pythonapi
        except ImportError:  # an interpreter without ctypes, where nothing can be thrown from Python
            return
        if self._ours is None:
            self._ours = self._make(pythonapi)
            setattr(pythonapi, NAME, self._ours)

    def close(self) -> None:
        """Take the door away, unless something else was put in its place."""
        ours, self._ours = self._ours, None
        if ours is not None:
            from ctypes import pythonapi

            if vars(pythonapi).get(NAME) is ours:
                delattr(pythonapi, NAME)

    def _make(self, pythonapi: Any) -> Any:
        throw = getattr(pythonapi, NAME)
        inside, asleep, kept = self._inside, self._asleep, self._thrown

        class Throw(pythonapi._FuncPtr):  # type: ignore[misc]  # noqa: SLF001
            """The interpreter's function, for all threads but those in a region."""

            _flags_ = pythonapi._FuncPtr._flags_  # noqa: SLF001

            def __call__(self, thread: Any, thrown: Any) -> Any:
                number, what = getattr(thread, "value", thread), value_of(thrown)
                ends = what is not None and is_ending(sys._current_frames().get(number))  # noqa: SLF001
                if what is not None and (ends or number in inside or number in asleep):
                    kept[number] = what
                    return 1
                return throw(thread, thrown)

        made = Throw((NAME, pythonapi))
        made.argtypes, made.restype = throw.argtypes, throw.restype
        return made


def value_of(thrown: Any) -> Any:
    """The exception in a `ctypes.py_object`, or as it is; None for none, which takes back what was thrown before."""
    try:
        return getattr(thrown, "value", thrown)
    except ValueError:  # a NULL pointer
        return None
