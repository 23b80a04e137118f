"""How much of the time of copies and kernels overlapped, from the records of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensord.vm.tracing.record import Record

Span = tuple[int, int]  # begin and end, in nanoseconds


def busy(records: Iterable[Record], stream: str) -> list[Span]:
    """When the streams of that kind ("h2d", "compute") worked: spans in order that do not touch."""
    spans = sorted((r.started, r.finished) for r in records if r.started and f"/{stream}" in r.stream)
    merged: list[Span] = []
    for begin, end in spans:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def length(spans: Iterable[Span]) -> int:
    """Nanoseconds of all of them."""
    return sum(end - begin for begin, end in spans)


def common(first: Sequence[Span], second: Sequence[Span]) -> int:
    """Nanoseconds in which both worked."""
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in first for b in second)


def overlap(records: Sequence[Record], copies: str, kernels: str) -> float:
    """The part of the shorter of the two, copies or kernels, that ran under the other, 0 to 1."""
    first, second = busy(records, copies), busy(records, kernels)
    shorter = min(length(first), length(second))
    return common(first, second) / shorter if shorter else 0.0
