"""The embedded machine as a part of its process: forks, the switch interval, and its state after a fault."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.concurrency.interrupts import SHIELD
from tensord.interpreter.concurrency.leader_followers import NEVER
from tensord.interpreter.concurrency.shielded_lock import ShieldedLock
from tensord.vm import machine as module
from tensord.vm.admission.cancellation import HANDLES_PER_STEP
from tensord.vm.failures import Failures
from tensord.vm.log import log
from tensord.vm.machine import VirtualMachine
from tensord.vm.model.directory import Leaving
from tensord.vm.reporting.locations import LocationTexts
from tensord.vm.scheduler.fences import MAX_AHEAD as AHEAD

WAIT = 30.0


# -- forks -------------------------------------------------------------------------------------------------------------


def fork(work: Any) -> int:
    """Run `work` in a forked child that a hang does not keep alive; the exit status, 0 if it returned true."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(WAIT))
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_that_ends_leaves_the_machines_of_its_parent_alone(session, machine_of):
    """Another thread drives at the fork, so the child could wait for the lock for ever."""
    holds, let_go = threading.Event(), threading.Event()

    def drive() -> None:
        with machine_of(session).lock:
            holds.set()
            let_go.wait(WAIT)

    thread = threading.Thread(target=drive)
    thread.start()
    assert holds.wait(WAIT)

    def end() -> bool:
        module.close_machines()  # as at the interpreter's exit
        return True

    assert fork(end) == 0
    let_go.set()
    thread.join(WAIT)
    assert (session.asarray([1.0]) + 1.0).tolist() == [2.0]


def test_a_forked_child_can_have_a_machine_of_its_own(session):
    def work() -> bool:
        with td.connect("local", devices=["cpu:0", "sim:0"]) as mine:
            x = mine.asarray([1.0], device="sim:0")
            return bool((x @ x).item() == 1.0)

    assert fork(work) == 0
    assert not session.closed


def test_a_child_forked_by_another_thread_is_behind_no_shield(session):
    """The main thread is in a shielded region at the fork; the child has only the forking thread."""
    statuses: list[int] = []

    def interrupted() -> bool:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return True
        return False

    thread = threading.Thread(target=lambda: statuses.append(fork(interrupted)))
    with SHIELD:
        thread.start()
        thread.join(WAIT)
    assert statuses == [0]
    assert not session.closed


# -- the switch interval -----------------------------------------------------------------------------------------------


def test_machines_closed_in_any_order_give_the_switch_interval_back():
    before = sys.getswitchinterval()
    a, b = td.connect("local", devices=["cpu:0"]), td.connect("local", devices=["cpu:0"])
    a.close()
    assert sys.getswitchinterval() < before
    b.close()
    assert sys.getswitchinterval() == before


# -- a fault of the engine ---------------------------------------------------------------------------------------------


@pytest.fixture
def breakable():
    """breakable(machine) -> from now on an exception escapes from its engine when a "sync" ends."""

    def make(machine: VirtualMachine) -> None:
        ring = machine.engine.ring
        append = ring.append

        def broken(entry: tuple[Any, ...]) -> None:
            if entry[3] == "sync":
                raise RuntimeError("made by the test")
            append(entry)

        ring.append = broken

    return make


def test_after_a_fault_of_the_engine_everybody_is_told_and_nothing_is_taken(make_session, breakable, caplog):
    slow = {"name": "sim:0", "compute_delay": WAIT}
    session = make_session("local:faulty", devices=["cpu:0", slow], expect_empty=False)
    other = td.connect("local:faulty")
    x = session.asarray(np.ones(4), device="sim:0")
    y = x + 1.0
    told: list[td.TensordError] = []

    def wait() -> None:
        try:
            y.wait(WAIT)
        except td.ConnectionLost as error:
            told.append(error)

    async def await_it() -> None:
        try:
            await y
        except td.ConnectionLost as error:
            told.append(error)

    threads = [threading.Thread(target=wait), threading.Thread(target=asyncio.run, args=(await_it(),))]
    machine = session._core.transport.machine
    for thread in threads:
        thread.start()
    while len(session._core.transport._replies.open) < len(threads):  # both have asked
        threading.Event().wait(0.001)
    breakable(machine)
    with pytest.raises(td.ConnectionLost, match="after a fault of its own: RuntimeError: made by the test"):
        other.sync()
    for thread in threads:
        thread.join(WAIT)
    assert ["made by the test" in str(error) for error in told] == [True, True]
    assert machine.engine.fault is not None
    assert "the virtual machine has a fault" in caplog.text
    for use in (lambda: other.asarray([1.0]).wait(), other.stats, session.sync, session.cancel):
        with pytest.raises(td.ConnectionLost):
            use()
    assert session.closed
    session.close()
    other.close()


def test_a_cancellation_that_fails_in_a_callback_ends_the_machine(make_session, caplog):
    session = make_session("local:cancels", devices=["cpu:0"], expect_empty=False)
    machine = session._core.transport.machine

    def cancel() -> None:
        session._core.transport._session.live[0] = None  # an invalid instruction
        with suppress(AttributeError, TypeError):
            session.cancel()

    session.effect(cancel)
    with pytest.raises(td.ConnectionLost, match=r"after a fault of its own: (AttributeError|TypeError)"):
        session.sync()
    assert machine.closed
    assert "the virtual machine has a fault" in caplog.text
    with pytest.raises(td.ConnectionLost):
        session.sync()


def test_a_thread_that_waited_for_the_lock_while_another_met_a_fault_leaves_the_engine_alone(make_session, monkeypatch):
    machine, passes = make_session()._core.transport.machine, []

    class LateLock(ShieldedLock):
        def __enter__(self) -> None:
            super().__enter__()
            machine.fault = td.ConnectionLost("made by the test")

    with monkeypatch.context() as patch:
        patch.setattr(machine, "fault", None)
        patch.setattr(machine, "lock", LateLock())
        patch.setattr(machine, "engine", SimpleNamespace(schedule=lambda: passes.append(1), finished=()))
        machine.drive()
    assert not passes


def test_a_question_that_fails_is_no_fault_of_the_engine(session, machine_of, monkeypatch, caplog):
    monkeypatch.setattr(machine_of(session).about, "errors", lambda: 1 // 0)
    with pytest.raises(td.ProtocolError, match=r"could not answer 'stats': ZeroDivisionError.*its log says more"):
        session.stats()
    assert "Traceback" in caplog.text
    assert session.asarray([1.0]).tolist() == [1.0]


# -- beside the engine -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [False, True])
def test_failures_are_looked_at_under_the_lock_whichever_thread_looks(session, machine_of, monkeypatch, end):
    """The background thread reads them while other threads add some, or take those of a session that ends."""
    machine = machine_of(session)
    owners: list[bool] = []

    def due(_: Failures) -> list[Any]:
        owners.append(machine.lock.owner == threading.get_ident())
        return []

    monkeypatch.setattr(Failures, "close" if end else "due", due)
    if end:
        session.close()
        machine.close()
    else:
        machine.watch()
    assert owners
    assert all(owners)


def test_what_finishes_while_failures_are_looked_at_is_noticed(session, machine_of, monkeypatch):
    """A stream wakes no thread while the lock is held."""
    machine = machine_of(session)
    finished = machine.engine.finished
    driven: list[int] = []

    def drive() -> None:
        driven.append(len(finished))
        finished.clear()

    with monkeypatch.context() as patch:
        patch.setattr(machine, "drive", drive)
        patch.setattr(Failures, "due", lambda _: machine.sink([None]) or [])
        machine.watch()
    assert 1 in driven


def test_bookkeeping_that_fails_is_no_fault_of_the_engine(make_session, monkeypatch, caplog):
    session = make_session("local:books", devices=["cpu:0"])
    other = td.connect("local:books")

    def broken(*_: Any) -> None:
        raise RuntimeError("made by the test")

    monkeypatch.setattr(LocationTexts, "ended", broken)
    other.close()
    assert "bookkeeping has failed" in caplog.text
    assert (session.asarray([1.0]) + 1.0).tolist() == [2.0]


def test_a_log_that_fails_at_the_end_of_a_session_is_no_fault_of_the_engine(make_session, monkeypatch):
    session = make_session("local:logs", devices=["cpu:0"])
    other = td.connect("local:logs")
    other.xp.linalg.inv(other.asarray(np.zeros((2, 2))))
    other.sync()

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(log, "warning", broken, raising=False)
    other.close()
    assert (session.asarray([1.0]) + 1.0).tolist() == [2.0]


# -- a large session ends ----------------------------------------------------------------------------------------------


def test_a_thread_that_ends_a_large_session_leaves_most_of_it_to_the_background(make_session, machine_of):
    """So threads that wait for the lock have their turns between two pieces; only the background has to go on."""
    stays, goes = (make_session("local:large") for _ in range(2))
    x = stays.asarray([1.0])
    machine, tensors = machine_of(stays), 10 * HANDLES_PER_STEP
    kept = [goes.asarray([1.0]) for _ in range(tensors)]
    goes.sync()
    holds, let_go = threading.Event(), threading.Event()

    def hold_up() -> None:
        holds.set()
        let_go.wait(WAIT)

    machine.chores.append(hold_up)
    machine.background.ring()
    assert holds.wait(WAIT)
    leaving = machine.engine.directory.leaving
    try:
        goes.close()
        (gone,) = leaving
        assert tensors // 2 < len(gone.tensors) < tensors
        assert (x + x).tolist() == [2.0]
        assert leaving
    finally:
        let_go.set()
    machine.wait_until(lambda: not leaving, WAIT)
    assert not leaving
    assert len(kept) == tensors


def test_a_thread_that_wants_one_value_does_not_work_off_what_another_session_is_ahead_of_its_device(
    make_session, machine_of, monkeypatch
):
    ahead, wants = (
        make_session("local:ahead", devices=["cpu:0", {"name": "sim:0", "launches": True}]) for _ in range(2)
    )
    machine = machine_of(wants)
    x, y = (session.asarray([1.0], device="sim:0") for session in (ahead, wants))
    assert [(each + each).tolist() for each in (x, y)] == [[2.0], [2.0]]  # the kernel is warm
    monkeypatch.setattr(machine, "await_credit", lambda _session: None)
    monkeypatch.setattr(machine.background, "ring", lambda: None)
    monkeypatch.setattr(module, "PIECE", 0.0)
    kept = [x + x for _ in range(20 * AHEAD)]
    ahead.flush()
    (identity,) = (each.id for each in machine.engine.held)
    monkeypatch.setattr(module, "PIECE", WAIT)
    before = machine.engine.waiting()[identity]
    assert (y + y).tolist() == [2.0]
    assert machine.engine.waiting()[identity] > before // 2 > 0
    monkeypatch.undo()
    ahead.sync()
    assert len(kept) == 20 * AHEAD


def test_a_thread_to_which_another_one_leaves_a_run_carries_it_on_or_hands_it_on(session, machine_of, monkeypatch):
    """The other thread relies on the thread that waits for the lock, the leader or a thread that does not drive."""
    machine, done = machine_of(session), []
    monkeypatch.setattr(machine, "drive", lambda: done.append("drives"))
    monkeypatch.setattr(machine, "hand_on", lambda: done.append("hands on"))
    monkeypatch.setattr(type(machine.engine), "in_run", lambda _self: True)
    monkeypatch.setattr(type(machine.engine), "unwatched", property(lambda _self: not done))
    machine.look(NEVER)
    with machine.locked():
        pass
    monkeypatch.undo()
    assert done == ["drives", "hands on"]


def test_a_wait_drives_what_is_pending_and_takes_no_lock_for_nothing(session, machine_of, monkeypatch):
    machine, locked = machine_of(session), []
    session.sync()
    machine.background.stop()  # it drives, too
    machine.background.join(WAIT)
    drive = machine.drive

    def noted() -> None:
        locked.append(True)
        drive()

    monkeypatch.setattr(machine, "drive", noted)
    assert not machine.wait_until(lambda: False, 0)
    assert locked == []
    machine.engine.receive(session._core.transport._session, [])
    assert not machine.wait_until(lambda: False, 0)
    assert locked == [True]
    assert not machine.engine.pending


def test_between_two_pieces_the_background_gives_way_to_whoever_waits(make_session, machine_of):
    """Otherwise it would take the lock again before the waiting threads wake, while handles remain to be released."""
    _stays, goes = (make_session("local:large") for _ in range(2))
    machine, steps = machine_of(goes), []

    class Watched(ShieldedLock):
        def __enter__(self) -> None:
            if threading.current_thread() is machine.background.thread:
                steps.append("enters")
            super().__enter__()

        def give_way(self, patience: float = 0.0) -> None:
            if threading.current_thread() is machine.background.thread:
                steps.append("gives way")
            super().give_way(patience)

    kept = [goes.asarray([1.0]) for _ in range(10 * HANDLES_PER_STEP)]
    goes.sync()
    machine.lock = Watched()
    goes.close()
    machine.wait_until(lambda: not machine.engine.directory.leaving, WAIT)
    assert steps.count("enters") > 1
    assert all("gives way" in pair for pair in pairwise(steps))
    assert len(kept) == 10 * HANDLES_PER_STEP


def test_a_machine_that_ends_releases_all_that_its_sessions_held(make_session, machine_of):
    session = make_session()
    kept = [session.asarray([1.0]) for _ in range(5 * HANDLES_PER_STEP)]
    machine = machine_of(session)
    session.sync()
    session.close()
    assert machine.closed
    assert machine.devices["cpu:0"].allocated == 0
    assert len(kept) == 5 * HANDLES_PER_STEP


def test_a_machine_with_a_fault_ends_although_handles_are_left(make_session, machine_of):
    session = make_session(expect_empty=False)
    kept = [session.asarray([1.0]) for _ in range(HANDLES_PER_STEP)]
    session.sync()
    machine = machine_of(session)
    with machine.locked():
        engine_session = next(iter(machine.engine.directory.sessions.values()))
        machine.fault = td.ConnectionLost("a fault")
        machine.engine.directory.leaving.append(Leaving(engine_session, engine_session.tensors))
    machine.close()
    assert machine.closed
    assert len(kept) == HANDLES_PER_STEP
