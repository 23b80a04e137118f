"""Ctrl-C behind the shield: noted, and raised where it harms nobody."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Iterator

import pytest

from tensord.interpreter.concurrency.bell import Bell
from tensord.interpreter.concurrency.interrupts import Shield, ShieldedLock


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


class TestTheLock:
    def test_it_names_its_owner(self) -> None:
        lock = ShieldedLock()
        assert not lock.locked()
        with lock:
            assert lock.locked()
            assert lock.owner == threading.get_ident()
        assert (lock.locked(), lock.owner) == (False, 0)

    def test_a_second_thread_waits(self) -> None:
        lock, inside = ShieldedLock(), threading.Event()

        def enter() -> None:
            with lock:
                inside.set()

        thread = threading.Thread(target=enter)
        with lock:
            thread.start()
            assert not inside.wait(0.05)
        assert inside.wait(10)
        thread.join()

    def test_a_thread_that_gives_way_is_behind_the_one_that_waits(self) -> None:
        """However long that takes to wake."""
        lock, waits, entered = ShieldedLock(), threading.Event(), []

        class Waiting(list[Bell]):
            """Says when somebody waits."""

            def append(self, bell: Bell) -> None:
                super().append(bell)
                waits.set()

        lock._waiting = Waiting()

        def enter() -> None:
            with lock:
                entered.append("the one that waits")

        thread = threading.Thread(target=enter)
        with lock:
            thread.start()
            assert waits.wait(10)
        lock.give_way()
        with lock:
            entered.append("the one that gives way")
        thread.join()
        assert entered == ["the one that waits", "the one that gives way"]
        lock.give_way()  # to nobody

    @pytest.mark.parametrize("when", ["before it is the owner", "after it was the owner"])
    def test_a_signal_handler_between_lock_and_owner_may_go_in(self, when: str) -> None:
        lock, entered = ShieldedLock(), []

        def handle(*_: object) -> None:
            with lock:
                entered.append(lock.owner)

        before = signal.signal(signal.SIGUSR1, handle)
        try:
            lock._lock.acquire()
            if when == "after it was the owner":
                lock.owner = threading.get_ident()
                lock.owner = 0
            signal.raise_signal(signal.SIGUSR1)
            lock._lock.release()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert entered == [threading.get_ident()]
        assert not lock.locked()


class Finalised:
    """Is interrupted by `number` while it is finalised."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


class WatchedFinalised:
    """Is interrupted by `number` in a callback that finalises it."""

    def __init__(self, number: signal.Signals) -> None:
        weakref.finalize(self, signal.raise_signal, number)


@pytest.mark.parametrize("kind", [Finalised, WatchedFinalised])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_ctrl_c_while_something_is_finalised_comes_right_behind_the_next_shield(kind, number) -> None:
    """Python ignores exceptions of finalisers: the program would go on as if nobody had pressed it.

    Also where it comes by way of another signal, as in programs that treat SIGTERM as Ctrl-C.
    """
    shield = Shield()
    shield.install()
    before = signal.signal(signal.SIGUSR1, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        kind(number)
        with pytest.raises(KeyboardInterrupt), shield:
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)
        shield.remove()
