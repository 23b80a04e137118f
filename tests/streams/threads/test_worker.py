"""Streams with a thread: order, batches, wake-up, reporting, closing."""

import gc
import threading
import weakref
from functools import partial

import numpy as np
import pytest

from ..conftest import WAIT, FakeTask

DEVICES = pytest.mark.parametrize("name", ["cpu:0", "sim:0"])


@DEVICES
def test_tasks_execute_and_are_reported_in_order(open_device, reports, name):
    stream = open_device(name).compute[0]
    ran: list[int] = []
    tasks = [FakeTask(i, partial(ran.append, i)) for i in range(1000)]
    for start in range(0, 1000, 64):
        stream.submit(tasks[start : start + 64])
    assert reports.wait(1000) == ran == list(range(1000))
    assert all(0 < task.started <= task.finished for task in tasks)


def test_a_sleeping_stream_wakes_for_each_batch(open_device, reports):
    stream = open_device("cpu:0").compute[0]
    for i in range(50):
        stream.submit([FakeTask(i)])
        reports.wait(i + 1)
    assert reports.ids == list(range(50))


def test_a_chain_of_quick_tasks_is_not_reported_one_by_one(open_device, reports):
    device = open_device("cpu:0")
    device.hold("compute")
    device.compute[0].submit([FakeTask(i) for i in range(1000)])
    device.resume("compute")
    reports.wait(1000)
    assert len(reports.lists) < 500


def test_what_is_done_is_reported_before_a_task_that_may_be_slow(open_device, reports):
    stream = open_device("cpu:0").compute[0]
    release = threading.Event()
    slow = FakeTask(1, lambda: release.wait(WAIT), quick=False)
    stream.submit([FakeTask(0), slow, FakeTask(2)])
    assert reports.wait(1) == [0]
    release.set()
    assert reports.wait(3) == [0, 1, 2]


def test_running_names_the_task_and_since_when(open_device, reports):
    stream = open_device("cpu:0").compute[0]
    started, release = threading.Event(), threading.Event()

    def body():
        started.set()
        release.wait(WAIT)

    task = FakeTask(0, body)
    assert stream.running() is None
    stream.submit([task])
    started.wait(WAIT)
    assert stream.running() == (task, task.started)
    release.set()
    reports.wait(1)
    assert stream.running() is None


def test_a_task_that_raises_fails_and_the_next_one_runs(open_device, reports):
    stream = open_device("cpu:0").compute[0]
    broken, after = FakeTask(0, lambda: 1 // 0), FakeTask(1)
    stream.submit([broken, after])
    reports.wait(2)
    assert isinstance(broken.error, ZeroDivisionError)
    assert after.executed


def test_kernels_do_not_warn(open_device, reports):
    stream = open_device("cpu:0").compute[0]
    task = FakeTask(0, lambda: np.ones(3) / np.zeros(3))
    stream.submit([task])
    reports.wait(1)
    assert task.error is None


def test_an_idle_stream_keeps_no_task_alive(open_device, reports):
    stream = open_device("cpu:0").compute[0]
    task = FakeTask(0)
    gone = weakref.ref(task)
    stream.submit([task])
    reports.wait(1)
    stream.submit([FakeTask(1)])  # the thread has left the first batch once it reports the second
    reports.wait(2)
    del task
    gc.collect()
    assert gone() is None


def test_hold_stops_before_the_next_task_and_forbids_inline(open_device, reports):
    device = open_device("cpu:0", workers=2)
    held, free = device.compute
    device.hold("compute0")
    task = FakeTask(0)
    held.submit([task])
    free.submit([FakeTask(1)])
    assert reports.wait(1) == [1]
    assert not task.executed
    assert (held.inline, free.inline) == (False, True)
    device.resume("cpu:0/compute0")
    assert reports.wait(2) == [1, 0]
    assert held.inline


def test_holding_an_unknown_stream_is_an_error(open_device):
    with pytest.raises(ValueError, match="no stream 'h2d7'"):
        open_device().hold("h2d7")


@DEVICES
def test_close_finishes_what_is_queued(open_device, reports, name):
    device = open_device(name)
    device.hold("compute")
    device.compute[0].submit([FakeTask(i) for i in range(100)])
    assert device.close(WAIT)
    assert reports.ids == list(range(100))


def test_close_is_idempotent_and_ends_submitting(open_device):
    stream = open_device().compute[0]
    assert stream.close(WAIT)
    assert stream.close(WAIT)
    with pytest.raises(RuntimeError, match="closed"):
        stream.submit([FakeTask(0)])


def test_close_gives_up_on_a_kernel_that_hangs_and_nothing_runs_after_it(open_device, reports):
    device = open_device("cpu:0")
    release, started = threading.Event(), threading.Event()

    def body():
        started.set()
        release.wait(WAIT)

    after = FakeTask(1)
    device.compute[0].submit([FakeTask(0, body), after])
    started.wait(WAIT)
    assert not device.close(0.01)
    release.set()
    assert reports.wait(2) == [0, 1]
    assert not after.executed
    assert "closed" in str(after.error)


def test_streams_run_side_by_side(open_device, reports):
    one, two = open_device("cpu:0", workers=2).compute
    meeting = threading.Barrier(2)
    tasks = [FakeTask(i, lambda: meeting.wait(WAIT)) for i in range(2)]
    one.submit([tasks[0]])
    two.submit([tasks[1]])
    reports.wait(2)
    assert [task.error for task in tasks] == [None, None]


# -- the last resort ---------------------------------------------------------------------------------------------------


@DEVICES
def test_an_error_outside_of_a_task_fails_the_batch_and_the_stream_goes_on(open_device, reports, caplog, name):
    """If an error cannot even be stored in its task, the tasks behind it are still reported, each once."""

    class Unfailing(FakeTask):
        def fail(self, error: BaseException) -> None:
            if not self.error:
                self.error = error
                raise RuntimeError("its error cannot be described")

    device = open_device(name)
    stream = device.compute[0]
    device.hold("compute")
    first, broken, behind = FakeTask(0), Unfailing(1, lambda: 1 // 0), FakeTask(2)
    stream.submit([first, broken, behind])
    stream.submit([FakeTask(3)])
    device.resume("compute")
    assert reports.wait(4) == [0, 1, 2, 3]
    assert first.executed
    assert not behind.executed
    assert f"{name}/compute0 failed at add: RuntimeError" in str(behind.error)
    assert "goes on after an error outside of its tasks" in caplog.text
    stream.submit([FakeTask(4)])
    assert reports.wait(5)[-1] == 4


def test_in_a_process_that_is_ending_tasks_run_where_they_are_submitted(open_device, reports, monkeypatch):
    """From Python 3.12 on no thread can be started then; prints that are still open are read on streams."""
    stream = open_device("sim:0").compute[0]
    callers: list[threading.Thread] = []

    def refuse(_thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for number in range(3):
        stream.submit([FakeTask(number, lambda: callers.append(threading.current_thread()))])
        assert reports.ids == list(range(number + 1))
    assert callers == [threading.current_thread()] * 3
    assert stream.close(0.0)
