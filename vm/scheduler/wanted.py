"""Requests for memory beyond the plan, which the scheduler leaves to the driver of a step.

While a request is open, the scheduler dispatches nothing more in that step (`scheduler`).
"""

from __future__ import annotations

from typing import NamedTuple

from ..model.instruction import Instruction


class Wanted(NamedTuple):
    """A request for `nbytes` of an instruction's device, or, with `share`, of its session's share there.

    `placement.late_room` makes the room.
    """

    instruction: Instruction
    nbytes: int
    share: bool = False
