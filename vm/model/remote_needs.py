"""The memory that a session's instructions will reserve on a device once another node has answered.

These instructions receive from another node, or wait for an instruction that does. Their needs are kept apart from
those of all other instructions (`DeviceState.unreserved`): another node decides how long they wait, and an instruction
there may itself wait for one of the others here. Among themselves they keep the order of their program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .instruction import Instruction


class RemoteNeeds:
    """The needs of one session on one device.

    `needs`: the instructions in program order, with the bytes that each will reserve, -1 while a pending meta hides the
    number; `nbytes`: the sum of the known needs; `unknown`: how many are not known.
    """

    __slots__ = ("nbytes", "needs", "unknown")

    def __init__(self) -> None:
        self.needs: dict[Instruction, int] = {}
        self.nbytes = 0
        self.unknown = 0

    def put(self, instruction: Instruction, nbytes: int) -> None:
        """Add an instruction, or change its need."""
        self.take(instruction)
        late = bool(self.needs) and next(reversed(self.needs)).admitted > instruction.admitted
        self.needs[instruction] = nbytes
        self._count(nbytes, 1)
        if late:
            self.needs = dict(sorted(self.needs.items(), key=lambda entry: entry[0].admitted))

    def take(self, instruction: Instruction) -> None:
        """Remove an instruction, if it is there."""
        nbytes = self.needs.pop(instruction, None)
        if nbytes is not None:
            self._count(nbytes, -1)

    def give_up_order(self) -> None:
        """Remove the instructions that are not ready, so that no later one waits for them."""
        for instruction in [one for one in self.needs if not one.ready]:
            self.take(instruction)

    def lets(self, instruction: Instruction, nbytes: int, free: int, limit: int) -> bool:
        """May the instruction reserve `nbytes` of the `free` bytes now?

        Yes for the first in program order, and if all needs fit. Where a need is not known, half of the device stays
        free.
        """
        if next(iter(self.needs), instruction) is instruction:
            return True
        if self.unknown:
            return free - nbytes >= max(self.nbytes, limit // 2)
        return free >= self.nbytes

    def _count(self, nbytes: int, sign: int) -> None:
        if nbytes < 0:
            self.unknown += sign
        else:
            self.nbytes += sign * nbytes
