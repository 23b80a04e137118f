"""One session's part of one stream's queue."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...streams.stream import Stream

if TYPE_CHECKING:
    from .device_state import DeviceState
    from .instruction import Instruction

UNKNOWN_WORK = 4_000_000  # element operations that a transfer counts for: nobody knows how long it takes


class SessionQueue:
    """What one session has on one stream.

    `queued` counts what the stream has and has not reported, `work` estimates it in element operations; `waiting` are
    ready instructions that follow, in their order, once the session may queue more (`scheduler.fair_queue`).
    """

    __slots__ = ("device", "queued", "stream", "waiting", "work")

    def __init__(self, stream: Stream, device: DeviceState) -> None:
        self.stream = stream
        self.device = device
        self.queued = 0
        self.work = 0
        self.waiting: deque[Instruction] = deque()

    def enter(self, instruction: Instruction) -> None:
        """The stream gets the instruction."""
        instruction.queue = self
        self.queued += 1
        self.work += work_of(instruction)

    def leave(self, instruction: Instruction) -> None:
        """The stream has reported it."""
        self.queued -= 1
        self.work -= work_of(instruction)


def work_of(instruction: Instruction) -> int:
    """What it counts for, in element operations."""
    return UNKNOWN_WORK if instruction.plan is None else instruction.plan.work
