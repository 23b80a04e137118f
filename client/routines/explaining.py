"""Explains a function: captures it, and notes which bytes its calls on global tensors and its collectives move.

`ROW_NOTES` and `COLLECTIVE_NOTES` are the notes of the calling thread. They are restored at the end, also after an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..collectives.collectives import COLLECTIVE_NOTES
from ..core.core import Core
from ..global_tensors.explaining import ROW_NOTES, BytesExplanation, note_collective
from .routine import Routine


def explain(
    core: Core, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> BytesExplanation:
    """Explain which bytes a call of the function would move. Captures the function, and runs nothing."""
    before, ROW_NOTES.rows = (ROW_NOTES.rows, COLLECTIVE_NOTES.note), []
    COLLECTIVE_NOTES.note = note_collective
    try:
        Routine(core, function).program(*args, **kwargs)
        return BytesExplanation(ROW_NOTES.rows)
    finally:
        ROW_NOTES.rows, COLLECTIVE_NOTES.note = before
