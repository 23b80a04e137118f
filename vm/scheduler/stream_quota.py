"""Fair shares of a stream: how much of it one session may have in front of another.

A stream runs what it is given in order, so whoever has hundreds of kernels queued there keeps everybody else waiting
for all of them. So as soon as a second session has ever had work on a device, each may have `FEW` instructions queued
per stream, or more of them as long as their kernels are small (`PORTION`); the rest wait in the stream's backlog, each
session's in order. Whatever retires makes place for the next of the same session, at the end of the queue: that is
round-robin over sessions, at O(1) per instruction. A session that has a device to itself may fill the queue (`DEPTH`).

What is always true once everything ready was dispatched: a session with a backlog on a stream has something queued
there. So a completion will come that makes place, whatever becomes of those in the backlog: an instruction that was
doomed meanwhile is dropped, one that finds no memory goes to its device's queue, and the next one takes the place.

Rejected: counting only sessions that have live work now. Who sends one op at a time has none between them, and would
find the queue full again each time. Priorities within a stream: the threads' queues would no longer be in order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...streams.stream import Stream
    from ..model.device_state import DeviceState
    from ..model.instruction import Instruction
    from ..model.session import VmSession

DEPTH = 512  # instructions queued on one stream by one session that has the device to itself
FEW = 4  # ... by one of several, whatever their size
PORTION = 4_000_000  # work, in element operations, up to which it may queue more: some 600 us


class Share:
    """What one session has on one stream: what is queued there, and what waits for its place."""

    __slots__ = ("device", "queued", "stream", "waiting", "work")

    def __init__(self, stream: Stream, device: DeviceState) -> None:
        self.stream = stream
        self.device = device
        self.queued = 0
        self.work = 0
        self.waiting: deque[Instruction] = deque()

    @property
    def has_place(self) -> bool:
        """May it queue one more?"""
        if self.queued < FEW:
            return True
        return self.queued < DEPTH and (len(self.device.users) < 2 or self.work < PORTION)

    def enter(self, instruction: Instruction) -> None:
        """The instruction is queued."""
        instruction.share = self
        self.queued += 1
        self.work += work_of(instruction)

    def leave(self, instruction: Instruction) -> None:
        """The stream has reported it."""
        instruction.share = None
        self.queued -= 1
        self.work -= work_of(instruction)


class Backlog:
    """How many instructions wait for their place on one stream."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __len__(self) -> int:
        return self.count


def share_of(session: VmSession, stream: Stream, device: DeviceState) -> Share:
    """The session's share of a stream of that device; with its first one it is a user of the device until it ends."""
    share = session.shares.get(stream)
    if share is None:
        share = session.shares[stream] = Share(stream, device)
        if not session.closed:
            device.users[session] = None
    return share


def waiting_in(share: Share | None) -> int:
    """How many instructions of a share wait for their place."""
    return 0 if share is None else len(share.waiting)


def work_of(instruction: Instruction) -> int:
    """What it counts for: nobody knows how long a transfer takes."""
    return PORTION if instruction.plan is None else instruction.plan.work
