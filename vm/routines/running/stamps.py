"""Times of the calls inside of a run: when each started and ended.

Only for runs that somebody wants to see in detail. The calls are the same, made by the same loop: it goes through
`timed` instead of a list's iterator, which costs two clock reads a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self


class Stamps:
    """The times of one run: two for each call that was made, in order."""

    __slots__ = ("clock", "times")

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.times: list[int] = []


class timed:  # noqa: N801 - it is used as `iter` is
    """The calls of a slice, one after the other; knows how many are left, as a list's iterator does."""

    __slots__ = ("_calls", "_place", "_stamps")

    def __init__(self, calls: Sequence[Any], stamps: Stamps) -> None:
        self._calls = calls
        self._stamps = stamps
        self._place = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        place, stamps, calls = self._place, self._stamps, self._calls
        if place:
            stamps.times.append(stamps.clock())
        if place == len(calls):
            raise StopIteration
        self._place = place + 1
        stamps.times.append(stamps.clock())
        return calls[place]

    def __length_hint__(self) -> int:
        return len(self._calls) - self._place
