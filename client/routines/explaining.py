"""Explains a function: captures it, and notes which bytes its calls on global tensors and its collectives move.

`NOTING` and `COLLECTIVES` are the notes of the calling thread. They are restored at the end, also after an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..collectives.collectives import NOTING as COLLECTIVES
from ..core.core import Core
from ..global_tensors.explaining import NOTING, BytesExplanation, note_collective
from .routine import Routine


def explained(
    core: Core, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> BytesExplanation:
    """Explain which bytes a call of the function would move. Captures the function, and runs nothing."""
    before, NOTING.rows = (NOTING.rows, COLLECTIVES.note), []
    COLLECTIVES.note = note_collective
    try:
        Routine(core, function).program(*args, **kwargs)
        return BytesExplanation(NOTING.rows)
    finally:
        NOTING.rows, COLLECTIVES.note = before
