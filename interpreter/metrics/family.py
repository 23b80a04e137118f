"""A metric: its name, kind, help and labels, and how its samples are read from a daemon's figures.

The names follow Prometheus' conventions: a base unit at the end, `_total` behind that for what only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from .bounds import Bounds

BOUNDS_NS: Final = tuple(1 << bits for bits in range(10, 37, 2))  # of a histogram's buckets: 1 us to 69 s


class MetricKind(StrEnum):
    """How a metric changes."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of a daemon: its own figures, a row for each session; nothing while it does not answer.

    `took`: seconds until it had answered. `kernels`: how many compiled kernels lie in its directory, and their bytes.
    `held`: bytes by session and device, as of the last look at all tensors.
    """

    machine: Mapping[str, Any] = field(default_factory=dict)
    sessions: Sequence[Mapping[str, Any]] = ()
    took: float = 0.0
    kernels: tuple[int, int] | None = None
    held: Sequence[tuple[int, str, int]] = ()
    bounds: Bounds = field(default_factory=Bounds)


class Histogram(NamedTuple):
    """How many times there were in each bucket or one before it, the last one without a bound; their sum in seconds."""

    buckets: tuple[int, ...]
    seconds: float

    @classmethod
    def of(cls, counts: Sequence[int], total_ns: int) -> Histogram:
        """From counts by bit length: those of `n` bits are below 2 to the power of `n`."""
        below = [sum(counts[: bound.bit_length()]) for bound in BOUNDS_NS]
        return cls((*below, sum(counts)), total_ns / 1e9)

    def __add__(self, other: object) -> Histogram:
        """Both together."""
        if not isinstance(other, Histogram):
            return NotImplemented
        together = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        return Histogram(tuple(together), self.seconds + other.seconds)


Value: TypeAlias = float | Histogram
Sample: TypeAlias = tuple[tuple[str, ...], Any]  # the values of the labels, and a number or a histogram
Read: TypeAlias = Callable[[Figures], Iterable[Sample]]


class Family(NamedTuple):
    """A metric. `read` may give several samples with the same labels, which belong together. `always`: there is one,
    too, while the daemon does not answer."""

    name: str
    kind: MetricKind
    help: str
    read: Read
    labels: tuple[str, ...] = ()
    always: bool = False

    def samples(self, figures: Figures) -> dict[tuple[str, ...], Any]:
        """The values by those of the labels."""
        found: dict[tuple[str, ...], Any] = {}
        if not (figures.machine or self.always):
            return found
        for labels, value in self.read(figures):
            found[labels] = found[labels] + value if labels in found else value
        return found


def bucket_bounds() -> tuple[str, ...]:
    """The bounds of a histogram's buckets, in seconds, as texts."""
    return (*(repr(bound / 1e9) for bound in BOUNDS_NS), "+Inf")
