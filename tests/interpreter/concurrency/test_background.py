"""The background thread: its polls and sleeps, and that it survives errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tensord.interpreter.concurrency import background as module
from tensord.interpreter.concurrency.background import Background

WAIT = 30.0


class World:
    """A background thread whose sleeps are the test's: each waits for a `tick`."""

    def __init__(self) -> None:
        self.pauses: list[bool] = []  # of each sleep: was the thread awake?
        self.slept: list[float | None] = []
        self.errors: list[BaseException] = []
        self.unsent = False
        self.look: Callable[[], bool] = lambda: self.unsent
        self.asleep = threading.Semaphore(0)
        self.ticks = threading.Semaphore(0)
        self.background = Background(
            "test", look_around=self.look_around, pause=self.pause, failed=self.errors.append, sleep=self.sleep
        )
        self.background.start()
        assert self.asleep.acquire(timeout=WAIT)

    def look_around(self) -> bool:
        return self.look()

    def pause(self, awake: bool) -> float | None:
        self.pauses.append(awake)
        return 0.01 if awake else None

    def sleep(self, timeout: float | None) -> None:
        self.slept.append(timeout)
        self.asleep.release()
        assert self.ticks.acquire(timeout=WAIT)

    def tick(self) -> None:
        """Let the thread run one round: wake, look around, sleep again."""
        self.ticks.release()
        assert self.asleep.acquire(timeout=WAIT)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.background.stop()
    world.ticks.release()
    world.background.join(WAIT)


def test_it_dozes_until_something_is_unsent(world: World) -> None:
    assert world.slept == [None]
    assert world.background.dozing
    world.unsent = True
    world.background.rouse()
    world.tick()
    assert world.slept[-1] == 0.01
    assert not world.background.dozing


def test_only_the_first_message_rings(world: World) -> None:
    world.background.rouse()
    assert world.background.bell.sleep(0)
    world.background.rouse()
    assert not world.background.bell.sleep(0)


def test_it_dozes_again_after_some_quiet_rounds(world: World, monkeypatch) -> None:
    monkeypatch.setattr(module, "AWAKE_ROUNDS", 3)
    world.unsent = True
    world.background.rouse()
    world.tick()
    world.unsent = False
    for _ in range(3):
        world.tick()
        assert world.background.awake
    world.tick()
    assert not world.background.awake
    assert world.slept[-1] is None


def test_what_is_added_while_it_looks_for_the_last_time_rouses_it(world: World, monkeypatch) -> None:
    monkeypatch.setattr(module, "AWAKE_ROUNDS", 0)

    def look() -> bool:
        world.background.rouse()  # another thread, after the look
        return False

    world.look = look
    world.background.rouse()
    world.background.bell.sleep(0)
    world.tick()
    assert world.background.awake
    assert world.background.bell.sleep(0)


def test_it_goes_on_after_an_error(world: World, monkeypatch) -> None:
    monkeypatch.setattr(module, "DOZE_INTERVAL", 0.0)
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        if len(looks) == 1:
            raise ValueError("a fault of ours")
        return False

    world.look = look
    world.tick()
    assert [str(error) for error in world.errors] == ["a fault of ours"]
    world.tick()
    assert len(looks) == 2


def test_it_may_end_itself(world: World) -> None:
    def look() -> bool:
        world.background.stop()
        world.background.join()
        return False

    world.look = look
    world.ticks.release()
    world.background.join(WAIT)
    assert len(world.slept) == 1


def test_without_a_sleep_of_its_own_it_sleeps_on_its_bell() -> None:
    looked = threading.Semaphore(0)
    errors: list[BaseException] = []

    def look() -> bool:
        looked.release()
        return False

    background = Background("test", look_around=look, pause=lambda _awake: None, failed=errors.append)
    background.start()
    for _ in range(3):
        background.ring()
        assert looked.acquire(timeout=WAIT)
    background.stop()
    background.join(WAIT)
    assert errors == []


def test_a_report_that_fails_does_not_end_the_thread() -> None:
    rounds, again = [], threading.Event()

    def look_around() -> bool:
        rounds.append(1)
        if len(rounds) > 1:
            again.set()
        raise ValueError("a fault")

    def failed(error: BaseException) -> None:
        raise RuntimeError("and no report") from error

    background = Background("test", look_around=look_around, pause=lambda _: 0.001, failed=failed)
    background.start()
    assert again.wait(10.0)
    background.stop()
    background.join(10.0)
    assert not background.thread.is_alive()
