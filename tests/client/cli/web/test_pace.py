"""A daemon spends a bounded share of its time on pages that watch it."""

from __future__ import annotations

import pytest

from tensord.client.cli.web.pace import (
    ANSWER_COST,
    MAX_PAUSE,
    MAX_RECORDS,
    MIN_PAUSE,
    MIN_RECORDS,
    QUESTION_COST,
    RARE_TIME_SHARE,
    TIME_SHARE,
    PollingPace,
    rare_pause,
)


@pytest.mark.parametrize("each", [0.5e-6, 2e-6, 20e-6, 500e-6])
def test_whatever_a_record_costs_the_share_is_kept(each: float) -> None:
    pace, spent, passed = PollingPace(), 0.0, 0.0
    for _ in range(200):
        collected = pace.most * each
        cost = collected * ANSWER_COST + QUESTION_COST
        passed += pace.after(collected, full=True) + cost
        spent += cost
    assert spent / passed <= TIME_SHARE
    assert MIN_RECORDS <= pace.most <= MAX_RECORDS


def test_where_there_is_much_to_tell_pauses_stay_short_and_answers_get_smaller() -> None:
    pace = PollingPace()
    pauses = [pace.after(pace.most * 3e-6, full=True) for _ in range(20)]
    assert max(pauses[2:]) <= MAX_PAUSE
    assert MIN_RECORDS < pace.most < MAX_RECORDS


def test_a_quiet_daemon_is_asked_as_often_as_a_page_needs() -> None:
    pace = PollingPace()
    assert [pace.after(10e-6, full=False) for _ in range(3)] == [MIN_PAUSE] * 3
    assert pace.most == MAX_RECORDS


def test_answers_get_larger_again() -> None:
    pace = PollingPace()
    pace.after(1.0, full=True)
    few = pace.most
    for _ in range(20):
        pace.after(1e-6, full=True)
    assert few < pace.most == MAX_RECORDS


def test_rare_questions_are_as_rare_as_they_are_expensive() -> None:
    assert rare_pause(0.001) == 2.0
    assert rare_pause(0.8) == 0.8 / RARE_TIME_SHARE
