"""The memory that a session's remote instructions will reserve on a device.

Remote instructions receive from another node, or wait for an instruction that does. Their needs are separate from those
of all other instructions (`DeviceState.unreserved`), which must not wait for them: the other node decides how long a
remote instruction waits, and may itself wait for an instruction here. Remote instructions keep program order among
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .instruction import Instruction


class RemoteNeeds:
    """The needs of one session's remote instructions on one device.

    `needs`: the instructions in program order, with the bytes that each will reserve, -1 while a meta is pending;
    `nbytes`: the sum of the known needs; `unknown`: the number of unknown needs.
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
        """Whether the instruction may reserve `nbytes` of the `free` bytes now.

        The first instruction in program order may; any other may if all needs fit. While a need is unknown, half of the
        device stays free.
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
