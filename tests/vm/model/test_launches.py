"""How fast a device is, as its fences show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tensord.vm.model.launches import Launches


@pytest.fixture
def launches() -> Launches:
    found = Launches.__new__(Launches)
    found.pace, found.done = 10.0, 1000
    return found


def fence(cost: int, launched: int, finished: int) -> Any:
    return SimpleNamespace(cost=cost, dispatched=launched, finished=finished)


def test_a_device_that_had_work_all_the_while_is_as_fast_as_it_was_seen_to_be(launches: Launches) -> None:
    for slower in (6.0, 4.0, 3.0):
        launches.learn(fence(cost=3000, launched=50, finished=1100), since=100)
        assert launches.pace == slower


def test_one_that_waited_for_work_is_at_least_as_fast(launches: Launches) -> None:
    launches.learn(fence(cost=3000, launched=150, finished=1100), since=100)
    assert launches.pace == 10.0
    launches.learn(fence(cost=16_000, launched=150, finished=1100), since=100)
    assert launches.pace == 15.0


def test_one_look_makes_it_no_more_than_twice_as_fast(launches: Launches) -> None:
    launches.learn(fence(cost=1 << 40, launched=50, finished=101), since=100)
    assert launches.pace == 15.0
    launches.learn(fence(cost=1 << 40, launched=150, finished=101), since=100)
    assert launches.pace == 30.0


def test_a_fence_behind_which_nothing_was_launched_says_nothing(launches: Launches) -> None:
    launches.learn(fence(cost=1000, launched=50, finished=1100), since=100)
    launches.learn(fence(cost=3000, launched=50, finished=100), since=100)
    assert launches.pace == 10.0


def test_so_many_warm_kernels_are_remembered_and_no_more(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensord.vm.model.launches.REMEMBERED", 10)
    launches.seen, launches.warm = set(), set()
    for number in range(35):
        plan: Any = SimpleNamespace(key=("add", number), launchable=True)
        launches.note_warm(plan, (None, (8, 4)))
        assert launches.is_warm(plan, (None, (8, 4)))
        assert not launches.is_warm(plan, (None, None))
        assert len(launches.seen) <= len(launches.warm) <= 10
