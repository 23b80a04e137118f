"""Waiting: from several threads, in asyncio, with Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tensord as td

from ...behaviours.looking_inside import WAIT, assert_sound, device_of, held, machine_of, ones
from ...behaviours.made_ops import make_op, raising
from ...each_case import each_case


def test_several_threads_use_one_session(session):
    """Each thread sees its own program order; all of them wait for each other's device."""
    x = session.asarray(np.zeros(4))
    results: dict[int, Any] = {}
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        start.wait(WAIT)
        y = x + float(seed)
        for n in range(300):
            y += 1.0
            if n % 50 == 0:
                y.wait(WAIT)
        results[seed] = y.numpy()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert {seed: array[0] for seed, array in results.items()} == {seed: 300.0 + seed for seed in range(4)}
    assert_sound(session)


def test_several_threads_wait_for_one_result_and_all_are_told(session):
    x = session.asarray(ones(4))
    session.sync()
    told: list[Any] = []
    with held(session, "cpu:0", "compute"):
        y = x + x
        threads = [threading.Thread(target=lambda: told.append(y.numpy()[0])) for _ in range(6)]
        for thread in threads:
            thread.start()
        machine = machine_of(session)
        assert machine.wait_until(lambda: len(session._core.transport._replies.open) == 6, WAIT)
    for thread in threads:
        thread.join(WAIT)
    assert told == [2.0] * 6
    assert machine.waiting.followers == []
    assert machine.waiting.leader is None
    assert_sound(session)


def test_a_waiter_with_a_timeout_leaves_the_others_waiting(session):
    x = session.asarray(ones(4))
    session.sync()
    told: list[Any] = []
    device = device_of(session, "cpu:0")
    device.hold("compute")
    y = x + x
    thread = threading.Thread(target=lambda: told.append(y.numpy()[0]))
    thread.start()
    assert machine_of(session).wait_until(lambda: len(session._core.transport._replies.open) == 1, WAIT)
    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        y.wait(0.01)
    device.resume("compute")
    thread.join(WAIT)
    assert told == [2.0]


def test_await_several_at_once(sim_session, monkeypatch):
    make_op(monkeypatch, "boom", raising)
    s = sim_session
    x = s.asarray(ones(4), device="sim:0")
    s.sync()

    async def main() -> None:
        gate = device_of(s, "sim:0")
        gate.hold("compute")
        tensors = [x + float(n) for n in range(20)]
        bad = s.call("boom", [x])[0]
        waits = [asyncio.ensure_future(wait_for(t)) for t in (*tensors, bad)]
        await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        gate.resume("compute")
        results = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), WAIT)
        assert results[:20] == tensors or all(a is b for a, b in zip(results, tensors, strict=False))
        assert isinstance(results[20], td.KernelError)
        assert await tensors[0] is tensors[0]

    async def wait_for(tensor: Any) -> Any:
        return await tensor

    asyncio.run(main())
    assert_sound(s)


def test_a_cancelled_await_and_a_closed_loop_harm_nothing(session):
    x = session.asarray(ones(4))
    session.sync()
    device = device_of(session, "cpu:0")
    device.hold("compute")
    y = x + x

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait_for(y), 0.01)
        task = asyncio.ensure_future(wait_for(y))
        await asyncio.sleep(0)
        task.cancel()

    async def wait_for(tensor: Any) -> Any:
        return await tensor

    asyncio.run(main())
    device.resume("compute")
    np.testing.assert_array_equal(y.numpy(), ones(4, value=2))
    assert_sound(session)


@each_case("wait", ["numpy", "sync", "shape", "credit"])
def test_ctrl_c_in_a_wait_leaves_the_session_usable(session, wait):
    """The signal comes while the main thread waits for a stream that stands still."""
    x = session.asarray([3, 1, 3])
    session.sync()
    device = device_of(session, "cpu:0")
    device.hold("compute")
    y = session.call("unique_values", [x])[0]
    machine = machine_of(session)
    never = threading.Event()

    def interrupt() -> None:
        while machine.waiting.leader is None:  # until it sleeps
            never.wait(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        wait_somehow(session, y, wait, machine)
    thread.join(WAIT)
    assert machine.waiting.leader is None
    assert not machine.waiting.role.locked()
    assert not machine.lock.owner
    device.resume("compute")
    np.testing.assert_array_equal(y.numpy(), [1, 3])
    np.testing.assert_array_equal((y + 1).numpy(), [2, 4])
    assert_sound(session)


def wait_somehow(session: Any, tensor: Any, how: str, machine: Any) -> None:
    if how == "numpy":
        tensor.numpy()
    elif how == "sync":
        session.sync()
    elif how == "shape":
        _ = tensor.shape
    else:
        machine.wait_until(lambda: False)


def test_a_signal_handler_may_wait_on_the_thread_that_waits(session):
    """The handler's wait is on top of the main one, which goes on afterwards."""
    x = session.asarray([3, 1, 3])
    session.sync()
    device = device_of(session, "cpu:0")
    device.hold("compute")
    y = session.call("unique_values", [x])[0]
    z = session.call("unique_values", [y])[0]
    machine = machine_of(session)
    told: list[Any] = []
    never = threading.Event()

    def handle(*_: object) -> None:
        device.resume("compute")
        told.append(z.numpy().tolist())

    def interrupt() -> None:
        while machine.waiting.leader is None:  # until it sleeps
            never.wait(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        np.testing.assert_array_equal(y.numpy(), [1, 3])
    finally:
        thread.join(WAIT)
        signal.signal(signal.SIGUSR1, before)
    assert told == [[1, 3]]
    assert_sound(session)


def test_a_callback_that_interrupts_is_an_error_of_its_own(session):
    """An error that a callback raises is its own failure; the chain reports it."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    session.effect(interrupt)
    with pytest.raises(td.KernelError, match="KeyboardInterrupt"):
        session.check_chain()
    np.testing.assert_array_equal((session.asarray([1]) + 1).numpy(), [2])


def test_fetch_takes_tensors_from_a_generator_that_waits_for_another_threads_ops(session):
    x = session.asarray([1.0])

    def tensors(pool):
        for factor in (2.0, 3.0):
            yield pool.submit(lambda factor=factor: x * factor).result(timeout=20)

    with ThreadPoolExecutor(1) as pool:
        assert [value.tolist() for value in session.fetch(tensors(pool))] == [[2.0], [3.0]]
