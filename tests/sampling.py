"""Some of many cases for a test: drawn with a fixed seed, and such that each value of each axis is in one of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

Case = TypeVar("Case")


def axes_of(case: Any) -> Sequence[Hashable]:
    """The values of a case: of a tuple its elements, of a `pytest.param` the values for the test."""
    return tuple(getattr(case, "values", case))


def sampled(
    cases: Iterable[Case], axes: Callable[[Case], Sequence[Hashable]] = axes_of, *, times: int = 1
) -> list[Case]:
    """Some of the cases, in their order. Each value of each axis is in `times` of them, or in all that have it."""
    every = list(cases)
    seen: Counter[tuple[int, Hashable]] = Counter()
    chosen: set[int] = set()
    for position in random.Random(0).sample(range(len(every)), len(every)):
        values = list(enumerate(axes(every[position])))
        if any(seen[value] < times for value in values):
            chosen.add(position)
            seen.update(values)
    return [every[position] for position in sorted(chosen)]
