"""A bell remembers one ring."""

from __future__ import annotations

import threading

from tensord.interpreter.concurrency.bell import Bell


def test_a_ring_before_the_sleep_is_remembered_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.sleep(None)
    assert not bell.sleep(0)


def test_a_ring_wakes_the_sleeper() -> None:
    bell = Bell()
    thread = threading.Thread(target=bell.sleep, args=(10.0,))
    thread.start()
    bell.ring()
    thread.join(10.0)
    assert not thread.is_alive()


def test_time_that_is_over_is_none() -> None:
    assert not Bell().sleep(-1.0)
