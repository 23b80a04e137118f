"""The lock that refuses a callback's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from tensord.client.outbox.callbacks import CallbackLock
from tensord.interpreter.concurrency.interrupts import SHIELD

from ...each_case import each_case
from ...interrupts.check import STRIKES, handlers_that_raise, nothing
from ...interrupts.strikes import Checkpoint, Striker, Struck


def made_elsewhere(lock: Any) -> CallbackLock:
    """The lock as it is while a callback runs on another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(CallbackLock, lock).result()


@pytest.fixture
def shield() -> Iterator[None]:
    """Install the shield, as an open session does."""
    SHIELD.install()
    yield
    SHIELD.remove()


@pytest.mark.usefixtures("shield")
@each_case("how", STRIKES)
def test_an_exception_while_it_is_taken_leaves_it_free(how: str) -> None:
    lock: Any = threading.RLock()
    refusing = made_elsewhere(lock)
    passed = Striker(None, nothing)
    with passed.tracing():
        assert refusing.acquire()
    refusing.release()
    struck = 0
    for code, offset in passed.passed:
        striker = Striker(Checkpoint(code, offset, 0), STRIKES[how])
        taken = False
        with handlers_that_raise(), suppress(Struck):
            try:
                with striker.tracing():
                    taken = refusing.acquire()
            except Struck:
                struck += 1
            repr(striker)  # where the interpreter looks for a second signal at the latest
        if taken:
            refusing.release()
        assert not lock._is_owned(), (code.co_qualname, offset)
    assert struck > len(passed.passed) // 2


def test_its_limit_is_kept() -> None:
    lock = threading.RLock()
    refusing = made_elsewhere(lock)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lock.acquire).result()
        assert not refusing.acquire(blocking=False)
        assert not refusing.acquire(timeout=0.01)
        pool.submit(lock.release).result()
    assert refusing.acquire()
    refusing.release()
