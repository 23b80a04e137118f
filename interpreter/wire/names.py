"""Names of sessions and of published values: printable texts for people, in logs, tables and errors."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from ..errors import MetadataError, MetadataKeyError

Named = TypeVar("Named")
MAX_NAME_LENGTH: Final = 64  # characters
NAMES_SHOWN: Final = 20  # names in an error
OBSERVER_NAME: Final = "tensord"  # shown in place of a nil name, of a connection that only asks


def clean(name: str) -> str:
    """The name as it is shown, whatever a peer or a file system has made of it: cut, and without control characters."""
    short = name[:MAX_NAME_LENGTH]
    if short.isprintable():
        return short
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in short)


def is_name(name: object) -> bool:
    """Return whether it is a name that needs no cleaning, and not empty."""
    return type(name) is str and bool(name.strip()) and clean(name) == name


def is_printable(name: str) -> bool:
    """Return whether the name is visible in tables, logs and errors."""
    return name.isprintable() and bool(name.strip())


def check_names(given: Iterable[str]) -> None:
    """MetadataError unless these are valid names for publishing, since they appear in tables, logs and errors."""
    for name in given:
        if not is_printable(name):
            raise MetadataError(f"a name is printable text, and {name[:MAX_NAME_LENGTH]!r} is not")


def named(wanted: Iterable[str], names: Mapping[str, Named]) -> list[Named]:
    """The published values of the wanted names; MetadataKeyError, a MetadataError, if one is missing."""
    wanted = tuple(wanted)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise unpublished(missing, names)
    return [names[name] for name in wanted]


def unpublished(missing: Iterable[str], names: Collection[str]) -> MetadataKeyError:
    """The error for names under which nothing is published. It lists some of the existing `names`."""
    wanted = ", ".join(repr(name[:MAX_NAME_LENGTH]) for name in islice(missing, NAMES_SHOWN))
    return MetadataKeyError(f"nothing is published as {wanted} (published: {some_of(names)})")


def some_of(names: Collection[str]) -> str:
    """Some of the names, for an error, and the number of the others."""
    some = nsmallest(NAMES_SHOWN, names)
    more = f" and {len(names) - len(some)} more" if len(names) > len(some) else ""
    return ", ".join(some) + more or "none"


def program_name() -> str:
    """The name of this process, for lists of sessions: the script's or module's, never code or arguments.

    `-c` stands for code from the command line, "python" for an interpreter without a script.
    """
    module = getattr(sys.modules.get("__main__"), "__spec__", None)
    if module is not None:
        return clean(str(module.name).removesuffix(".__main__"))
    script = sys.argv[0] if sys.argv and isinstance(sys.argv[0], str) else ""
    return clean(Path(script).name or "python")
