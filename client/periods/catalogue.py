"""The periods that a session knows, found by their first calls. The least recently used one is forgotten first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .period import Period, PeriodForm

MAX_PERIODS: Final = 32
MAX_STEPS: Final = 1 << 13  # steps of all programs together


class Catalogue:
    """Periods by the token of their first call, longest first. `room`: the most new tensors that a period makes."""

    def __init__(self) -> None:
        self.starts: dict[int, list[Period]] = {}
        self.room = 0
        self._order: dict[Period, None] = {}  # the least recently used first

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Period]:
        return iter(list(self._order))

    def __contains__(self, period: Period) -> bool:
        return period in self._order

    def has(self, form: PeriodForm) -> bool:
        """Return whether the form is known, or its calls are those of a good period that begins elsewhere in the
        loop."""
        tokens = sorted(form.tokens)
        return any(
            period.form == form or (not period.missed and tokens == sorted(period.tokens))
            for period in self._order
            if len(period) == len(tokens)
        )

    def add(self, period: Period) -> None:
        self._order[period] = None
        same = self.starts.setdefault(period.tokens[0], [])
        same.append(period)
        same.sort(key=len, reverse=True)
        self.room = max(self.room, len(period.positions.made))

    def remove(self, period: Period) -> None:
        del self._order[period]
        same = self.starts[period.tokens[0]]
        same.remove(period)
        if not same:
            del self.starts[period.tokens[0]]
        self.room = max((len(other.positions.made) for other in self._order), default=0)

    def use(self, period: Period) -> None:
        """Mark a period as most recently used."""
        self._order[period] = self._order.pop(period)

    def surplus(self) -> Period | None:
        """The next period to forget if there are too many, or too long ones; else None."""
        steps = sum(len(period) * len(period.programs) for period in self._order)
        if len(self._order) > MAX_PERIODS or (steps > MAX_STEPS and len(self._order) > 1):
            return next(iter(self._order))
        return None

    def next_start(self, tokens: list[int], at: int) -> int:
        """The next position at which a period may begin; the end if there is none."""
        starts = self.starts
        if starts.keys().isdisjoint(tokens):
            return len(tokens)
        return next((position for position in range(at, len(tokens)) if tokens[position] in starts), len(tokens))

    def begun(self, tokens: list[int]) -> Period | None:
        """A period that begins with all of these tokens, or is a beginning of them."""
        for period in self.starts.get(tokens[0], ()):
            if period.tokens[: len(tokens)] == tokens[: len(period)]:
                return period
        return None

    def whole(self, tokens: list[int]) -> Period | None:
        """The longest period with which these tokens begin."""
        for period in self.starts.get(tokens[0], ()):
            if period.tokens == tokens[: len(period)]:
                return period
        return None
