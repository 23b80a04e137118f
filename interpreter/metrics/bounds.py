"""Limits of the number of label values: values beyond a limit are merged into one named "other".

The ops with labels of their own must not change, since counters never fall: they are the first ones that the daemon has
planned. Figures of sessions are gauges, so the sessions with most bytes have labels of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple

OTHER_LABEL: Final = "other"
MAX_LABEL_LENGTH: Final = 64  # characters of a label value that clients choose


class Bounds(NamedTuple):
    """The number of ops, and of sessions, with labels of their own."""

    ops: int = 100
    sessions: int = 50


def labels_of_ops(ops: Sequence[str], most: int) -> dict[str, str]:
    """The label of each op."""
    return {op: op if position < most else OTHER_LABEL for position, op in enumerate(ops)}


def labels_of_sessions(
    rows: Sequence[Mapping[str, Any]], most: int
) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """The labels of each row: the session's number and its client's name."""
    named = {row["id"] for row in nlargest(most, rows, key=lambda row: (row["bytes"], -row["id"]))}
    for row in rows:
        label = (str(row["id"]), printable(row["client"])) if row["id"] in named else (OTHER_LABEL, OTHER_LABEL)
        yield label, row


def printable(text: str) -> str:
    """A client's text as the value of a label."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:MAX_LABEL_LENGTH])
