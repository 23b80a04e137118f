"""Interrupts at random times, as notebooks, timeouts and batch systems send them."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor
from tensord.client.waiting.steps import LongWork, Pause, Steps, on_thread

ROUNDS = 4


class TooLateError(Exception):
    """The error that a timeout's handler raises."""


def too_late(*_: object) -> None:
    raise TooLateError


def by_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def by_alarm() -> None:
    os.kill(os.getpid(), signal.SIGALRM)


def by_throw() -> None:
    main = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(TooLateError))


WAYS = {"ctrl_c": by_ctrl_c, "alarm": by_alarm, "throw": by_throw}


@contextmanager
def interrupted(way: Callable[[], None], when: threading.Event) -> Iterator[None]:
    """Interrupt the main thread, from another one, once the program has come so far; as notebooks do, with handlers
    that were installed just before.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGALRM, too_late)
    callbacks = gc.callbacks[:]  # of other libraries: Python ignores an interrupt inside one
    gc.callbacks.clear()

    def interrupt() -> None:
        if when.wait(10):
            way()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises((KeyboardInterrupt, TooLateError)):
            yield
    finally:
        thread.join()
        gc.callbacks.extend(callbacks)
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGALRM, before[1])


def endless(a: Tensor, ones: Tensor, steps: int, when: threading.Event) -> None:
    """An endless stream of ops, some in place; `when` is set after so many."""
    for step in range(10**9):
        a = a * 0.5 + ones
        a[:32] += 1
        if step == steps:
            when.set()
        if step % 50 == 0:
            float(a[0])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_loop_of_ops_is_interrupted_and_the_session_goes_on(sim_session: Session, way: Callable[[], None]) -> None:
    keep = sim_session.asarray(np.arange(4.0))
    ones = sim_session.asarray(np.ones(64), device="sim:0")
    for number in range(ROUNDS):
        when = threading.Event()
        with interrupted(way, when):
            endless(ones, ones, 7 + 13 * number, when)
        assert (keep * 2 + 1).wait(timeout=10).tolist() == [1, 3, 5, 7]
        sim_session.sync(timeout=10)
    gc.collect()  # tracebacks
    assert sim_session.stats()["session"]["tensors"] == 2


def test_a_wait_is_interrupted(session: Session) -> None:
    entered = threading.Event()
    gate = threading.Event()

    def slow(_values: object) -> None:
        entered.set()
        gate.wait(10)

    x = session.asarray([1.0])
    session.effect(slow, x)
    with interrupted(by_alarm, entered):
        worker = threading.Thread(target=session.flush)
        worker.start()
        entered.wait(10)
        while True:
            session.sync(timeout=10)
    gate.set()
    worker.join()
    assert (x + 1).tolist() == [2.0]


def test_outside_of_regions_the_process_has_its_own_handlers(session: Session) -> None:
    before = signal.getsignal(signal.SIGINT)
    (session.asarray([1.0]) + 1).numpy()
    with session.context():
        session.asarray([1.0]).wait()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_cancelled_task_of_asyncio_leaves_the_session_whole(session: Session) -> None:
    x = session.asarray([1.0])

    async def work() -> None:
        y = x
        while True:
            y = y + 1
            await y

    async def main() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        await (x * 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (x + 1).tolist() == [2.0]
    session.sync()
    assert session.stats()["session"]["tensors"] == 1


def test_a_later_step_of_a_wait_is_interrupted_while_another_thread_is_inside_atomic(session: Session) -> None:
    """The answer has come, and the step that takes it would have to wait for the end of the block."""
    held, ended, entered = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with session.atomic():
            held.set()
            in_time.append(ended.wait(10))

    holder = threading.Thread(target=hold)

    def waiting() -> Steps[None]:
        yield Pause(0.0)
        yield LongWork(begin)
        reached.append("the last step")

    def begin() -> None:
        holder.start()
        held.wait(10)
        entered.set()

    reached: list[str] = []
    in_time: list[bool] = []
    try:
        with interrupted(by_alarm, entered):
            on_thread(session._core.outbox, waiting())
        assert not ended.is_set()
    finally:
        ended.set()
        holder.join()
    assert (reached, in_time) == ([], [True])
    assert (session.asarray([1.0]) + 1).tolist() == [2.0]


def test_closing_is_interrupted_while_another_thread_is_inside_atomic() -> None:
    session = td.connect("local")
    held, ended, begun = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with session.atomic():
            held.set()
            ended.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(10)
        with interrupted(by_alarm, begun):
            begun.set()
            session.close()
        assert not session.closed
    finally:
        ended.set()
        holder.join()
    assert (session.asarray([1.0]) + 1).tolist() == [2.0]
    session.close()
