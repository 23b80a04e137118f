"""Ops that are launched at admission on a sim device: who waits for them, and how, faults and lost devices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.streams.faults import Fault, FaultKind
from tensord.streams.launching.launcher import Launcher
from tensord.streams.sim.launching_sim import LaunchingSimDevice
from tensord.vm.scheduler.fences import MOST, OFTEN

from .looking_inside import WAIT, assert_sound, device_of, held, machine_of, until

DEVICES: list[Any] = ["cpu:0", {"name": "sim:0", "memory": "64MiB", "launches": True}]
ONES = np.ones(1024)


@pytest.fixture
def session() -> Iterator[Any]:
    with td.connect("local", devices=DEVICES) as opened:
        warm(opened)
        yield opened


def warm(session: Any) -> None:
    """The first call of each op takes the long way, as where kernels are compiled."""
    x = put(session)
    for _ in range(2):
        y = x + x
        y += x
        y = y * 2.0
        y.numpy()


def put(session: Any, value: float = 1.0) -> Any:
    """A tensor that is there."""
    return session.asarray(ONES * value, device="sim:0").wait()


def launches(session: Any) -> list[Any]:
    """The records of what was launched at admission."""
    return [one for one in session.trace().records if one.launch and one.opcode == Opcode.CALL]


def test_the_first_call_of_an_op_takes_the_long_way_and_later_ones_are_launched() -> None:
    with td.connect("local", devices=DEVICES) as session:
        x = put(session)
        for _ in range(4):
            (x + x).numpy()
        adds = [one for one in session.trace().records if one.op == "add"]
        assert [one.launch > 0 for one in adds] == [False, False, True, True]  # the second finds that they are warm now


def test_a_chain_is_launched_without_the_launcher_and_has_few_fences(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = one = put(session)
    session.sync()
    handed: list[Any] = []
    monkeypatch.setattr(Launcher, "submit", lambda *given: handed.append(given))
    before = len(launches(session))
    for _ in range(2000):
        x = x + one
    assert not handed
    monkeypatch.undo()
    assert x.numpy()[0] == 2001
    assert len(launches(session)) == before + 2000
    assert sum(record.opcode == Opcode.FENCE for record in session.trace().records) <= 0.02 * 2000
    assert_sound(session)


def test_a_wait_and_a_sync_end_when_the_device_has_got_there(session: Any) -> None:
    x = put(session)
    over: list[str] = []

    def wait_by(wait: Any, name: str) -> None:
        wait()
        over.append(name)

    with held(session, "sim:0", "compute"):
        y = x + x
        session.flush()
        threads = [threading.Thread(target=wait_by, args=each) for each in ((session.sync, "sync"), (y.wait, "wait"))]
        for thread in threads:
            thread.start()
        until(session, lambda: len(machine_of(session).engine.live) >= 2)
        assert not over
    for thread in threads:
        thread.join(WAIT)
    assert sorted(over) == ["sync", "wait"]


def test_a_value_is_ready_once_the_device_has_got_there(session: Any) -> None:
    x = put(session)
    with held(session, "sim:0", "compute"):
        y = x + x
        assert not any(y.is_ready() for _ in range(20))
    until(session, y.is_ready)


def test_an_upload_into_memory_that_a_launch_reads_comes_behind_it(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is other memory, but the upload does not look for it, as where there is none."""
    monkeypatch.setattr(LaunchingSimDevice, "prefer_reached", lambda *_: None)
    x = put(session, 3.0)
    session.sync()
    with held(session, "sim:0", "compute"):
        y = x + x
        del x  # its memory is free for launches that follow, and behind them for others
        session.flush()
        uploads = [session.asarray(ONES * 7.0, device="sim:0") for _ in range(3)]
        session.flush()
    np.testing.assert_array_equal(y.numpy(), ONES * 6.0)
    assert all((one.numpy() == 7.0).all() for one in uploads)
    assert any(edge.reason == "memory" for record in session.trace().records for edge in record.edges)
    assert_sound(session)


def test_what_the_next_call_of_an_op_gets_is_not_seen_by_the_one_before(session: Any) -> None:
    """The array of a number is filled anew by each call: not before an earlier one is computed."""
    x = put(session)
    with held(session, "sim:0", "compute"):
        found = [x * number for number in (3.0, 5.0, 7.0)]
        session.flush()
    assert [each.numpy()[0] for each in found] == [3.0, 5.0, 7.0]


def test_a_copy_to_another_device_comes_behind_the_launch_that_makes_the_value(session: Any) -> None:
    x = put(session)
    with held(session, "sim:0", "compute"):
        y = (x + x).to_device("cpu:0") * 2.0
        session.flush()
    np.testing.assert_array_equal(y.numpy(), ONES * 4.0)
    records = {one.id: one for one in session.trace().records}
    moved = max(id_ for id_, one in records.items() if one.opcode == Opcode.TRANSFER)
    assert [records[edge.source].opcode for edge in records[moved].edges] == [Opcode.FENCE]


def test_who_launches_too_far_ahead_waits(session: Any) -> None:
    x = one = put(session)
    session.sync()
    order = device_of(session, "sim:0").order
    done = threading.Event()

    def run() -> None:
        y = x
        for _ in range(4 * MOST):
            y = y + one
        assert y.numpy()[0] == 1 + 4 * MOST
        done.set()

    thread = threading.Thread(target=run)
    with held(session, "sim:0", "compute"):
        thread.start()
        until(session, lambda: order.issued - order.reached >= MOST)
        assert not done.wait(0.1)
        assert order.issued - order.reached <= MOST + OFTEN
    thread.join(2 * WAIT)
    assert done.is_set()


def test_a_kernel_that_raises_late_loses_the_device_for_what_depends_on_it_alone(session: Any) -> None:
    x, there = put(session), session.asarray(ONES, device="cpu:0")
    session.sync()
    device_of(session, "sim:0").inject(Fault(FaultKind.LATE, label="add"))
    y = x + x
    z = y.to_device("cpu:0")
    for lost in (y, z, x + x):
        with pytest.raises(KernelError, match="sim:0 is lost, with or before add"):
            lost.numpy()
    np.testing.assert_array_equal((there + 1.0).numpy(), ONES * 2.0)
    session.sync()
    assert session.trace().verify() == []


def test_a_fault_of_a_launch_fails_that_op_alone(session: Any) -> None:
    x = put(session)
    device_of(session, "sim:0").inject(Fault(FaultKind.FAIL, label="add", nth=2))
    first, second, third = x + x, x + x, x + x
    with pytest.raises(KernelError, match=r"add failed on sim:0 \(injected\)"):
        second.numpy()
    assert first.numpy()[0] == third.numpy()[0] == 2.0
    assert_sound(session)


def test_an_op_that_may_raise_fails_alone(session: Any) -> None:
    """Its launch waits for what is before it, and looks at the values."""
    x = session.asarray(np.arange(4), device="sim:0")
    with pytest.raises(KernelError, match="power"):
        (x ** (x - 2)).numpy()
    np.testing.assert_array_equal((x + x).numpy(), [0, 2, 4, 6])
    assert_sound(session)


def test_a_launch_that_hangs_ends_once_it_is_released(session: Any) -> None:
    x = put(session)
    device = device_of(session, "sim:0")
    device.inject(Fault(FaultKind.HANG, label="multiply"))
    y = x * 2.0
    session.flush()
    assert not y.is_ready()
    device.release_hangs()
    assert y.numpy()[0] == 2.0


def test_a_session_that_ends_leaves_its_launches_to_the_device() -> None:
    with td.connect("local", devices=DEVICES) as one:
        warm(one)
        x = put(one)
        device_of(one, "sim:0").hold("compute")
        y = x + x
        one.flush()
        device_of(one, "sim:0").resume("compute")
        del y
