"""Names of sessions: short, printable texts for people, in the log and in `tensord sessions`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

LONGEST: Final = 64  # characters
LOOK: Final = "tensord"  # what people see in place of a name that is nil: that of a look


def clean(name: str) -> str:
    """The name as it is shown, whatever a peer or a file system has made of it: cut, and without control characters."""
    kept = name[:LONGEST]
    if kept.isprintable():
        return kept
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in kept)


def is_name(name: object) -> bool:
    """Is it a name that needs no cleaning, and not empty?"""
    return type(name) is str and bool(name.strip()) and clean(name) == name


def program_name() -> str:
    """The name of this process, for lists of sessions: the script's or module's, never code or arguments.

    `-c` stands for code from the command line, "python" for an interpreter without a script.
    """
    module = getattr(sys.modules.get("__main__"), "__spec__", None)
    if module is not None:
        return clean(str(module.name).removesuffix(".__main__"))
    script = sys.argv[0] if sys.argv and isinstance(sys.argv[0], str) else ""
    return clean(Path(script).name or "python")
