"""Launching and waiting for a CUDA device, with CUDA's streams and events played by fakes."""

import threading
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from tensord.interpreter.errors import KernelError
from tensord.streams.cuda_stream import CudaStream, Launcher
from tensord.streams.events import EXECUTED, TURNSTILE
from tensord.streams.sim import SimDevice
from tensord.streams.stream import StreamKind

from .conftest import WAIT, FakeTask


class FakeEvent:
    """Done when the test says so, or broken."""

    def __init__(self, device):
        self.device = device
        self.passed = threading.Event()
        self.stream = None
        if device.done:
            self.passed.set()

    def record(self, stream):
        if self.device.broken is not None:
            raise self.device.broken
        self.stream = stream

    @property
    def done(self):
        return self.passed.is_set()

    def synchronize(self):
        assert self.passed.wait(WAIT)
        if self.device.broken is not None:
            raise self.device.broken


class FakeRaw:
    """A CUDA stream that remembers what it was told to wait for."""

    def __init__(self):
        self.waited = []

    def use(self):
        pass

    def wait_event(self, event):
        self.waited.append(event)


class FakeGpu:
    """A device with a launcher, one compute and one copy stream; `done`: whether work ends at once."""

    lost: BaseException | None

    def __init__(self, name, reports, *, done=True):
        self.name, self.lost, self.done, self.broken = name, None, done, None
        self.launcher = Launcher(self, lambda: FakeEvent(self))
        self.compute, self.copy = (
            CudaStream(name, kind, 0, reports, launcher=self.launcher, raw=FakeRaw())
            for kind in (StreamKind.COMPUTE, StreamKind.H2D)
        )
        self.launcher.serve((self.compute, self.copy))

    def current(self):
        return nullcontext()

    def lose(self, error):
        self.lost = self.lost or error


@pytest.fixture
def gpu(reports):
    before = set(threading.enumerate())
    opened = []

    def make(name="cuda:0", **options):
        opened.append(FakeGpu(name, reports, **options))
        return opened[-1]

    yield make
    for device in opened:
        device.compute.close(WAIT)
        device.copy.close(WAIT)
    assert set(threading.enumerate()) <= before


def launched(*tasks):
    """Wait until the tasks are launched."""
    assert all(TURNSTILE.wait(task, lambda: False) for task in tasks)


def test_tasks_are_launched_and_reported_in_order(gpu, reports):
    device = gpu()
    ran: list[int] = []
    tasks = [FakeTask(i, partial(ran.append, i)) for i in range(300)]
    for start in range(0, 300, 50):
        device.compute.submit(tasks[start : start + 50])
    assert reports.wait(300) == ran == list(range(300))
    assert all(0 < task.started <= task.finished for task in tasks)


def test_a_task_is_reported_when_its_event_is_done_and_not_before(gpu, reports):
    device = gpu(done=False)
    first, second = FakeTask(0), FakeTask(1)
    device.compute.submit([first, second])
    launched(first, second)
    assert first.executed
    assert second.executed
    assert reports.ids == []
    first.event.passed.set()
    assert reports.wait(1) == [0]
    second.event.passed.set()
    assert reports.wait(2) == [0, 1]


def test_a_slow_kernel_does_not_hold_back_the_report_of_a_copy(gpu, reports):
    device = gpu(done=False)
    kernel, copy = FakeTask(0), FakeTask(1)
    device.compute.submit([kernel])
    device.copy.submit([copy])
    launched(kernel, copy)
    copy.event.passed.set()
    assert reports.wait(1) == [1]
    assert device.compute.running()[0] is kernel
    kernel.event.passed.set()
    reports.wait(2)


def test_the_stream_waits_for_the_events_of_the_sources(gpu, reports):
    device = gpu(done=False)
    copy = FakeTask(0)
    kernel = FakeTask(1, event_sources=[copy])
    device.copy.submit([copy])
    device.compute.submit([kernel])
    launched(copy, kernel)  # the host did not wait for the copy to be done
    assert device.compute.raw.waited == [copy.event]
    copy.event.passed.set()
    kernel.event.passed.set()
    reports.wait(2)


def test_batches_that_depend_on_each_other_both_ways_are_launched(gpu, reports):
    device = gpu()
    copies = [FakeTask(i) for i in range(0, 20, 2)]
    kernels = [FakeTask(i) for i in range(1, 20, 2)]
    for i, kernel in enumerate(kernels):
        kernel.event_sources = [copies[i]]
        if i:
            copies[i].event_sources = [kernels[i - 1]]
    device.compute.submit(kernels)
    device.copy.submit(copies)
    assert sorted(reports.wait(20)) == list(range(20))


def test_two_devices_that_wait_for_each_other_in_turn_end(gpu, reports):
    one, two = gpu("cuda:0"), gpu("cuda:1")
    tasks = [FakeTask(i) for i in range(200)]
    for i in range(1, 200):
        tasks[i].event_sources = [tasks[i - 1]]
    one.compute.submit(tasks[::2])
    two.compute.submit(tasks[1::2])
    assert sorted(reports.wait(200)) == list(range(200))
    assert one.compute.raw.waited == [task.event for task in tasks[1:-1:2]]


def test_a_source_on_a_sim_device_is_waited_for_by_the_host_alone(gpu, reports):
    device = gpu()
    device.compute.submit([FakeTask(1, event_sources=[FakeTask(0, event=EXECUTED)])])
    reports.wait(1)
    assert device.compute.raw.waited == []


def test_an_error_that_surfaces_late_fails_what_is_not_reported_and_everything_later(gpu, reports):
    device = gpu(done=False)
    good, bad, behind, copy = (FakeTask(i) for i in range(4))
    device.compute.submit([good, bad, behind])
    device.copy.submit([copy])
    launched(good, bad, behind, copy)
    good.event.passed.set()
    reports.wait(1)
    device.broken = RuntimeError("an illegal memory access was encountered")
    for task in (bad, behind, copy):
        task.event.passed.set()
    reports.wait(4)
    later = FakeTask(4)
    device.copy.submit([later])
    reports.wait(5)
    assert good.error is None
    assert all(isinstance(task.error, KernelError) for task in (bad, behind, copy, later))
    assert "illegal memory access" in str(later.error)
    assert not later.executed


def test_an_error_at_launch_loses_the_device(gpu, reports):
    device = gpu()
    device.broken = RuntimeError("unspecified launch failure")
    device.compute.submit([task := FakeTask(0)])
    reports.wait(1)
    assert device.lost is device.broken
    assert "lost" in str(task.error)


def test_what_the_host_has_to_finish_is_finished_before_the_report(gpu, reports):
    device = gpu(done=False)
    finished = []

    def body():
        device.launcher.keep.append(object())
        device.launcher.finish.append(lambda: finished.append(list(reports.ids)))

    device.copy.submit([task := FakeTask(0, body)])
    launched(task)
    assert finished == []
    task.event.passed.set()
    reports.wait(1)
    assert finished == [[]]


def test_close_finishes_what_is_queued_and_ends_submitting(gpu, reports):
    device = gpu()
    device.compute.submit([FakeTask(i) for i in range(100)])
    assert device.compute.close(WAIT)
    assert reports.ids == list(range(100))
    with pytest.raises(RuntimeError, match="closed"):
        device.copy.submit([FakeTask(0)])


def test_close_gives_up_on_a_kernel_that_hangs(gpu, reports):
    device = gpu(done=False)
    device.compute.submit([task := FakeTask(0)])
    launched(task)
    assert not device.compute.close(0.01)
    task.event.passed.set()
    reports.wait(1)


def test_close_fails_what_waits_for_something_that_never_runs(gpu, reports):
    device = gpu()
    device.compute.submit([task := FakeTask(0, event_sources=[FakeTask(1)])])
    assert not device.compute.close(0.01)
    reports.wait(1)
    assert not task.executed
    assert "closed" in str(task.error)


# -- other kinds of streams, and the last resort -----------------------------------------------------------------------


def test_a_task_behind_one_on_a_stream_of_another_kind_is_woken(gpu, reports):
    device, host = gpu(), SimDevice("sim:0", reports)
    go = threading.Event()
    source: Any = FakeTask(0, lambda: go.wait(WAIT))
    behind = FakeTask(1, event_sources=[source])
    device.compute.submit([behind])
    host.compute[0].submit([source])
    while not TURNSTILE.waiting:  # the launcher has nothing to launch
        go.wait(0.001)
    go.set()
    assert reports.wait(2) == [0, 1]
    host.close(WAIT)


def test_a_stream_that_cannot_be_made_current_loses_the_device(gpu, reports):
    device = gpu()

    def use() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    device.compute.raw.use = use
    tasks = [FakeTask(0), FakeTask(1)]
    device.compute.submit(tasks)
    assert reports.wait(2) == [0, 1]
    assert all("cuda:0 is lost" in str(task.error) for task in tasks)


@pytest.mark.parametrize("calls", [1, 2])
def test_a_device_that_cannot_be_made_current_is_lost_and_its_tasks_fail(gpu, reports, caplog, calls):
    """The launcher's thread, and the waiter's: what they hold fails, what comes later fails, and the log says why."""
    device = gpu()
    failures = iter([RuntimeError("no context")] * calls)

    def current():
        for failure in failures:
            raise failure
        return nullcontext()

    device.current = current
    tasks = [FakeTask(0), FakeTask(1)]
    device.compute.submit(tasks)
    assert reports.wait(2) == [0, 1]
    late = FakeTask(2)
    device.compute.submit([late])
    assert reports.wait(3) == [0, 1, 2]
    assert all("cuda:0 is lost" in str(task.error) for task in (late,))
    assert not late.executed
    assert "lost its device by an error outside of its tasks" in caplog.text


def test_an_error_in_the_waiter_outside_of_a_task_does_not_end_it(gpu, reports, caplog):
    device = gpu()
    sink, failures = device.compute._sink, iter([RuntimeError("the sink broke")])

    def broken(tasks):
        sink(tasks)
        for failure in failures:
            raise failure

    device.compute._sink = broken
    device.compute.submit([FakeTask(0)])
    reports.wait(1)
    device.compute.submit([after := FakeTask(1)])
    assert reports.wait(2) == [0, 1]
    assert "cuda:0 is lost" in str(after.error)
    assert "the sink broke" in caplog.text
