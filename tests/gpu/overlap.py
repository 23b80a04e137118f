"""The overlap of copies and kernels, from their times alone and together.

The times of a trace do not serve: launches at admission have no time of the device there, since no thread waits for
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Times:
    """Seconds of the copies alone, of the kernels alone, and of both; the best of several runs counts."""

    copies: list[float] = field(default_factory=list)
    kernels: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)

    @property
    def overlap(self) -> float:
        """The part of the shorter one, copies or kernels, that ran under the other, 0 to 1."""
        copies, kernels, both = (min(times) for times in (self.copies, self.kernels, self.both))
        return min(1.0, max(0.0, (copies + kernels - both) / min(copies, kernels)))

    def __str__(self) -> str:
        rows = (("copies", self.copies), ("kernels", self.kernels), ("both", self.both))
        return "; ".join(f"{name} {', '.join(f'{1e3 * each:.1f}' for each in times)} ms" for name, times in rows)


def seconds_of(clock: Callable[[], float], work: Callable[[], object], end: Callable[[], object]) -> float:
    """Seconds from the beginning of the work until `end` has returned. The work's result lives until then."""
    begun = clock()
    made = work()
    end()
    taken = clock() - begun
    del made
    return taken
