"""Why a routine is captured again: what differs between two captures, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...interpreter.types.meta import Meta

MANY: Final = 8  # captures after which a routine warns
SHOWN: Final = 3  # differences


class Look(NamedTuple):
    """What a capture looked like: by the name of each argument, what is part of the key; and its fixed numbers."""

    arguments: Mapping[str, Any]
    fixed: Mapping[str, tuple[Any, str | None]]  # value, and the line that has asked for it
    surroundings: tuple[int, int]  # session and handler


def differences(before: Look, now: Look, outside: str | None) -> str:
    """What differs, in words. `outside`: the first global or cell that has changed, if one has."""
    found = []
    for name in dict.fromkeys((*before.arguments, *now.arguments)):
        old, new = before.arguments.get(name), now.arguments.get(name)
        if old != new:
            found.append(f"{name} was {described(old)}, and is {described(new)}")
    for name, (value, line) in now.fixed.items():
        old, _ = before.fixed.get(name, (None, None))
        if old is not None and repr(old) != repr(value):
            found.append(f"{name} was {old}, and is {value}; its value was asked for{f' [{line}]' if line else ''}")
    if outside is not None:
        found.append(f"{outside}, which is no argument, is something else")
    if before.surroundings != now.surroundings:
        found.append("the session, or its handler, is another one")
    return "; ".join(found[:SHOWN]) or "an argument is another object"


def described(part: Any) -> str:
    """What is part of the key, in words."""
    if part is None:
        return "not there"
    if isinstance(part, tuple) and part and isinstance(part[0], Meta):
        return f"{part[0]!r} on {part[1]}"
    if isinstance(part, type):
        return f"a {part.__name__}"
    return str(part)


def look_of(value: Any) -> Any:
    """What is part of the key of a member that is no tensor and no number."""
    if value is None or isinstance(value, str | bool):
        return repr(value)
    return f"the {type(value).__name__} at {id(value):#x}"
