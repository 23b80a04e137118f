"""What instructions of one session will reserve on a device that wait for another node, or for what does.

They are kept apart from what others will reserve (`DeviceState.unreserved`): how long they wait is decided on another
node, where something may wait for those others. Among themselves they keep the order of their program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .instruction import Instruction


class Expected:
    """`needs`: the instructions in program order, with the bytes that each will reserve, -1 while a pending meta hides
    it; `nbytes` is the sum of the known needs, `unknown` counts the others."""

    __slots__ = ("nbytes", "needs", "unknown")

    def __init__(self) -> None:
        self.needs: dict[Instruction, int] = {}
        self.nbytes = 0
        self.unknown = 0

    def put(self, instruction: Instruction, nbytes: int) -> None:
        """Enter an instruction, or what it needs now."""
        self.take(instruction)
        late = bool(self.needs) and next(reversed(self.needs)).admitted > instruction.admitted
        self.needs[instruction] = nbytes
        self._count(nbytes, 1)
        if late:
            self.needs = dict(sorted(self.needs.items(), key=lambda entry: entry[0].admitted))

    def take(self, instruction: Instruction) -> None:
        """Take an instruction out, if it is there."""
        nbytes = self.needs.pop(instruction, None)
        if nbytes is not None:
            self._count(nbytes, -1)

    def give_up_order(self) -> None:
        """Nobody waits any longer for those that are not ready."""
        for instruction in [one for one in self.needs if not one.ready]:
            self.take(instruction)

    def lets(self, instruction: Instruction, nbytes: int, free: int, limit: int) -> bool:
        """Is there enough for all, or is this the first? Where a need is not known, half of the device is left."""
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
