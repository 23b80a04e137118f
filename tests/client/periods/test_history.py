"""Repetition in a stream of calls, as numbers: a period is found when its second round is over, whole, and no other."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tensord.client.periods.history import (
    BREAK,
    COMBINED_CALLS,
    MAX_CALLS,
    MAX_PERIOD,
    MIN_RUN,
    History,
    Rounds,
)

from ...each_case import each_case


def found_in(stream: Sequence[int], pieces: int = 1) -> list[list[list[int]]]:
    """The repeated stretches of the stream, which is added in pieces of that size. Calls are their own numbers."""
    history, found = History(), []
    for start in range(0, len(stream), pieces):
        for rounds in added(history, stream[start : start + pieces]):
            assert all([[token] for token in each.tokens] == each.operands == each.results for each in rounds.stretches)
            found.append([list(stretch.tokens) for stretch in rounds.stretches])
    return found


def added(history: History, tokens: Sequence[int]) -> list[Rounds]:
    """The periods found when these calls are added, with their tokens for operands and results."""
    operands = [[token] for token in tokens]
    return history.add(tokens, operands, operands)


ROUND = list(range(20))


@each_case("pieces", [1, 7, 1000])
def test_a_loop_is_found_when_its_second_round_is_over(pieces: int) -> None:
    assert found_in([100, 101, *ROUND, *ROUND[:-1]], pieces) == []
    assert found_in([100, 101, *ROUND, *ROUND], pieces) == [[ROUND, ROUND]]


def test_calls_that_come_several_times_in_a_round_hide_no_loop() -> None:
    inner = [1, 2, 2, 2, 3, 1, 2, 2, 2, 3, 4, 5, 6, 6, 7, 8]
    ((first, second),) = found_in(inner * 3)
    assert first == second
    assert sorted(first) == sorted(inner)


def test_a_round_begins_behind_a_break() -> None:
    first, second = list(range(10)), list(range(10, 30))
    stream = [*first, BREAK, *second, BREAK]
    assert found_in([*stream, *stream[:-1]]) == []
    assert found_in([*stream, *stream]) == [[first, second, first, second]]


def test_pieces_that_are_not_worth_a_run_are_left_out() -> None:
    long, short = list(range(MIN_RUN)), list(range(50, 50 + MIN_RUN - 1))
    stream = [*long, BREAK, *short, BREAK]
    assert found_in(stream * 2) == [[long, long]]


def test_short_rounds_are_taken_several_times() -> None:
    assert found_in([1, 2, 3] * 30) == []
    (rounds,) = found_in([1, 2, 3] * 44)
    assert list(map(len, rounds)) == [COMBINED_CALLS + 2] * 2


def test_rounds_that_are_too_long_are_none() -> None:
    stream = list(range(MAX_PERIOD + 1))
    assert found_in(stream * 3) == []
    assert found_in(stream[1:] * 2) == [[stream[1:]] * 2]


def test_looking_in_vain_is_done_rarely() -> None:
    history, looks = History(), 0
    for _ in range(1000):
        for distance, _ in added(history, [1] * 100):
            looks += 1
            history.give_up(distance)
    assert looks < 1000 * 100 / (MAX_CALLS / 2)


def test_a_repetition_inside_that_is_looked_at_in_vain_hides_no_loop() -> None:
    stream, history = [*range(30), *[50, 51, 52] * 60] * 3, History()
    found = []
    for token in stream:
        for distance, _ in added(history, [token]):
            found.append(distance)
            history.give_up(distance)
    assert found == [3, 210]


def test_the_history_is_bounded() -> None:
    history, numbers = History(), random.Random(3)
    for _ in range(40):
        part = [numbers.randrange(1 << 40) for _ in range(MAX_CALLS // 4)]
        added(history, part)
    assert len(history._tokens) == len(history._operands) == len(history._results) < 2 * MAX_CALLS
    assert len(history._last) <= len(history._tokens)


def test_a_loop_is_found_across_the_border_of_what_is_forgotten() -> None:
    for lead in range(MAX_CALLS - 50, MAX_CALLS + 10, 7):
        irregular = list(range(10_000, 10_000 + lead))
        assert found_in([*irregular, *ROUND, *ROUND], 5) == [[ROUND, ROUND]]


def test_after_an_interruption_a_round_begins_anew() -> None:
    history = History()
    assert added(history, ROUND) == []
    history.interrupt()
    assert added(history, ROUND[:-1]) == []
    assert history._tokens.count(BREAK) == 1
