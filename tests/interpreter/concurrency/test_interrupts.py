"""Ctrl-C in a shielded region: noted, and raised where it does no harm."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from tensord.interpreter.concurrency import shielded_lock, signal_handlers
from tensord.interpreter.concurrency.background import Background
from tensord.interpreter.concurrency.bell import Bell
from tensord.interpreter.concurrency.blocks import ends_block
from tensord.interpreter.concurrency.finalisers import redone
from tensord.interpreter.concurrency.interrupts import Shield
from tensord.interpreter.concurrency.shielded_lock import ShieldedLock


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
    """A repeated Ctrl-C must not keep us from releasing our resources."""
    reached = []

    def wait() -> None:
        with shield:
            try:
                with shield.interruptible:
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
            with shield.interruptible:
                reached.append("the sleep")

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert not reached


def test_after_the_sleep_the_shield_is_up_again(shield: Shield) -> None:
    reached = []

    def wait() -> None:
        with shield:
            with shield.interruptible:
                pass
            interrupt()
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert reached == ["the end"]
    with shield:  # no signal is left over
        pass


class FirstError(Exception):
    pass


class SecondError(Exception):
    pass


@pytest.fixture
def two_handlers() -> Iterator[None]:
    """SIGUSR1 raises FirstError, SIGUSR2 SecondError."""

    def first(*_: object) -> None:
        raise FirstError

    def second(*_: object) -> None:
        raise SecondError

    before = signal.signal(signal.SIGUSR1, first), signal.signal(signal.SIGUSR2, second)
    yield
    signal.signal(signal.SIGUSR1, before[0])
    signal.signal(signal.SIGUSR2, before[1])


@pytest.mark.usefixtures("two_handlers")
def test_two_that_are_noted_are_both_raised(shield: Shield) -> None:
    with pytest.raises(SecondError) as raised, shield:  # noqa: PT012
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
    assert isinstance(raised.value.__context__, FirstError)


@pytest.mark.usefixtures("two_handlers")
def test_an_error_that_leaves_the_region_is_the_context(shield: Shield) -> None:
    with pytest.raises(FirstError) as raised, shield:  # noqa: PT012
        signal.raise_signal(signal.SIGUSR1)
        raise ValueError
    assert isinstance(raised.value.__context__, ValueError)


@pytest.mark.usefixtures("two_handlers")
def test_handlers_are_covered_whoever_installs_them_and_given_back(shield: Shield) -> None:
    reached = []
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(FirstError), shield:  # noqa: PT012
        assert signal.getsignal(signal.SIGUSR1) is not before
        signal.raise_signal(signal.SIGUSR1)
        reached.append("the end")
    assert signal.getsignal(signal.SIGUSR1) is before
    assert reached == ["the end"]


def test_a_handler_that_does_not_raise_lets_a_sleep_go_on(shield: Shield) -> None:
    seen, bell = [], Bell()

    def note(*_: object) -> None:
        seen.append(shield.sleeping)
        bell.ring()

    before = signal.signal(signal.SIGUSR1, note)
    try:
        with shield, shield.interruptible:
            signal.raise_signal(signal.SIGUSR1)
            assert bell.sleep(10)
            signal.raise_signal(signal.SIGUSR1)
        assert seen == [True, True]
        assert not shield.sleeping
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_second_signal_interrupts_a_callback_that_does_not_return(shield: Shield) -> None:
    reached = []

    def work() -> None:
        with shield:
            try:
                with shield.calling:
                    interrupt()
                    reached.append("the first is noted")
                    interrupt()
                    reached.append("the second is not")
            except KeyboardInterrupt:
                reached.append("the callback is interrupted")
            interrupt()
            reached.append("the end of the region")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["the first is noted", "the callback is interrupted", "the end of the region"]


def throw(error: object) -> int:
    me = ctypes.c_ulong(threading.get_ident())
    return int(ctypes.pythonapi.PyThreadState_SetAsyncExc(me, ctypes.py_object(error)))


def test_what_is_thrown_at_a_thread_in_a_region_is_raised_at_its_end(shield: Shield) -> None:
    reached = []
    with pytest.raises(FirstError), shield:  # noqa: PT012
        assert throw(FirstError) == 1
        reached.append("the end")
    assert reached == ["the end"]
    with pytest.raises(SecondError):  # outside of regions as ever
        throw(SecondError)


def test_without_a_user_of_regions_nothing_stands_before_the_interpreter() -> None:
    def door() -> object:
        return vars(ctypes.pythonapi).get("PyThreadState_SetAsyncExc")

    before = door()
    shield = Shield()
    shield.install()
    shield.install()
    opened = door()
    shield.remove()
    assert door() is opened is not before
    shield.remove()
    assert door() is not opened


def test_what_is_thrown_at_a_region_and_taken_back_is_not_raised(shield: Shield) -> None:
    with shield:
        throw(FirstError)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
    assert not shield.thrown


def test_what_is_thrown_behind_the_region_that_ends_a_block_is_raised_there(shield: Shield) -> None:
    """No region is open any more: a signal kept back here would be raised by the next region, if there is one."""
    reached = []

    @ends_block
    def end() -> None:
        with shield:
            reached.append("the region")
        throw(FirstError)
        reached.append("the end of the function")

    with pytest.raises(FirstError):
        end()
    assert reached == ["the region"]


def test_what_is_thrown_and_a_signal_are_both_raised(shield: Shield) -> None:
    with pytest.raises(FirstError) as raised, shield:  # noqa: PT012
        interrupt()
        throw(FirstError)
    assert isinstance(raised.value.__context__, KeyboardInterrupt)
    assert not shield.thrown


@pytest.mark.usefixtures("shield")
def test_what_is_thrown_at_a_thread_of_tensord_is_logged_and_the_thread_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rounds: list[object] = []
    looked = threading.Semaphore(0)

    def look_around() -> bool:
        rounds.append(True)
        looked.release()
        return False

    background = Background("tensord-tried", look_around=look_around, pause=lambda _awake: None, failed=rounds.append)
    background.start()
    try:
        number = ctypes.c_ulong(background.thread.ident or 0)
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(FirstError)) == 1
        for _ in range(3):
            background.ring()
            assert looked.acquire(timeout=10)
    finally:
        background.stop()
        background.join(10)
    assert rounds == [True] * 3
    assert ["tensord-tried" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.usefixtures("two_handlers")
def test_the_end_of_a_block_is_covered_from_its_first_step(shield: Shield) -> None:
    ended, block = [], threading.Event()

    @ends_block
    def end() -> None:
        signal.raise_signal(signal.SIGUSR1)  # the interpreter handles it first, in front of the region
        with shield:
            shield.let_go(block)
            ended.append(True)

    with shield:
        shield.hold(block)
    with pytest.raises(FirstError):
        end()
    assert ended == [True]


class Finalised:
    """Is interrupted while it is finalised, the first time."""

    def __init__(self, number: signal.Signals, calls: list[str]) -> None:
        self.number = number
        self.calls = calls

    @redone
    def __del__(self) -> None:
        self.calls.append("begun")
        if len(self.calls) == 1:
            signal.raise_signal(self.number)
        self.calls.append("ended")


@pytest.mark.usefixtures("two_handlers")
@pytest.mark.usefixtures("shield")
def test_what_comes_in_a_finaliser_is_raised_soon_afterwards_and_the_finaliser_is_done() -> None:
    """Python ignores exceptions in finalisers: the program would go on as if without Ctrl-C."""
    for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, FirstError)):
        calls: list[str] = []
        with pytest.raises(error):  # noqa: PT012 - without a call of ours
            Finalised(number, calls)
            for _ in range(1000):  # a thread is not thrown at while it sleeps
                threading.Event().wait(0.01)
        assert calls == ["begun", "begun", "ended"]


@pytest.mark.usefixtures("two_handlers")
def test_what_comes_in_a_finaliser_in_a_sleep_is_raised_behind_the_sleep(shield: Shield) -> None:
    calls: list[str] = []
    with pytest.raises(FirstError), shield, shield.interruptible:
        Finalised(signal.SIGUSR1, calls)
    assert calls == ["begun", "begun", "ended"]


class TestTheLock:
    def test_it_names_its_owner(self) -> None:
        lock = ShieldedLock()
        assert lock.owner == 0
        with lock:
            assert lock.owner == threading.get_ident()
        assert lock.owner == 0

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

    @pytest.mark.parametrize("how", ["when asked to", "by itself, after a while"])
    def test_a_thread_that_gives_way_is_behind_the_one_that_waits(
        self, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However long the waiting thread takes to wake."""
        monkeypatch.setattr(shielded_lock, "COURTESY", 10.0)
        if how == "by itself, after a while":
            monkeypatch.setattr(shielded_lock, "PATIENCE", 0.0)
        lock, waits, entered = ShieldedLock(), threading.Event(), []

        class Waiting(list[tuple[Bell, float]]):
            """Signals that a thread waits."""

            def append(self, waiter: tuple[Bell, float]) -> None:
                super().append(waiter)
                waits.set()

        lock._waiting = Waiting()

        def enter() -> None:
            with lock:
                entered.append("the one that waits")

        thread = threading.Thread(target=enter)
        with lock:
            thread.start()
            assert waits.wait(10)
        if how == "when asked to":
            lock.give_way()
        with lock:
            entered.append("the one that gives way")
        thread.join()
        assert entered == ["the one that waits", "the one that gives way"]
        lock.give_way()  # no thread waits

    @pytest.mark.parametrize("when", ["before it is the owner", "after it was the owner"])
    def test_a_signal_handler_between_lock_and_owner_may_go_in(self, when: str) -> None:
        """The handler does not wait for the thread that waits for this thread's lock."""
        lock, entered = ShieldedLock(), []
        lock._waiting.append((Bell(), 0.0))

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
        assert not lock.owner


class Thing:
    """An object that may have finalisers."""


def test_an_error_in_a_users_finaliser_is_reported_as_python_does(
    shield: Shield, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    shield.remove()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_value))
    shield.install()
    thing, error = Thing(), ValueError("a user's")

    def clean_up() -> None:
        raise error

    weakref.finalize(thing, clean_up)
    del thing
    with shield:
        pass
    assert reported == [error]
    assert not shield.thrown


def test_a_hook_that_was_put_over_ours_works_when_regions_are_used_again(
    shield: Shield, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    shield.remove()
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    shield.install()
    ours = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", partial(ours))
    shield.remove()
    shield.install()

    class Failing:
        def __del__(self) -> None:
            raise ValueError

    Failing()
    assert len(reported) == 1


def test_a_handler_that_raises_while_covers_come_off_leaves_none(
    shield: Shield, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setting a handler runs the handlers of signals that have just come, and these handlers are back already."""
    handlers = dict.fromkeys((signal.SIGINT, signal.SIGUSR1, signal.SIGTERM), signal.default_int_handler)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    sets = vars(signal_handlers)["set_handler"]
    struck = [signal.SIGINT]

    def set_handler(number: int, handler: object) -> object:
        if number == signal.SIGUSR1 and handler is signal.default_int_handler and struck:
            signal.raise_signal(struck.pop())
        return sets(number, handler)

    monkeypatch.setattr(signal_handlers, "set_handler", set_handler)
    try:
        with pytest.raises(KeyboardInterrupt), shield:
            pass
        assert all(signal.getsignal(number) is handler for number, handler in handlers.items())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
