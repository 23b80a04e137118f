"""Functions that end a block, such as `with session.atomic()`. An exception before their region would leave it open.

The interpreter checks for signals and thrown exceptions when a function starts, which is before the region at its
beginning. An exception at that point is noted instead, as in the region (`interrupts`). After the region the block has
ended, and exceptions are raised at once.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

REGION_STARTS: Final[dict[CodeType, int]] = {}  # code -> offset of the first instruction inside its region
Function = TypeVar("Function", bound=Callable[..., Any])
BEFORE_ANY_OFFSET: Final = -1  # less than any offset
WITH_OPCODES: Final = frozenset(("BEFORE_WITH", "LOAD_SPECIAL"))  # the beginning of a `with`, by version of Python


def ends_block(function: Function) -> Function:
    """Mark a function that ends a block, in a region at its very beginning."""
    REGION_STARTS[function.__code__] = region_start(function.__code__)
    return function


def region_start(code: CodeType) -> int:
    """The offset of the first instruction inside the first `with` of a function."""
    instructions = iter(dis.get_instructions(code))
    next(each for each in instructions if each.opname in WITH_OPCODES)
    return next(each.offset for each in instructions if each.opname == "POP_TOP")


def is_ending(frame: FrameType | None) -> bool:
    """Return whether a function that ends a block runs in that frame, or in a caller of it, and is not yet in its
    region."""
    while frame is not None:
        if frame.f_lasti < REGION_STARTS.get(frame.f_code, BEFORE_ANY_OFFSET):
            return True
        frame = frame.f_back
    return False
