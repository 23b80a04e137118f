"""The door for exceptions that one thread throws at another: `ctypes.pythonapi.PyThreadState_SetAsyncExc`.

Debuggers and timeouts throw through this function of the interpreter, which Python programs reach by `ctypes.pythonapi`
alone. While there are sessions, the name there leads to this door. It keeps back what is for a thread in a region
(`interrupts`), or at the end of a block; it logs and drops what is for a thread of this package, since that thread has
no user's line; and it gives everything else to the interpreter. The look at regions and what follows from it have no
checkpoint between them, so the thread cannot enter or leave one meanwhile. The look at the ends of blocks has some, so
the door looks again when it has kept an exception.

Not covered: what C code throws, or Python code by a function that it took before the first session was opened. If that
hits a region, the machine in this process, or the session on a daemon, ends with an error that says so.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Container
from types import CodeType
from typing import Any, Final

from .blocks import is_ending

NAME: Final = "PyThreadState_SetAsyncExc"
OURS: Final = "tensord"  # how the names of the package's own threads begin
LOG: Final = logging.getLogger("tensord.concurrency")


class Door:
    """`inside` and `asleep` are the threads in regions; `thrown` takes what is kept for them."""

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

    def throw(self, thread: int, error: BaseException) -> None:
        """Throw this very exception, through the door if it is open."""
        try:
            from ctypes import c_ulong, py_object, pythonapi
        except ImportError:
            self._thrown[thread] = error  # which the thread raises behind its next region
        else:
            getattr(pythonapi, NAME)(c_ulong(thread), py_object(made_by_class(error)))

    def is_covered(self, thread: int) -> bool:
        """Is that thread in a region, or at the end of a block?"""
        ends = is_ending(sys._current_frames().get(thread))  # noqa: SLF001
        return ends or thread in self._inside or thread in self._asleep

    def _make(self, pythonapi: Any) -> Any:
        throw = getattr(pythonapi, NAME)
        is_covered, kept = self.is_covered, self._thrown

        class Throw(pythonapi._FuncPtr):  # type: ignore[misc]  # noqa: SLF001
            """The interpreter's function, for all threads but those in a region and those of this package."""

            _flags_ = pythonapi._FuncPtr._flags_  # noqa: SLF001

            def __call__(self, thread: Any, thrown: Any) -> Any:
                number, what = getattr(thread, "value", thread), value_of(thrown)
                if what is None:  # take back what was thrown before
                    kept.pop(number, None)
                    return throw(thread, thrown)
                if (ours := name_of_ours(number)) is not None:
                    LOG.error("%r was thrown at the thread %r, which goes on without it", what, ours)
                    return 1
                if is_covered(number):
                    kept[number] = what
                    if is_covered(number) or kept.pop(number, None) is None:
                        return 1
                return throw(thread, thrown)

        made = Throw((NAME, pythonapi))
        made.argtypes, made.restype = throw.argtypes, throw.restype
        return made


def made_by_class(error: BaseException) -> type[BaseException]:
    """A class whose only instance is that exception: the interpreter throws classes."""

    class Thrown(BaseException):
        """Not seen by anybody."""

        def __new__(cls, *_: object) -> Any:  # called with the exception where the interpreter asks for it again
            return error

    return Thrown


def name_of_ours(number: int) -> str | None:
    """The name of a thread of this package; None for any other one. Takes no lock, as `threading.enumerate` does, since
    a signal handler may ask."""
    thread = vars(threading)["_active"].get(number)
    name = "" if thread is None else str(thread.name)
    return name if name.startswith(OURS) else None


def runs_in(thread: int, code: CodeType) -> bool:
    """Does a thread run this code, at any depth of its stack?"""
    frame = sys._current_frames().get(thread)  # noqa: SLF001
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def value_of(thrown: Any) -> Any:
    """The exception in a `ctypes.py_object`, or as it is; None for none, which takes back what was thrown before."""
    try:
        return getattr(thrown, "value", thrown)
    except ValueError:  # a NULL pointer
        return None
