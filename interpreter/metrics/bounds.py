"""Bounds on label values: what is beyond them is folded into one of the name "other".

Which ops have a label of their own must not change, since counters never fall: the first ones that the daemon has
planned. What sessions have are gauges; those with most bytes are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple

OTHER: Final = "other"
LONGEST: Final = 64  # characters of a label's value that clients choose


class Bounds(NamedTuple):
    """How many ops, and sessions, have labels of their own."""

    ops: int = 100
    sessions: int = 50


def labels_of_ops(ops: Sequence[str], most: int) -> dict[str, str]:
    """The label of each op."""
    return {op: op if place < most else OTHER for place, op in enumerate(ops)}


def labels_of_sessions(
    rows: Sequence[Mapping[str, Any]], most: int
) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """The labels of each row: the session's number and its client's name."""
    named = {row["id"] for row in nlargest(most, rows, key=lambda row: (row["bytes"], -row["id"]))}
    for row in rows:
        label = (str(row["id"]), printable(row["client"])) if row["id"] in named else (OTHER, OTHER)
        yield label, row


def printable(text: str) -> str:
    """A client's text as the value of a label."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST])
