"""Ctrl-C behind the shield: noted, and raised where it harms nobody."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tensord.interpreter.concurrency.interrupts import Shield


@pytest.fixture
def shield() -> Iterator[Shield]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    shield = Shield()
    shield.install()
    yield shield
    shield.remove()
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_raised_at_the_end_of_the_shield(shield: Shield) -> None:
    reached = []

    def work() -> None:
        with shield:
            interrupt()
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["the end"]


def test_it_is_raised_in_a_sleep_behind_the_shield_but_not_on_the_way_out(shield: Shield) -> None:
    """Impatience must not keep us from giving back what we hold."""
    reached = []

    def wait() -> None:
        with shield:
            try:
                with shield.exposed:
                    interrupt()
                    reached.append("the end of the sleep")
            finally:
                interrupt()
                reached.append("the way out")

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert reached == ["the way out"]


def test_one_that_was_noted_is_raised_instead_of_sleeping(shield: Shield) -> None:
    reached = []

    def wait() -> None:
        with shield:
            interrupt()
            with shield.exposed:
                reached.append("the sleep")

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert not reached


def test_after_the_sleep_the_shield_is_up_again(shield: Shield) -> None:
    reached = []

    def wait() -> None:
        with shield:
            with shield.exposed:
                pass
            interrupt()
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert reached == ["the end"]
    with shield:  # and nothing of it is left
        pass
