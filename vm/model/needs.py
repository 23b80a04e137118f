"""The memory that instructions will reserve on a device.

Remote instructions receive from another node, or wait for an instruction that does. The needs of each session's remote
instructions are separate from those of all other instructions, which must not wait for them: the other node decides how
long a remote instruction waits, and may itself wait for an instruction here. Remote instructions keep program order
among themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .instruction import Instruction


class Needs:
    """The bytes that some instructions will reserve on one device.

    `needs`: the instructions in program order, with the bytes that each will reserve, -1 while a meta is pending;
    `nbytes`: the sum of the known needs; `unknown`: the number of unknown needs. Only `put` and `take` change these.
    """

    __slots__ = ("nbytes", "needs", "unknown")

    def __init__(self) -> None:
        self.needs: dict[Instruction, int] = {}
        self.nbytes = 0
        self.unknown = 0

    def put(self, instruction: Instruction, nbytes: int) -> None:
        """Add an instruction at its position in program order, or change its need."""
        needs = self.needs
        late = False
        if instruction not in needs:
            late = bool(needs) and next(reversed(needs)).admitted > instruction.admitted
        elif (before := needs[instruction]) < 0:
            self.unknown -= 1
        else:
            self.nbytes -= before
        needs[instruction] = nbytes
        if nbytes < 0:
            self.unknown += 1
        else:
            self.nbytes += nbytes
        if late:
            order = sorted(needs.items(), key=lambda entry: entry[0].admitted)
            needs.clear()  # the device refers to this object
            needs.update(order)

    def take(self, instruction: Instruction) -> None:
        """Remove an instruction, if it is there."""
        nbytes = self.needs.pop(instruction, 0)
        if nbytes < 0:
            self.unknown -= 1
        else:
            self.nbytes -= nbytes

    def give_up_order(self) -> None:
        """Remove the instructions that are not ready, so that no later one waits for them."""
        for instruction in [one for one in self.needs if not one.ready]:
            self.take(instruction)

    def lets(self, instruction: Instruction, nbytes: int, free: int, limit: int) -> bool:
        """Whether the instruction may reserve `nbytes` of the `free` bytes now.

        The first instruction in program order may; any other may if all needs fit. While a need is unknown, half of the
        device stays free.
        """
        if next(iter(self.needs), instruction) is instruction:
            return True
        if self.unknown:
            return free - nbytes >= max(self.nbytes, limit // 2)
        return free >= self.nbytes
