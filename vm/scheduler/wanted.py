"""Room that an instruction lacks beyond what was planned for it: the scheduler notes it, its driver has it made."""

from __future__ import annotations

from typing import NamedTuple

from ..model.instruction import Instruction


class Wanted(NamedTuple):
    """So many bytes of its device's memory; with `share`, of its session's share there. `placement.late_room` makes
    them."""

    instruction: Instruction
    nbytes: int
    share: bool = False
