"""Handles and sessions that are dropped at any place, or end during a wait."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.concurrency import background
from tensord.vm import machine as machine_module

from ..puppet import eventually
from .looking_inside import WAIT, assert_sound, device_of, held, machine_of, ones, until


def tensors_of(session: Any) -> int:
    """How many tensors the machine keeps for a session."""
    return int(session.stats()["session"]["tensors"])


def in_the_sessions_lock(session: Any, drop: Callable[[], None]) -> None:
    with session._core.outbox.lock:
        drop()


def in_the_machines_lock(session: Any, drop: Callable[[], None]) -> None:
    with machine_of(session).lock:
        drop()


def in_another_thread(_session: Any, drop: Callable[[], None]) -> None:
    thread = threading.Thread(target=drop)
    thread.start()
    thread.join(WAIT)
    assert not thread.is_alive()


def in_a_signal_handler(_session: Any, drop: Callable[[], None]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: drop())
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def in_a_signal_handler_in_the_locks(session: Any, drop: Callable[[], None]) -> None:
    with session._core.outbox.lock, machine_of(session).lock:
        in_a_signal_handler(session, drop)


def in_a_side_effect(session: Any, drop: Callable[[], None]) -> None:
    """On the driving thread, with every lock held."""
    session.effect(drop)
    session.check_chain()


DROPS = [
    in_the_sessions_lock,
    in_the_machines_lock,
    in_another_thread,
    in_a_signal_handler,
    in_a_signal_handler_in_the_locks,
    in_a_side_effect,
]


@pytest.mark.parametrize("drop_inside", DROPS)
def test_a_handle_may_be_dropped_anywhere(session, drop_inside):
    """Behaviour 46: no deadlock, and the tensor is released."""
    handles = [session.asarray(ones(4)) for _ in range(3)]
    session.sync()
    assert tensors_of(session) == 3
    drop_inside(session, handles.clear)
    assert tensors_of(session) == 0
    assert_sound(session)


@pytest.mark.parametrize("drop_inside", DROPS)
def test_a_handle_may_be_collected_anywhere(session, drop_inside):
    """Behaviour 46: the cyclic collector finds it, in any thread and under any lock."""

    class Holder:
        """Keeps a handle in a cycle."""

    holder: Any = Holder()
    holder.cycle, holder.handle = holder, session.asarray(ones(4))
    session.sync()
    gc.disable()
    try:
        del holder
        assert tensors_of(session) == 1
        drop_inside(session, gc.collect)
    finally:
        gc.enable()
    assert tensors_of(session) == 0
    assert_sound(session)


def test_handles_dropped_by_many_threads_are_all_released(session):
    """Behaviour 46: while the main thread issues ops on the same session."""
    x = session.asarray(ones(4))
    handles = [x + float(n) for n in range(2000)]
    parts = [handles[n::4] for n in range(4)]
    del handles
    start = threading.Barrier(5)

    def drop(part: list[Any]) -> None:
        start.wait(WAIT)
        while part:
            part.pop()

    threads = [threading.Thread(target=drop, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    start.wait(WAIT)
    y = x
    for _ in range(2000):
        y = y + x
    for thread in threads:
        thread.join(WAIT)
    np.testing.assert_array_equal(y.numpy(), ones(4, value=2001))
    assert tensors_of(session) == 2
    assert_sound(session)


@pytest.mark.parametrize("awake", [True, False])
def test_an_idle_session_sends_what_was_dropped(make_session, monkeypatch, awake):
    """Behaviour 46: the session makes no more calls, the background sleeps, and yet the memory comes back."""
    if not awake:
        monkeypatch.setattr(background, "AWAKE_ROUNDS", 0)
    session = make_session()
    x = session.asarray(ones(1000))
    session.sync()
    device = device_of(session, "cpu:0")
    never = threading.Event()
    while machine_of(session).background.awake and not awake:
        never.wait(0.01)
    assert device.allocated == 4000
    del x
    until(session, lambda: device.allocated == 0)


def test_an_idle_session_sends_what_was_issued(make_session):
    """Behaviour 46: also where another session of the machine is awake already."""
    a = make_session("local:shared")
    b = make_session("local:shared", devices=None)
    x = a.asarray(ones(4))
    assert machine_of(a).background.awake
    y = b.asarray(ones(4))
    inner = b._core.transport._session
    until(a, lambda: y._id in inner.tensors)
    until(a, x.is_ready)
    assert_sound(a)


# --- 47: credit


@pytest.fixture
def stuck(session, monkeypatch) -> Any:
    """A session with a thread that has used up its credit; the tensors it made; how it ended."""
    monkeypatch.setattr(machine_module, "WINDOW", 64)
    x = session.asarray(ones(4))
    session.sync()
    made: list[Any] = []
    ended: list[BaseException | None] = []
    device = device_of(session, "cpu:0")
    device.hold("compute")

    def submit() -> None:
        try:
            made.extend(x + float(n) for n in range(3000))
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    machine, inner = machine_of(session), session._core.transport._session
    eventually(lambda: len(inner.live) > 64 and machine.waiting.role.locked())  # the thread drives the machine
    assert thread.is_alive()
    yield thread, made, ended, x
    device.resume("compute")
    thread.join(WAIT)
    assert not thread.is_alive()


def test_who_waits_for_credit_can_cancel(session, stuck):
    """Behaviour 47: cancel overtakes; issued ops are cancelled; after restart the rest goes on."""
    thread, made, ended, x = stuck
    session.cancel()
    assert session.stats()["session"]["cancelled"]
    device_of(session, "cpu:0").resume("compute")
    session.restart()
    thread.join(WAIT)
    assert ended == [None]
    assert len(made) == 3000
    assert isinstance(made[0].error, td.CancelledError)
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))


def test_who_waits_for_credit_can_release(session, stuck):
    """Behaviour 47: releases need no credit: they leave although no other message may."""
    thread, made, _, _ = stuck
    first = made[0]._id
    made[0].release()
    until(session, lambda: first not in session._core.transport._session.tensors)
    assert thread.is_alive()
    assert made[1]._id in session._core.transport._session.tensors


def test_who_waits_for_credit_can_close(session, stuck, monkeypatch):
    """Behaviour 47: close returns, and the submitting thread learns of it."""
    thread, _, ended, _ = stuck
    machine, device = machine_of(session), device_of(session, "cpu:0")
    detach = machine.detach

    def detach_and_go_on(inner: Any) -> None:
        detach(inner)
        device.resume("compute")  # or close would have to give up on the stream first

    monkeypatch.setattr(machine, "detach", detach_and_go_on)
    session.close()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert isinstance(ended[0], td.ConnectionLost)


def test_other_sessions_do_not_wait_for_ones_credit(make_session, monkeypatch):
    """Behaviour 47: windows are per session."""
    monkeypatch.setattr(machine_module, "WINDOW", 64)
    a = make_session("local:shared", devices=["cpu:0", "sim:0"])
    b = make_session("local:shared", devices=None)
    x = a.asarray(ones(4), device="sim:0")
    a.sync()
    made: list[Any] = []
    with held(a, "sim:0", "compute"):
        thread = threading.Thread(target=lambda x=x: made.extend(x + float(n) for n in range(1000)))
        thread.start()
        until(a, lambda: len(a._core.transport._session.live) > 64)
        y = b.asarray(ones(4))
        for _ in range(1000):
            y = y + 1.0
        np.testing.assert_array_equal(y.numpy(), ones(4, value=1001))
        assert thread.is_alive()
    thread.join(WAIT)
    assert made[-1].numpy()[0] == 1000.0
    made.clear()
    del x, y
    assert_sound(a)
