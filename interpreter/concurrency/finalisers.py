"""Finalisers that no exception from outside (a signal handler's, another thread's; see `interrupts`) stops half-way.
Python ignores exceptions in finalisers, so the exception would be lost, and so would the rest of the finaliser's work.

There are three ways, from the simplest on:

- `FINALISER` runs no Python code, so no exception can stop it; it costs each object some 0.3 us. The class has
  `__del__ = FINALISER`, and each object an attribute `_drop`, a C function without parameters: `partial(os.close, fd)`,
  `each_of` several, or `NOTHING`. It is a property: Python looks up `__del__`, gets the function in `_drop`, and calls
  that function. If `__init__` was interrupted before it set `_drop`, nothing happens.
- `LastReference`, for objects of other classes, is a weak reference that puts itself into a queue when its object is
  gone.
- `redone` marks a finaliser in Python, or the callback of a weak reference, that is called again if an exception has
  stopped it: for classes where 0.3 us are too much, or the work is more than a C function can do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter, call
from types import CodeType, FrameType
from typing import Any, Final, TypeVar
from weakref import ref

FINALISER: Final[Any] = property(attrgetter("_drop"))
NOTHING: Final[Callable[[], object]] = bool  # a C function that does nothing


def each_of(*functions: Callable[[], object]) -> Callable[[], object]:
    """A C function that calls these C functions, one after the other. Later calls of it do nothing."""
    return partial(deque, map(call, functions), 0)


REDONE_FINALISERS: Final[dict[CodeType, Callable[..., None]]] = {}  # by their code, with which `finish` finds them
Finaliser = TypeVar("Finaliser", bound=Callable[..., None])


def redone(finaliser: Finaliser) -> Finaliser:
    """A finaliser in Python that raises only exceptions from outside, and may be called twice: an exception that Python
    would ignore is raised soon afterwards (`interrupts`), and the finaliser is called again."""
    REDONE_FINALISERS[finaliser.__code__] = finaliser
    return finaliser


def finish(frame: FrameType) -> bool:
    """Call the finaliser that an exception has stopped in that frame again; `interrupts` does so.

    False for a finaliser that may raise an error of its own, such as a user's `weakref.finalize`: Python reports that
    error. The callbacks of Python's weak containers raise none, and have nothing left to do.
    """
    code = frame.f_code
    if code in REDONE_FINALISERS:
        given = frame.f_locals
        REDONE_FINALISERS[code](*[given[name] for name in code.co_varnames[: code.co_argcount]])
        return True
    callback = (frame.f_globals.get("__name__"), code.co_name)
    return callback in (("weakref", "remove"), ("_weakrefset", "_remove"))


class LastReference(ref[Any]):
    """A weak reference whose callback is a C function that keeps it, such as `queue.put`. `what`: the work to
    do when the reference is taken from the queue. It lives as long as `references` contains it."""

    __slots__ = ("what",)
    what: Any

    @classmethod
    def of(cls, thing: Any, gone: Callable[[Any], object], what: Any, references: dict[int, LastReference]) -> None:
        """Call `gone` with such a reference when the object is gone."""
        last = cls(thing, gone)
        last.what = what
        references[id(last)] = last
