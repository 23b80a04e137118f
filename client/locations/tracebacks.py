"""Tracebacks that end at the user's line: the frames of this package are removed from the errors that it raises.

An exception gets an entry for each frame that it leaves. The outermost frame of this package removes the package's
entries again, and its bare `raise` adds none, so the next entry is the caller's. Each public entry has such a clause:
on the hot path it is written by hand, where it costs nothing; others use `public`, which costs one more call.

`TENSORD_TRACEBACK=full` leaves everything as it is. Errors that are not meant for users, from a bug of this package,
always keep their entries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import FunctionType, TracebackType
from typing import Any, Final, TypeAlias, TypeVar

from ...interpreter.errors import TensordError
from .frames import OWNERS, PACKAGE

C = TypeVar("C", bound=Callable[..., Any])
VARIABLE: Final = "TENSORD_TRACEBACK"
DEBUG: Final = "TENSORD_DEBUG"  # of the command line, which then shows tracebacks
_COUNTED: Final = re.compile(r"takes (?:from (\d+) to )?(\d+) positional arguments? but (\d+) ")
Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
PUBLIC_ERRORS: Final = (TensordError, TimeoutError, KeyboardInterrupt)  # users need only their own line


def hide(error: BaseException) -> None:
    """Remove this package's frames from the error's traceback; a bare `raise` must follow."""
    if os.environ.get(VARIABLE) != "full" and not os.environ.get(DEBUG):
        error.__traceback__ = foreign_entries(error.__traceback__)


def foreign_entries(traceback: TracebackType | None) -> TracebackType | None:
    """The entries of other code, such as callbacks and handlers."""
    entries = []
    while traceback is not None:
        if OWNERS[traceback.tb_frame.f_code.co_filename] is not PACKAGE:
            entries.append(traceback)
        traceback = traceback.tb_next
    chain: TracebackType | None = None
    for entry in reversed(entries):
        chain = TracebackType(chain, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return chain


def public(function: C, errors: Kinds = PUBLIC_ERRORS) -> C:
    """Make the function an entry from users' code. `errors`: the classes of those that are meant for users."""

    @wraps(function)
    def entry(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors as error:
            hide(error)
            raise
        except Exception as error:
            here = error.__traceback__
            inside = None if here is None else here.tb_next
            if inside is None and type(error) is TypeError:
                error.args = (as_called(function, str(error)),)
            error.__traceback__ = inside  # for wrong arguments, only the caller's entry
            raise

    return entry  # type: ignore[return-value]


def refusing(function: C) -> C:
    """Make the function an entry that refuses: all its errors are for users."""
    return public(function, Exception)


def as_called(function: Callable[..., Any], message: str) -> str:
    """Python's message about wrong arguments as the caller sees it: without the class and self."""
    message = message.replace(f"{function.__qualname__}()", f"{function.__name__}()")
    counted = _COUNTED.search(message)
    if counted is None or next(iter(function.__code__.co_varnames), "") != "self":
        return message
    least, most, given = (int(number or counted[2]) - 1 for number in counted.groups())
    return too_many(function.__name__, least, most, given)


def too_many(name: str, least: int, most: int, given: int) -> str:
    """The message for `given` positional arguments of a function that takes `least` to `most`."""
    wanted = f"{most}" if least == most else f"{least} to {most}"
    return f"{name}() takes {wanted} positional argument{'' if wanted == '1' else 's'}, not {given}"


def public_property(prop: property) -> property:
    """Make the property an entry from users' code."""
    get: Any = prop.fget

    def entry(self: Any) -> Any:  # `public`, with fewer arguments to pass on
        try:
            return get(self)
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    return property(wraps(get)(entry), prop.fset and public(prop.fset), prop.fdel, prop.__doc__)


def hides(function: C) -> C:
    """Mark a function that hides its frames by its own clause."""
    function.hides = True  # type: ignore[attr-defined]
    return function


def signed(function: C) -> C:
    """Leave `*more` out of a function's signature: it catches surplus arguments, which Python would count with self.

    `public` could correct Python's message, but costs a call; this costs some 30 ns.
    """
    given = signature(function)
    parameters = [each for each in given.parameters.values() if each.kind is not each.VAR_POSITIONAL]
    function.__signature__ = given.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def make_public(kind: type, names: frozenset[str] = frozenset()) -> None:
    """Make entries of a class's public functions and properties, and of the given names."""
    for name, value in list(vars(kind).items()):
        if name.startswith("_") and name not in names:
            continue
        if type(value) is FunctionType and not hasattr(value, "hides"):
            setattr(kind, name, public(value))
        elif type(value) is property:
            setattr(kind, name, public_property(value))
