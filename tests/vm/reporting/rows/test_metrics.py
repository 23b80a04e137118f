"""Metrics: each event is counted once, and a reading visits no instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

from tensord import Session
from tensord.interpreter.errors import KernelError
from tensord.interpreter.metrics.family import Figures
from tensord.interpreter.metrics.table import FAMILIES
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.machine import VirtualMachine
from tensord.vm.reporting.invariants import violations


def figures(session: Session) -> Figures:
    machine, *sessions = session._core.answers.query("metrics")
    return Figures(machine, sessions)


def value(figures: Figures, name: str, *labels: str) -> Any:
    (family,) = [one for one in FAMILIES if one.name == name]
    return family.samples(figures).get(labels)


def done(session: Session, op: str, status: str = "done") -> int:
    return value(figures(session), "tensord_instructions_total", op, status) or 0


@pytest.fixture
def machine(session: Session, machine_of: Callable[[Session], VirtualMachine]) -> VirtualMachine:
    return machine_of(session)


def test_ops_are_counted_whichever_way_they_run(make_session: Callable[..., Session]) -> None:
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray(np.ones(8))
    for _ in range(5):
        x = x + 1
    session.call("unique_values", [x])[0].numpy()  # its size depends on data, so that it has to be scheduled
    assert (done(session, "add"), done(session, "unique_values")) == (5, 1)
    assert value(figures(session), "tensord_instruction_run_seconds", "add") is None
    assert value(figures(session), "tensord_instruction_run_seconds", "unique_values").buckets[-1] == 1
    assert value(figures(session), "tensord_instruction_delay_seconds").buckets[-1] >= 1


def test_runs_of_routines_are_counted_under_one_name(session: Session) -> None:
    def step(x: Any) -> Any:
        return (x + 1) * 2 - x

    routine = session.routine(step)

    x = session.asarray(np.ones(8))
    for _ in range(6):
        x = routine(x)
    x.numpy()
    assert done(session, "RunRoutine") >= 1
    assert not [key for key in figures(session).machine["tally"]["done"] if "step" in key[0]]


def test_failures_and_what_they_take_with_them_are_counted_by_status(session: Session, machine: VirtualMachine) -> None:
    x = session.asarray([1.0])
    fault: Any = machine.devices["cpu:0"]
    fault.inject(Fault(FaultKind.FAIL, label="negative"))
    y = -x
    with pytest.raises(KernelError):
        (y + 1).numpy()
    session.sync()  # the error overtakes an op that its stream still skips
    assert (done(session, "negative", "failed"), done(session, "add", "skipped")) == (1, 1)
    assert value(figures(session), "tensord_errors_total", "KernelError") == 1
    assert violations(machine.engine) == []


def test_memory_transfers_and_sessions_are_told(make_session: Callable[..., Session]) -> None:
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray(np.ones(1000))
    y = x.to_device("sim:0") + 1
    session.sync()
    now = figures(session)
    assert value(now, "tensord_transfer_bytes_total", "sim:0", "h2d") == 8000
    assert value(now, "tensord_device_used_bytes", "sim:0") >= 8000
    assert value(now, "tensord_device_lost", "sim:0") == 0
    assert value(now, "tensord_tensors") == 2
    (row,) = now.sessions
    assert (row["bytes"], row["tensors"], row["errors"]) == (16_000, 2, 0)
    del y


def test_an_answer_is_made_of_what_msgpack_has_and_changes_nothing(session: Session, machine: VirtualMachine) -> None:
    session.publish("x", session.asarray(np.ones(10)))
    session.sync()
    before = (machine.engine.scheduler.ids, machine.engine.scheduler.tick)
    now = session._core.answers.query("metrics")
    assert msgpack.unpackb(msgpack.packb(now), strict_map_key=True) is not None
    assert (machine.engine.scheduler.ids, machine.engine.scheduler.tick) == before


def test_a_session_that_is_a_look_has_no_row(session: Session, machine: VirtualMachine) -> None:
    machine.about.looks = lambda _session: True
    assert figures(session).sessions == []
    assert value(figures(session), "tensord_sessions") == 0
