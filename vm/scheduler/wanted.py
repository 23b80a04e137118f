"""Requests for room beyond the plan, which the scheduler notes for its driver."""

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
