"""Fair queues: how many instructions one session may queue on a stream that other sessions also use.

A stream runs its queue in order, so hundreds of queued kernels of one session delay all other sessions. Once a second
session has had work on a device, each session may have `GUARANTEED_INSTRUCTIONS` instructions queued per stream, or
more while their kernels are small (`SHARED_WORK`). The rest wait in the stream's backlog, in one queue per session.
Each instruction that retires makes room for the next one of the same session, at the end of the stream's queue: this is
round-robin over sessions, at O(1) per instruction. A session that has a device to itself may fill the stream's queue
(`QUEUE_DEPTH`), but with at most `EXCLUSIVE_WORK` of work, since another session may come at any time: one run of a
routine takes some ten milliseconds.

Invariant, after all ready instructions were dispatched: a session with a backlog on a stream has an instruction queued
there, so a completion will come that makes room. A doomed instruction of the backlog is dropped, and one that finds no
memory goes to its device's queue; in both cases the next instruction takes the room.

Rejected: counting only sessions that have live work now. A session that sends one op at a time has no live work between
two ops, and would find the queue full again each time. Priorities within a stream: the queues of the streams' threads
would no longer be in order.
"""

from __future__ import annotations

from ...streams.stream import Stream
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.session import VmSession
from ..model.session_queue import SessionQueue

QUEUE_DEPTH = 512  # instructions queued on one stream by one session that has the device to itself
GUARANTEED_INSTRUCTIONS = 4  # instructions, of any size, queued on one stream by one of several sessions
UNKNOWN_WORK = 4_000_000  # element operations that a transfer counts for, since its duration is unknown
SHARED_WORK = UNKNOWN_WORK  # work, in element operations, up to which a session may queue more: some 600 us
EXCLUSIVE_WORK = 1_000_000_000  # the same for a session that has the device to itself: some 100 ms


class Backlog:
    """The number of instructions that wait for room on one stream."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __len__(self) -> int:
        return self.count


def queue_of(session: VmSession, stream: Stream, device: DeviceState) -> SessionQueue:
    """The session's queue on a stream; the first one makes the session a user of the device until the session ends."""
    queue = session.queues.get(stream)
    if queue is None:
        queue = session.queues[stream] = SessionQueue(stream, device)
        if not session.closed:
            device.users[session] = None
    return queue


def has_room(queue: SessionQueue) -> bool:
    """Whether the session may queue one more instruction on the stream."""
    if queue.queued < GUARANTEED_INSTRUCTIONS:
        return True
    return queue.queued < QUEUE_DEPTH and queue.work < (EXCLUSIVE_WORK if len(queue.device.users) < 2 else SHARED_WORK)


def enter(queue: SessionQueue, instruction: Instruction) -> None:
    """Count an instruction that is handed to the queue's stream."""
    instruction.queue = queue
    queue.stream.queued += 1
    queue.queued += 1
    queue.work += work_of(instruction)


def leave(queue: SessionQueue, instruction: Instruction) -> None:
    """Stop counting an instruction that the queue's stream has reported."""
    queue.stream.queued -= 1
    queue.queued -= 1
    queue.work -= work_of(instruction)


def work_of(instruction: Instruction) -> int:
    """The instruction's weight, in element operations."""
    return UNKNOWN_WORK if instruction.plan is None else instruction.plan.work


def waiting_in(queue: SessionQueue | None) -> int:
    """The number of instructions of a session that wait for room on a stream."""
    return 0 if queue is None else len(queue.waiting)
