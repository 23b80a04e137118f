"""Ops that are launched at admission on a sim device: faults and lost devices. Behaviour shared with GPUs is in
test_launches.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.streams.faults import Fault, FaultKind
from tensord.streams.launching.launcher import Launcher

from .looking_inside import assert_sound, device_of, held

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
    """A tensor whose value has been computed."""
    return session.asarray(ONES * value, device="sim:0").wait()


def launches(session: Any) -> list[Any]:
    """The records of ops that were launched at admission."""
    return [one for one in session.trace().records if one.launch and one.opcode == Opcode.CALL]


def test_the_first_call_of_an_op_takes_the_long_way_and_later_ones_are_launched() -> None:
    with td.connect("local", devices=DEVICES) as session:
        x = put(session)
        for _ in range(4):
            (x + x).numpy()
        adds = [one for one in session.trace().records if one.op == "add"]
        assert [one.launch > 0 for one in adds] == [False, False, True, True]  # the second finds that they are warm now


@pytest.mark.parametrize("detail", [1, 3])
def test_detail_has_fences_behind_single_launches(detail: int) -> None:
    with td.connect("local", devices=DEVICES, detail=detail) as session:
        warm(session)
        x = put(session)
        session.sync()
        before = len(session.trace().records)
        for _ in range(12):
            x = x + x
        session.sync()
        records = session.trace().records[before:]
        fenced = {one.launch for one in records if one.opcode == Opcode.FENCE}
        numbers = [one.launch for one in records if one.launch and one.opcode == Opcode.CALL]
        assert len(numbers) == 12
        assert 12 // detail <= sum(number in fenced for number in numbers) <= 12 // detail + 1  # and where sync waits


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


def test_what_the_next_call_of_an_op_gets_is_not_seen_by_the_one_before(session: Any) -> None:
    """The array of a number is filled anew by each call, but not before an earlier call is computed."""
    x = put(session)
    with held(session, "sim:0", "compute"):
        found = [x * number for number in (3.0, 5.0, 7.0)]
        session.flush()
    assert [each.numpy()[0] for each in found] == [3.0, 5.0, 7.0]


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
    """Its launch waits for the instructions before it, and looks at the values."""
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
