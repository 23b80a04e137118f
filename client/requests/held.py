"""A machine's answer about the holders of its memory: rows, followed by an object with the total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

DEFAULT_ROWS = 50  # rows of an answer


def as_object(answer: Sequence[Any]) -> dict[str, Any]:
    """The answer as one object, with its `rows`."""
    *rows, found = answer
    return {**found, "rows": rows}
