"""One session's queue on one stream: the number of its dispatched instructions, and its backlog.

`scheduler.fair_queue` decides when an instruction may leave the backlog.
"""

from __future__ import annotations

from collections import deque

from ...streams.stream import Stream
from .device_state import DeviceState
from .instruction import Instruction


class SessionQueue:
    """One session's instructions on one stream.

    `queued` counts the dispatched instructions that the stream has not reported yet, and `work` is their estimated work
    in element operations. `waiting` holds ready instructions that wait, in order, for room on the stream
    (`scheduler.fair_queue`).
    """

    __slots__ = ("device", "queued", "stream", "waiting", "work")

    def __init__(self, stream: Stream, device: DeviceState) -> None:
        self.stream = stream
        self.device = device
        self.queued = 0
        self.work = 0
        self.waiting: deque[Instruction] = deque()
