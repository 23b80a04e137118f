"""Busy polling: the loop polls before it sleeps as long as polling pays."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from tensord.vm.service.busy_polling import MAX_PENALTY, SHORT_SLEEP_FACTOR, BusyPolling
from tensord.vm.service.loop import Loop

from ...fuzz.harness import Harness

LIMIT = 200_000
SHORT, LONG = SHORT_SLEEP_FACTOR * LIMIT - 1, SHORT_SLEEP_FACTOR * LIMIT


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})


@pytest.fixture
def polling() -> BusyPolling:
    return BusyPolling(LIMIT)


def naps_until_it_polls(polling: BusyPolling) -> int:
    """How many short naps."""
    naps = 0
    while not polling.budget():
        polling.slept(SHORT, polled=False)
        naps += 1
    return naps


def test_it_begins_with_a_nap(polling: BusyPolling) -> None:
    assert naps_until_it_polls(polling) == 1
    assert polling.budget() == LIMIT


def test_it_goes_on_while_news_comes(polling: BusyPolling) -> None:
    naps_until_it_polls(polling)
    for _ in range(100):
        polling.succeeded()
        assert polling.budget() == LIMIT


def test_each_try_in_vain_doubles_the_naps_before_the_next_one(polling: BusyPolling) -> None:
    found = []
    for _ in range(9):
        naps_until_it_polls(polling)
        polling.slept(LONG, polled=True)
        assert polling.budget() == 0
        found.append(polling._naps)
    assert found == [1, 2, 4, 8, 16, 32, MAX_PENALTY, MAX_PENALTY, MAX_PENALTY]
    naps_until_it_polls(polling)
    polling.succeeded()
    polling.slept(LONG, polled=True)
    assert naps_until_it_polls(polling) == 1


def test_who_has_nothing_to_do_never_polls(polling: BusyPolling) -> None:
    for _ in range(1000):
        polling.slept(LONG, polled=False)
        assert polling.budget() == 0


@pytest.mark.parametrize(("limit", "processors"), [(0, {0, 1}), (LIMIT, {3})])
def test_never_without_a_limit_or_on_a_single_processor(
    monkeypatch: pytest.MonkeyPatch, limit: int, processors: set[int]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: processors)
    polling = BusyPolling(limit)
    for _ in range(100):
        polling.slept(0, polled=False)
        assert polling.budget() == 0


class TestLoop:
    """The loop's use of the polling times."""

    @pytest.fixture
    def loop(self) -> Iterator[Loop]:
        harness = Harness()
        loop = Loop(harness.engine, harness.front, [], busy_poll=10.0)
        loop.due = time.monotonic() + 1000
        yield loop
        loop.close()

    @pytest.fixture
    def polls(self, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
        """(timeout, asleep) of each poll; the third one finds an event."""
        found: list[tuple[int, bool]] = []

        def poll(_polled: Any, timeout: int) -> list[tuple[int, int]]:
            found.append((timeout, loop.asleep))
            return [(7, 1)] if len(found) == 3 else []

        monkeypatch.setattr(zmq, "zmq_poll", poll)
        return found

    def test_news_that_comes_while_it_polls_finds_it_awake(self, loop: Loop, polls: list[tuple[int, bool]]) -> None:
        loop.polling.slept(0, polled=False)
        assert loop.poll() == [(7, 1)]
        assert polls == [(0, False)] * 3
        assert loop.polling.budget()

    def test_so_does_what_a_stream_has_finished(self, loop: Loop, polls: list[tuple[int, bool]]) -> None:
        """No thread rings while the loop is awake."""
        loop.polling.slept(0, polled=False)
        loop.engine.finished.append(object())
        assert loop.poll() == []
        assert polls == [(0, False)]
        loop.engine.finished.clear()

    def test_else_it_sleeps(self, loop: Loop, polls: list[tuple[int, bool]]) -> None:
        loop.poll()
        ((timeout, asleep),) = polls
        assert timeout > 1000
        assert asleep
        assert not loop.asleep

    def test_after_polling_in_vain_it_sleeps(self, loop: Loop, polls: list[tuple[int, bool]]) -> None:
        loop.polling = BusyPolling(1)
        loop.polling._naps = 0
        loop.poll()
        assert polls[-1][0] > 1000
        assert polls[-1][1]
        assert loop.polling.budget() == 0
