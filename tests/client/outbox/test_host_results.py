"""The results that get a hint for the host, and the batch with the hint."""

from __future__ import annotations

from typing import Any

from tensord.client.outbox.host_results import HostResultHints
from tensord.interpreter.wire.message_kinds import ATOMIC, CALL, RELEASE, RUN
from tensord.interpreter.wire.messages import Hint, encode_message

LINE = 7


def call(*outputs: int) -> list[Any]:
    return [CALL, 1, (1, 2.0), outputs, 0, LINE]


def run(*outputs: int) -> list[Any]:
    return [RUN, 3, (1,), (), outputs, (), LINE]


def hinted(found: list[list[Any]]) -> list[int]:
    """The ids in well-formed hint messages."""
    ids = [message[1] for message in found]
    assert found == [encode_message(Hint(id_, "prefetch", "host", LINE)) for id_ in ids]
    return ids


def opened(newest: int = 5) -> HostResultHints:
    found = HostResultHints()
    found.begin(newest)
    return found


def test_a_hint_follows_one_batch_later() -> None:
    results = opened()
    assert hinted(results.hints([call(6), run(8, 9), [RELEASE, (1,)]], True)) == []
    assert list(results.due) == [6, 8, 9]
    assert hinted(results.hints([call(10)], True)) == [6, 8, 9]
    assert hinted(results.hints([], True)) == [10]
    assert hinted(results.hints([], True)) == []


def test_what_was_released_by_then_gets_none() -> None:
    results = opened()
    results.released({6})
    results.hints([call(6), call(7), call(8)], True)
    results.released({7})
    assert hinted(results.hints([], True)) == [8]


def test_writes_in_place_make_no_result() -> None:
    results = opened()
    results.hints([call(4), call(6), call(6)], True)
    assert hinted(results.hints([call(6)], True)) == [6]
    assert hinted(results.hints([], True)) == []


def test_groups_are_looked_into() -> None:
    results = opened()
    results.hints([[ATOMIC, [call(6), call(3), run(7)]]], True)
    assert hinted(results.hints([], True)) == [6, 7]


def test_results_count_by_when_they_were_issued_not_by_when_they_leave() -> None:
    results = opened(5)
    results.end(7)
    results.hints([call(5), call(6)], False)  # 7 and 8 are held back
    assert hinted(results.hints([call(7), call(8)], True)) == [6]
    assert hinted(results.hints([call(9)], True)) == [7]
    results.begin(9)
    results.begin(10)
    results.end(11)
    results.hints([call(9), call(11), call(12)], True)
    results.end(12)
    assert hinted(results.hints([call(13)], True)) == [11, 12]
    assert not results.due


def test_what_is_left_gets_none_whenever_that_is_said() -> None:
    results = opened()
    results.leave(6)  # before it leaves
    results.leave(3)  # not of the block
    results.hints([call(6), call(7), call(8)], True)
    results.leave(7)  # before its hint
    assert hinted(results.hints([], True)) == [8]
    results.leave(8)  # too late
    results.end(8)
    assert hinted(results.hints([], True)) == []
    results.begin(8)
    results.hints([call(9)], True)
    assert hinted(results.hints([], True)) == [9]
