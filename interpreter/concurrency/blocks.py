"""Functions that end blocks, by their code: an exception at their first step would leave the block open.

The interpreter looks for signals and thrown exceptions when a function starts, so before the region that is the first
thing in it. What would be raised then is noted instead, as in the region (`interrupts`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

ENDS: Final[set[CodeType]] = set()
Function = TypeVar("Function", bound=Callable[..., Any])


def ends_block(function: Function) -> Function:
    """Mark a function that ends a block, in a region that is the first thing in it."""
    ENDS.add(function.__code__)
    return function


def is_ending(frame: FrameType | None) -> bool:
    """Does such a function run in that frame, or below it?"""
    while frame is not None:
        if frame.f_code in ENDS:
            return True
        frame = frame.f_back
    return False
