"""A machine's answer about the holders of its memory: rows, followed by an object with the total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ROWS = 50  # of an answer, unless another number is asked for


def whole(answer: Sequence[Any]) -> dict[str, Any]:
    """The answer as one object, with its `rows`."""
    *rows, found = answer
    return {**found, "rows": rows}
