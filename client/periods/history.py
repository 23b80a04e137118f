"""The history of a session's stream of calls, in which stretches that repeat are found.

Each call is compared with the one a *distance* before it. While they are equal, the stream repeats with that distance;
where they differ, the distance is that to the last call of the same number. So a loop is found when its second round
is over: as soon as one of its calls is the only one of its number. It costs a comparison and an entry in a dictionary
per call. The idea is that of Legion's Apophenia (Yadav et al., Automatic Tracing in Task-Based Runtime Systems, 2025);
its suffix arrays would find rounds with irregular parts between them, too, and cost a thread.

What is no call is a break (`stream.BREAK`): a loop that asks for a value in each round repeats with it. Pieces between
breaks are what can be sent as a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ...interpreter.wire.messages import SIGNATURE
from .stream import BREAK

LONGEST: Final = 1024  # calls of a period
SHORTEST: Final = 8  # calls that are worth a run
SHORT: Final = 16  # calls of a round that is taken several times
SEVERAL: Final = 64  # calls of such rounds together
KEPT: Final = 4 * LONGEST  # calls that are remembered, at the most; half as many at the least


class Rounds(NamedTuple):
    """Two rounds of a loop: their distance, and their calls, cut at breaks."""

    distance: int
    stretches: list[Sequence[Any]]


class History:
    """The newest calls, and with which distance they repeat.

    `_matched`: how many calls in a row were equal to those a distance before. `_due`: where two rounds are over.
    `vain`: distances at which it does not look again before the older half is forgotten.
    """

    __slots__ = ("_calls", "_distance", "_due", "_last", "_matched", "_tokens", "vain")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._tokens: list[int] = []
        self._calls: list[Any] = []
        self._last: dict[int, int] = {}  # token -> its newest position
        self._distance = self._matched = self._due = 0
        self.vain: set[int] = set()

    def add(self, calls: Sequence[Any], tokens: Sequence[int]) -> list[Rounds]:
        """Add calls; returns what repeats."""
        if len(self._tokens) >= KEPT:
            self._drop()
        known, last, distance, matched = self._tokens, self._last, self._distance, self._matched
        found: list[Rounds] = []
        here = len(known)
        known.extend(tokens)
        self._calls.extend(calls)
        for token in tokens:
            if distance and known[here - distance] == token:
                matched += 1
                if matched >= distance and here >= self._due and distance not in self.vain:
                    found.append(Rounds(distance, list(self._repeated(distance, matched, here + 1))))
            else:
                distance = here - last.get(token, here)
                matched = 1 if 0 < distance <= LONGEST else 0
                distance *= matched
                self._due = 0
            last[token] = here
            here += 1
        self._distance, self._matched = distance, matched
        return [rounds for rounds in found if rounds.stretches]

    def with_single_breaks(self, messages: Sequence[Any], tokens: Sequence[int]) -> tuple[list[Any], list[int]]:
        """Calls and tokens without signatures, and with one break where there are several in a row."""
        calls: list[Any] = []
        kept: list[int] = []
        newest = self._tokens[-1] if self._tokens else BREAK
        for message, token in zip(messages, tokens, strict=True):
            if token != BREAK or (newest != BREAK and message[0] != SIGNATURE):
                calls.append(message)
                kept.append(token)
                newest = token
        return calls, kept

    def interrupt(self) -> None:
        """Note that something else was sent here."""
        if self._tokens and self._tokens[-1] != BREAK:
            self.add((None,), (BREAK,))

    def _repeated(self, distance: int, matched: int, end: int) -> Iterator[Sequence[Any]]:
        """The two rounds that end there, if they are over, cut at breaks; else it says when to look again."""
        tokens = self._tokens
        size, newest = distance, tokens[end - distance : end]
        if BREAK not in newest:
            size = distance * -(-SEVERAL // distance) if distance < SHORT else distance
        elif newest[-1] != BREAK:
            self._due = end + newest.index(BREAK)
            return
        if matched + distance < 2 * size:
            self._due = end - 1 + 2 * size - matched - distance
            return
        self._due = end - 1 + 2 * size
        start = end - 2 * size
        breaks = [n for n in range(start, end) if tokens[n] == BREAK] or [start + size, end]
        for stop in breaks:
            if stop - start >= SHORTEST:
                yield self._calls[start:stop]
            start = stop + (stop < end and tokens[stop] == BREAK)

    def _drop(self) -> None:
        """Forget the older half."""
        count = len(self._tokens) - KEPT // 2
        del self._tokens[:count], self._calls[:count]
        self._due -= count
        self.vain.clear()
        self._last = {token: position - count for token, position in self._last.items() if position >= count}
