"""The tally: counts and times of ended instructions, of all sessions together, for metrics. The counts only grow.

Instructions are counted by op, or by opcode if they have no op; the keys contain no text that a client chooses.

Ops that run at admission are counted but not timed: they are small and wait for nothing, and timing costs three times
as much as counting. The times of all others are counted in a histogram, by the bit length of their nanoseconds.
"""

from __future__ import annotations

from ...interpreter.opcodes import Opcode

BITS = 64
MAX_OPS = 1024  # ops and opcodes that are counted separately
OTHER = "other"
DONE = "DONE"


class Times:
    """A histogram of times by the bit length of their nanoseconds, and their sum in ns."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * BITS
        self.total = 0


class Counted:
    """The number of instructions of one op, or opcode, that are `done`, and the `times` of the scheduled ones."""

    __slots__ = ("done", "times")

    def __init__(self) -> None:
        self.done = 0
        self.times = Times()


class Tally:
    """Counts of ended instructions.

    `counts`: by op or opcode. `ended`: (op, status) -> number of instructions with another end than DONE. `delays`: the
    times from admission to start of scheduled instructions.
    """

    __slots__ = ("counts", "delays", "ended")

    def __init__(self) -> None:
        self.counts: dict[str, Counted] = {opcode._value_: Counted() for opcode in Opcode}
        self.ended: dict[tuple[str, str], int] = {}
        self.delays = Times()

    @property
    def total(self) -> int:
        """The number of ended instructions."""
        return sum([one.done for one in list(self.counts.values())]) + sum(list(self.ended.values()))

    def of(self, op: str) -> Counted:
        """The counts of an op; beyond `MAX_OPS` ops, which users may define, the common counts of all others."""
        if op not in self.counts and len(self.counts) >= MAX_OPS:
            op = OTHER
        return self.counts.setdefault(op, Counted())

    def add(self, op: str, status: str, received: int, started: int, finished: int) -> None:
        """Count an instruction that was scheduled, or failed. Times are in ns, 0 for events that did not happen."""
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
