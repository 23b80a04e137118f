"""Routines and threads, and the leftovers of routines when sessions, daemons and processes end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.outbox.current import CURRENT

from ...behaviours.looking_inside import WAIT
from ...daemon import Daemon


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Do the work in so many threads at once; raises the error of one of them."""
    failed: list[BaseException] = []
    start = threading.Barrier(count, timeout=WAIT)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert not failed, failed


def test_threads_call_one_routine(session):
    f = session.routine(lambda x, n: (x * n).sum())

    def work(number: int) -> None:
        for size in (1, 2, 3, 2, 1):
            x = session.asarray(np.full(size, float(number)))
            assert f(x, size).item() == float(number) * size * size

    in_threads(4, work)
    assert 3 <= f.captures <= 12
    assert len(f._entries) <= 12
    assert session._core.calls.native
    assert session._core.calls.known is session._core.calls._signatures.entries


def test_two_threads_capture_at_the_same_time_in_one_session(session):
    inside = threading.Barrier(2, timeout=WAIT)

    def work(number: int) -> None:
        @session.routine
        def f(x):
            inside.wait()
            y = x * (2.0 + number)
            inside.wait()
            y += x
            return y

        x = session.asarray([1.0])
        assert len(f.program(x).steps) == 2
        assert f(x).tolist() == [3.0 + number]

    in_threads(2, work)


def test_other_threads_work_on_while_one_captures(session):
    entered, leave = threading.Event(), threading.Event()
    x = session.asarray([1.0])
    session.routine(lambda y: y + 1)(x)

    @session.routine
    def slow(y):
        y = y + 1
        entered.set()
        assert leave.wait(WAIT)
        return y * 2

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((slow(x).tolist(), len(slow.program(x).steps))))
    thread.start()
    assert entered.wait(WAIT)
    y = x + 1
    y += x
    assert [y.tolist(), y[0].item(), session.xp.sum(x).item(), session.asarray([5.0]).tolist()] == [
        [3.0],
        3.0,
        1.0,
        [5.0],
    ]
    assert session.stats()["instructions"] > 0
    session.sync()
    leave.set()
    thread.join(WAIT)
    assert found == [([4.0], 2)]


def test_a_fast_path_is_there_again_after_a_capture_that_failed(session):
    f = session.routine(lambda x: x.numpy())
    for _ in range(2):
        with pytest.raises(td.CaptureError):
            f(session.asarray([1.0]))
    assert session._core.calls.known is session._core.calls._signatures.entries
    assert CURRENT.capture is None


def test_ctrl_c_inside_ends_the_capture(session):
    @session.routine
    def f(x):
        y = x + 1
        signal.raise_signal(signal.SIGINT)
        return y

    x = session.asarray([1.0])
    with pytest.raises(KeyboardInterrupt):
        f(x)
    assert CURRENT.capture is None
    assert session._core.calls.known is session._core.calls._signatures.entries
    assert (x + 1).tolist() == [2.0]


@pytest.mark.parametrize("name", ["begin", "end"])
def test_ctrl_c_at_either_end_of_a_capture_leaves_none(session, monkeypatch, name):
    """The interrupt comes in the middle of the step, while the session counts its captures."""
    counted = session._core.calls.__class__.capturing

    def interrupted(calls: Any, more: int) -> None:
        counted(calls, more)
        if more == (1 if name == "begin" else -1):
            signal.raise_signal(signal.SIGINT)

    x = session.asarray([1.0])
    monkeypatch.setattr(session._core.calls.__class__, "capturing", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.routine(lambda x: x + 1)(x)
    monkeypatch.undo()
    assert CURRENT.capture is None
    assert session._core.calls._captures == 0
    assert (x + 1).tolist() == [2.0]


def test_a_handler_that_is_set_inside_does_not_let_ops_past_the_capture(session):
    @session.routine
    def f(x):
        before, session.handler = session.handler, session.handler
        session.handler = before
        return x + 1, x * 2

    x = session.asarray([1.0])
    known = [x + 1, x * 2]
    assert len(known) == 2
    assert [step.op for step in f.program(x).steps] == ["add", "multiply"]


def test_a_routine_inside_an_atomic_block(session):
    f = session.routine(lambda x: (x + session.asarray([1.0])) * 2)
    x = session.asarray([1.0])
    with session.atomic():
        results = [f(x), f(x)]
    assert [each.tolist() for each in results] == [[4.0], [4.0]]


def test_a_closed_session_has_no_routines(make_session):
    s = make_session()
    f = s.routine(lambda x: x + 1)
    x = s.asarray([1.0])
    f(x)
    s.close()
    with pytest.raises(td.ConnectionLost) as caught:
        f(x)
    assert "test_threads_and_ends.py" in (caught.value.location or "")
    with pytest.raises(td.ConnectionLost):
        s.routine(lambda x: x * 2)(x)


def test_routines_after_cancel_and_restart(session):
    f = session.routine(lambda x: x + 1)
    x = session.asarray([1.0])
    f(x)
    x.wait()
    session.cancel()
    with pytest.raises(td.CancelledError):
        f(x).wait()
    session.restart()
    assert f(session.asarray([1.0])).tolist() == [2.0]
    assert f.captures == 1


def test_on_a_daemon_and_after_its_end(tmp_path: Path):
    with Daemon.start(tmp_path, "--device", "cpu:0") as daemon, daemon.connect() as s:
        f = s.routine(lambda x, n: (x * n + s.asarray([1.0]), s.random.uniform((2,)).sum()))
        x = s.asarray([1.0, 2.0])
        s.random.seed(1)
        for n in (1.0, 2.0):
            assert f(x, n)[0].tolist() == [1.0 + n, 1.0 + 2 * n]
        assert f.captures == 1
        daemon.kill()
        with pytest.raises(td.ConnectionLost):
            f(x, 3.0)[0].wait()


def test_a_forked_child_captures_in_a_session_of_its_own(session):
    """The parent's session is of no use in the child; a capture of another thread is none of the child's."""
    entered, leave = threading.Event(), threading.Event()
    f = session.routine(lambda x: x + 1)
    x = session.asarray([1.0])
    f(x)

    @session.routine
    def slow(y):
        entered.set()
        assert leave.wait(WAIT)
        return y + 1

    thread = threading.Thread(target=slow, args=(x,))
    thread.start()
    assert entered.wait(WAIT)
    child = os.fork()
    if not child:
        status = 1
        try:
            f(x)
        except td.ConnectionLost as error:
            status = 3 if "fork" in str(error) else 2
        os._exit(status)
    leave.set()
    thread.join(WAIT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert f(x).tolist() == [2.0]
