"""Intercepts exceptions that one thread throws at another: `ctypes.pythonapi.PyThreadState_SetAsyncExc`.

Debuggers and timeouts throw through this function of the interpreter, which Python programs reach only by
`ctypes.pythonapi`. While there are sessions, a door replaces the function there. It holds back exceptions for a thread
in a region (`interrupts`), or at the end of a block; it logs and drops those for a thread of this package, since that
thread has no user's line; and it passes all others to the interpreter. The check of regions and the following action
have no checkpoint between them, so the thread cannot enter or leave one meanwhile. The check of block ends has some, so
the door checks again after it has held an exception back.

Not covered: exceptions thrown by C code, or by Python code that fetched the function before the first session was
opened. If one hits a region, the machine in this process, or the session on a daemon, ends with an error that says so.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Container
from types import CodeType
from typing import Any, Final

from .blocks import is_ending

FUNCTION_NAME: Final = "PyThreadState_SetAsyncExc"
THREAD_PREFIX: Final = "tensord"  # the beginning of the names of the package's own threads
LOG: Final = logging.getLogger("tensord.concurrency")


class Door:
    """The replacement function. `inside` and `asleep`: the threads in regions; `thrown` gets exceptions that are held
    back."""

    def __init__(self, inside: Container[int], asleep: Container[int], thrown: dict[int, Any]) -> None:
        self._inside = inside
        self._asleep = asleep
        self._thrown = thrown
        self._ours: Any = None

    def open(self) -> None:
        """Install the door, unless it is installed."""
        try:
            from ctypes import pythonapi
        except ImportError:  # an interpreter without ctypes, where nothing can be thrown from Python
            return
        if self._ours is None:
            self._ours = self._make(pythonapi)
            setattr(pythonapi, FUNCTION_NAME, self._ours)

    def close(self) -> None:
        """Remove the door, unless something else was installed in its place."""
        ours, self._ours = self._ours, None
        if ours is not None:
            from ctypes import pythonapi

            if vars(pythonapi).get(FUNCTION_NAME) is ours:
                delattr(pythonapi, FUNCTION_NAME)

    def throw(self, thread: int, error: BaseException) -> None:
        """Throw this exception itself, through the door if it is open."""
        try:
            from ctypes import c_ulong, py_object, pythonapi
        except ImportError:
            self._thrown[thread] = error  # the thread raises it after its next region
        else:
            getattr(pythonapi, FUNCTION_NAME)(c_ulong(thread), py_object(made_by_class(error)))

    def is_covered(self, thread: int) -> bool:
        """Return whether that thread is in a region, or at the end of a block."""
        ends = is_ending(sys._current_frames().get(thread))  # noqa: SLF001
        return ends or thread in self._inside or thread in self._asleep

    def _make(self, pythonapi: Any) -> Any:
        throw = getattr(pythonapi, FUNCTION_NAME)
        is_covered, pending = self.is_covered, self._thrown

        class Throw(pythonapi._FuncPtr):  # type: ignore[misc]  # noqa: SLF001
            """The interpreter's function, except for threads in a region and threads of this package."""

            _flags_ = pythonapi._FuncPtr._flags_  # noqa: SLF001

            def __call__(self, thread: Any, thrown: Any) -> Any:
                number, exception = getattr(thread, "value", thread), value_of(thrown)
                if exception is None:  # take back an earlier exception
                    pending.pop(number, None)
                    return throw(thread, thrown)
                if (ours := name_of_ours(number)) is not None:
                    LOG.error("%r was thrown at the thread %r, which goes on without it", exception, ours)
                    return 1
                if is_covered(number):
                    pending[number] = exception
                    if is_covered(number) or pending.pop(number, None) is None:
                        return 1
                return throw(thread, thrown)

        made = Throw((FUNCTION_NAME, pythonapi))
        made.argtypes, made.restype = throw.argtypes, throw.restype
        return made


def made_by_class(error: BaseException) -> type[BaseException]:
    """A class whose only instance is that exception: the interpreter throws classes."""

    class Thrown(BaseException):
        """Never visible to a program."""

        def __new__(cls, *_: object) -> Any:  # the interpreter calls it again with the exception
            return error

    return Thrown


def name_of_ours(number: int) -> str | None:
    """The name of a thread of this package; None for other threads. Takes no lock, unlike `threading.enumerate`, since
    a signal handler may call it."""
    thread = vars(threading)["_active"].get(number)
    name = "" if thread is None else str(thread.name)
    return name if name.startswith(THREAD_PREFIX) else None


def runs_in(thread: int, code: CodeType) -> bool:
    """Return whether a thread runs this code, at any depth of its stack."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def value_of(thrown: Any) -> Any:
    """The exception in a `ctypes.py_object`, or as it is; None for none, which takes back an earlier exception."""
    try:
        return getattr(thrown, "value", thrown)
    except ValueError:  # a NULL pointer
        return None
