"""Names of sessions: short, printable texts for people, in the log and in `tensord sessions`."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 64  # characters
LOOK: Final = "tensord"  # the command line's own sessions


def clean(name: str) -> str:
    """The name as it is shown, whatever a peer or a file system has made of it: cut, and without control characters."""
    kept = name[:LONGEST]
    if kept.isprintable():
        return kept
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in kept)


def is_name(name: object) -> bool:
    """Is it a name that needs no cleaning, and not empty?"""
    return type(name) is str and bool(name.strip()) and clean(name) == name
