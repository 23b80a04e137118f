"""One session's queue on one stream."""

from __future__ import annotations

from collections import deque

from ...streams.stream import Stream
from .device_state import DeviceState
from .instruction import Instruction

UNKNOWN_WORK = 4_000_000  # element operations that a transfer counts for, since its duration is unknown


class SessionQueue:
    """One session's instructions on one stream.

    `queued` counts the instructions that the stream has not reported yet, and `work` estimates them in element
    operations. `waiting` are ready instructions that wait, in order, for room on the stream (`scheduler.fair_queue`).
    """

    __slots__ = ("device", "queued", "stream", "waiting", "work")

    def __init__(self, stream: Stream, device: DeviceState) -> None:
        self.stream = stream
        self.device = device
        self.queued = 0
        self.work = 0
        self.waiting: deque[Instruction] = deque()

    def enter(self, instruction: Instruction) -> None:
        """Count an instruction that is handed to the stream."""
        instruction.queue = self
        self.queued += 1
        self.work += work_of(instruction)

    def leave(self, instruction: Instruction) -> None:
        """Stop counting an instruction that the stream has reported."""
        self.queued -= 1
        self.work -= work_of(instruction)


def work_of(instruction: Instruction) -> int:
    """The instruction's weight, in element operations."""
    return UNKNOWN_WORK if instruction.plan is None else instruction.plan.work
