"""The tally: how many instructions have ended, and how long they took, of all sessions together. Counts that only grow.

It is kept by ops, and by opcodes for all that is no op; texts that clients choose are no part of it.

What runs where it is admitted is counted and not timed: it is small and waits for nothing, and a time costs three times
what the count does. The times of all others are counted by the bit length of their nanoseconds.
"""

from __future__ import annotations

from ...interpreter.opcodes import Opcode

BITS = 64
MOST = 1024  # ops and opcodes that are told apart
OTHER = "other"
DONE = "DONE"


class Times:
    """How many times there were of each bit length, and their sum, in ns."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * BITS
        self.total = 0


class Counted:
    """How many instructions of one op, or opcode, are `done`; the `times` of those that had to be scheduled."""

    __slots__ = ("done", "times")

    def __init__(self) -> None:
        self.done = 0
        self.times = Times()


class Tally:
    """`counts`: by op, or text of an opcode. `ended`: (op, status) -> how many ended otherwise than done. `delays`: how
    long instructions waited that had to be scheduled, from admission until they started."""

    __slots__ = ("counts", "delays", "ended")

    def __init__(self) -> None:
        self.counts: dict[str, Counted] = {opcode._value_: Counted() for opcode in Opcode}
        self.ended: dict[tuple[str, str], int] = {}
        self.delays = Times()

    def of(self, op: str) -> Counted:
        """What is counted of an op: programs may define ops without end."""
        if op not in self.counts and len(self.counts) >= MOST:
            op = OTHER
        return self.counts.setdefault(op, Counted())

    def add(self, op: str, status: str, received: int, started: int, finished: int) -> None:
        """Count an instruction that was scheduled, or failed; the times are in ns, 0 for what did not happen."""
        if started:
            times = self.delays
            times.total += started - received
            times.counts[(started - received).bit_length()] += 1
        if status == DONE:
            counted = self.counts.get(op) or self.of(op)
            counted.done += 1
            times = counted.times
            times.total += finished - started
            times.counts[(finished - started).bit_length()] += 1
        else:
            self._count_end((op if op in self.counts else OTHER, status))

    def _count_end(self, key: tuple[str, str]) -> None:
        self.ended[key] = self.ended.get(key, 0) + 1
