"""The history of a session's stream of calls, in which repetitions are found.

Each call has a number, its *token* (signature and line), and is compared with the call a *distance* before it. While
the tokens are equal, the stream repeats with that distance. Where they differ, the distance becomes that to the last
call with the same token. So a loop is found at the end of its second round, after a call whose token occurs once in
each round. This costs a comparison and a dictionary entry per call. The idea is that of Legion's Apophenia (Yadav et
al., Automatic Tracing in Task-Based Runtime Systems, 2025), whose suffix arrays would find rounds with irregular parts
between them, too, and cost a thread.

A message that is no call is a break (`BREAK`): a loop that asks for a value in each round repeats with the break. Only
the pieces between breaks can be sent as a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from ...interpreter.wire.locations import LINE_BITS, LINE_MASK
from ...interpreter.wire.message_kinds import CALL, CHAIN, SIGNATURE
from ...interpreter.wire.messages import Message
from ...interpreter.wire.roles import own_ids

BREAK: Final = -1  # the token of a message that is no call: periods end there
KIND: Final = itemgetter(0)
INPUTS: Final = itemgetter(2)
OUTPUTS: Final = itemgetter(3)
LOCATION: Final = itemgetter(5)

MAX_PERIOD: Final = 1024  # calls of a period
MIN_RUN: Final = 8  # calls that make a run worthwhile
SHORT_ROUND: Final = 16  # calls of a round that is combined with further rounds
COMBINED_CALLS: Final = 64  # calls of the combined rounds together, at least
MAX_CALLS: Final = 4 * MAX_PERIOD  # the most calls that are remembered; at least half as many are
NEVER: Final = 1 << 60  # a position that no call has
NO_CALL: Final[Message] = (BREAK, 0, (), ())  # in place of a message that is no call, laid out as a call


def tokens_of(messages: Iterable[Message]) -> list[int]:
    """The token of each message: for a call, its signature and its line, without the surrounding spans.

    A call that was prepared for sending, but could not be sent, has its releases already, and counts as no call.
    """
    return [m[1] << LINE_BITS | m[5] & LINE_MASK if m[0] == CALL and not m[4] else BREAK for m in messages]


def signature_in(token: int) -> int:
    return token >> LINE_BITS


def line_in(token: int) -> int:
    return token & LINE_MASK


def values_in(calls: Sequence[Message]) -> list[Any]:
    """All operands of the calls, then all results: the *positions* of a period are indices into this list."""
    return flat(map(INPUTS, calls), map(OUTPUTS, calls))


def flat(operands: Iterable[Sequence[Any]], results: Iterable[Sequence[int]]) -> list[Any]:
    """All operands, then all results."""
    return [*chain.from_iterable(operands), *chain.from_iterable(results)]


def used_in(messages: Iterable[Message]) -> set[Any]:
    """The ids in the messages; scalars of calls may be among them."""
    ids: set[Any] = set()
    for message in messages:
        if message[0] == CALL:
            ids.update(message[2])
            ids.update(message[3])
        else:
            ids.update(own_ids(message))
    return ids


def newest_in(messages: Iterable[Message], before: int) -> int:
    """The highest id that is defined in the messages, or `before`."""
    newest = before
    for message in messages:
        kind = message[0]
        ids = message[3] if kind == CALL else message[1:2] if kind == CHAIN else own_ids(message)
        newest = max(newest, *ids) if ids else newest
    return newest


class CallSequence(NamedTuple):
    """Consecutive calls: the token, operands and results of each, as tuples, which the garbage collector ignores."""

    tokens: Sequence[int]
    operands: Sequence[Sequence[Any]]
    results: Sequence[Sequence[int]]


class Rounds(NamedTuple):
    """Two rounds of a loop: their distance, and their calls, cut at breaks."""

    distance: int
    stretches: list[CallSequence]


class History:
    """The newest calls, and the distance with which they repeat.

    `_matched`: the number of consecutive calls that equal those a distance before. `_due`: the position at which two
    rounds are complete. `_last`: the newest position of each token, up to `_noted_to`; after that only where rounds
    differ. `_given_up`: distances that are ignored.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._tokens: list[int] = []
        self._operands: list[Sequence[Any]] = []
        self._results: list[Sequence[int]] = []
        self._last: dict[int, int] = {}  # token -> its newest position
        self._distance = self._matched = self._due = self._noted_to = 0
        self._given_up: set[int] = set()
        self._span = 0  # the span of the newest call

    def add(
        self, tokens: Sequence[int], operands: Iterable[Sequence[Any]], results: Iterable[Sequence[int]]
    ) -> list[Rounds]:
        """Add calls; returns the repetitions found."""
        if len(self._tokens) >= MAX_CALLS:
            self._drop()
        known, last, distance, matched = self._tokens, self._last, self._distance, self._matched
        repetitions: list[Rounds] = []
        here = len(known)
        known.extend(tokens)
        self._operands.extend(operands)
        self._results.extend(results)
        end = len(known)
        if distance and self._due > end and tokens == known[here - distance : end - distance]:
            self._matched = matched + end - here
            return []
        for token in tokens:
            if distance and known[here - distance] == token:
                matched += 1
                if here >= self._due and matched >= distance:
                    repetitions.append(Rounds(distance, list(self._repeated(distance, matched, here + 1))))
            else:
                if self._noted_to < here:
                    first = max(self._noted_to, here - distance)
                    last.update(zip(known[first:here], range(first, here), strict=True))
                distance = here - last.get(token, here)
                matched = 1 if 0 < distance <= MAX_PERIOD else 0
                distance *= matched
                self._due = NEVER if distance in self._given_up else 0
                last[token] = here
                self._noted_to = here + 1
            here += 1
        self._distance, self._matched = distance, matched
        return [rounds for rounds in repetitions if rounds.stretches]

    def give_up(self, distance: int) -> None:
        """Ignore repetitions of that distance until the older half of all calls is forgotten."""
        self._given_up.add(distance)
        if distance == self._distance:
            self._due = NEVER

    def calls_in(self, messages: Sequence[Message], tokens: Sequence[int]) -> tuple[list[Message], list[int]]:
        """The messages and tokens without signatures, with breaks where spans change; several breaks in a row become
        one."""
        calls: list[Message] = []
        call_tokens: list[int] = []
        newest = self._tokens[-1] if self._tokens else BREAK
        for message, token in zip(messages, tokens, strict=True):
            called = token != BREAK
            if not called and (newest == BREAK or message[0] == SIGNATURE):
                continue
            if called and message[5] >> LINE_BITS != self._span:
                self._span = message[5] >> LINE_BITS
                if newest != BREAK:
                    calls.append(NO_CALL)
                    call_tokens.append(BREAK)
            calls.append(message if called else NO_CALL)
            call_tokens.append(token)
            newest = token
        return calls, call_tokens

    def interrupt(self) -> None:
        """Note a break: another message was sent here."""
        if self._tokens and self._tokens[-1] != BREAK:
            self.add((BREAK,), ((),), ((),))

    def _repeated(self, distance: int, matched: int, end: int) -> Iterator[CallSequence]:
        """The two rounds that end at `end`, cut at breaks, if they are complete; otherwise sets when to check again."""
        tokens = self._tokens
        size, newest = distance, tokens[end - distance : end]
        if BREAK not in newest:
            size = distance * -(-COMBINED_CALLS // distance) if distance < SHORT_ROUND else distance
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
            if stop - start >= MIN_RUN:
                part = slice(start, stop)
                yield CallSequence(tokens[part], self._operands[part], self._results[part])
            start = stop + (stop < end and tokens[stop] == BREAK)

    def _drop(self) -> None:
        """Forget the older half."""
        count = len(self._tokens) - MAX_CALLS // 2
        del self._tokens[:count], self._operands[:count], self._results[:count]
        self._noted_to = max(0, self._noted_to - count)
        self._due = 0
        self._given_up.clear()
        self._last = {token: position - count for token, position in self._last.items() if position >= count}
