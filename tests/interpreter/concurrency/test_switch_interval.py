"""The switch interval: shortened by the first user, restored by the last, in any order."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tensord.interpreter.concurrency.switch_interval import SHORT_INTERVAL, SwitchInterval


@pytest.fixture
def interval() -> Iterator[SwitchInterval]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield SwitchInterval()
    sys.setswitchinterval(before)


def test_the_last_user_gives_it_back(interval: SwitchInterval) -> None:
    interval.shorten()
    interval.shorten()
    interval.restore()
    assert sys.getswitchinterval() == pytest.approx(SHORT_INTERVAL)
    interval.restore()
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_a_shorter_one_stays(interval: SwitchInterval) -> None:
    sys.setswitchinterval(SHORT_INTERVAL / 2)
    before = sys.getswitchinterval()
    interval.shorten()
    assert sys.getswitchinterval() == before
    interval.restore()
    assert sys.getswitchinterval() == before


def test_an_interval_that_the_program_has_set_meanwhile_stays(interval: SwitchInterval) -> None:
    interval.shorten()
    sys.setswitchinterval(0.002)
    interval.restore()
    assert sys.getswitchinterval() == pytest.approx(0.002)


def test_a_forked_child_has_its_own_again(interval: SwitchInterval) -> None:
    interval.shorten()
    interval._lock.acquire()  # as if another thread had the lock
    child = os.fork()
    if not child:
        interval.forked()
        given_back = abs(sys.getswitchinterval() - 0.005) < 1e-6
        interval.shorten()
        shortened = sys.getswitchinterval() < 0.001
        os._exit(0 if given_back and shortened else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    interval._lock.release()
    interval.restore()
