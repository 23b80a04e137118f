"""A metric: its name, kind, help and labels, and how its samples are read from a daemon's figures.

The names follow Prometheus' conventions: they end with a base unit, followed by `_total` for counters.
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
    """The known figures of a daemon: its own, and a row for each session; empty while it does not answer.

    `took`: seconds until it had answered. `kernels`: the number of compiled kernels in its directory, and their bytes.
    `held`: bytes by session and device, as of the last scan of all tensors.
    """

    machine: Mapping[str, Any] = field(default_factory=dict)
    sessions: Sequence[Mapping[str, Any]] = ()
    took: float = 0.0
    kernels: tuple[int, int] | None = None
    held: Sequence[tuple[int, str, int]] = ()
    bounds: Bounds = field(default_factory=Bounds)


class Histogram(NamedTuple):
    """Cumulative counts of durations by bucket, the last one without a bound; and their sum in seconds."""

    buckets: tuple[int, ...]
    seconds: float

    @classmethod
    def of(cls, counts: Sequence[int], total_ns: int) -> Histogram:
        """From counts by bit length: a duration of `n` bits is below 2 to the power of `n`."""
        below = [sum(counts[: bound.bit_length()]) for bound in BOUNDS_NS]
        return cls((*below, sum(counts)), total_ns / 1e9)

    def __add__(self, other: object) -> Histogram:
        """The sum of both."""
        if not isinstance(other, Histogram):
            return NotImplemented
        together = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        return Histogram(tuple(together), self.seconds + other.seconds)


Value: TypeAlias = float | Histogram
Sample: TypeAlias = tuple[tuple[str, ...], Any]  # the values of the labels, and a number or a histogram
Read: TypeAlias = Callable[[Figures], Iterable[Sample]]


class Family(NamedTuple):
    """A metric. `read` may return several samples with the same labels, which are added. `always`: there is a sample
    even while the daemon does not answer."""

    name: str
    kind: MetricKind
    help: str
    read: Read
    labels: tuple[str, ...] = ()
    always: bool = False

    def samples(self, figures: Figures) -> dict[tuple[str, ...], Any]:
        """The values, by label values."""
        samples: dict[tuple[str, ...], Any] = {}
        if not (figures.machine or self.always):
            return samples
        for labels, value in self.read(figures):
            samples[labels] = samples[labels] + value if labels in samples else value
        return samples


def bucket_bounds() -> tuple[str, ...]:
    """The bounds of a histogram's buckets, in seconds, as texts."""
    return (*(repr(bound / 1e9) for bound in BOUNDS_NS), "+Inf")
