"""A device's speed, estimated from its fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tensord.client.session.session import Session
from tensord.interpreter.schema.opdef import find
from tensord.vm.engine import Engine
from tensord.vm.machine import VirtualMachine
from tensord.vm.model.launches import Fence, Launches
from tensord.vm.model.work_plan import WorkPlan

MakeFence: TypeAlias = Callable[..., Fence]


@pytest.fixture
def engine(make_session: Callable[..., Session], machine_of: Callable[[Session], VirtualMachine]) -> Engine:
    """An engine with one device, which launches."""
    return machine_of(make_session(devices=[{"name": "sim:0", "launches": True}])).engine


@pytest.fixture
def launches(engine: Engine) -> Launches:
    found = Launches(engine.devices["sim:0"])
    found.pace, found.done = 10.0, 1000
    return found


@pytest.fixture
def fence(engine: Engine) -> MakeFence:
    def made(cost: int, launched: int, finished: int) -> Fence:
        found = Fence(0, engine.scheduler.system_session, engine.devices["sim:0"])
        found.cost, found.dispatched, found.finished = cost, launched, finished
        return found

    return made


def test_a_device_that_had_work_all_the_while_is_as_fast_as_it_was_seen_to_be(
    launches: Launches, fence: MakeFence
) -> None:
    for slower in (6.0, 4.0, 3.0):
        launches.learn(fence(cost=3000, launched=50, finished=1100), since=100)
        assert launches.pace == slower


def test_one_that_waited_for_work_is_at_least_as_fast(launches: Launches, fence: MakeFence) -> None:
    launches.learn(fence(cost=3000, launched=150, finished=1100), since=100)
    assert launches.pace == 10.0
    launches.learn(fence(cost=16_000, launched=150, finished=1100), since=100)
    assert launches.pace == 15.0


def test_one_look_makes_it_no_more_than_twice_as_fast(launches: Launches, fence: MakeFence) -> None:
    launches.learn(fence(cost=1 << 40, launched=50, finished=101), since=100)
    assert launches.pace == 15.0
    launches.learn(fence(cost=1 << 40, launched=150, finished=101), since=100)
    assert launches.pace == 30.0


def test_a_fence_behind_which_nothing_was_launched_says_nothing(launches: Launches, fence: MakeFence) -> None:
    launches.learn(fence(cost=1000, launched=50, finished=1100), since=100)
    launches.learn(fence(cost=3000, launched=50, finished=100), since=100)
    assert launches.pace == 10.0


def test_so_many_warm_kernels_are_remembered_and_no_more(
    engine: Engine, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensord.vm.model.launches.REMEMBERED", 10)
    plan = WorkPlan(find("add"), "add", engine.devices["sim:0"], (), ())
    plan.launchable = True
    for number in range(35):
        plan.key = ("add", number)
        launches.note_warm(plan, (None, (8, 4)))
        assert launches.is_warm(plan, (None, (8, 4)))
        assert not launches.is_warm(plan, (None, None))
        assert len(launches.seen) <= len(launches.warm) <= 10
