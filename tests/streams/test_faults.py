"""Every kind of fault affects its own task, and no other."""

import threading

import numpy as np
import pytest

from tensord.interpreter.errors import KernelError, MetadataError
from tensord.streams.faults import FOREVER, Fault, FaultKind
from tensord.streams.stream import StreamKind

from .conftest import WAIT, FakeTask


def run(device, reports, labels, before=0):
    tasks = [FakeTask(before + i, label=label) for i, label in enumerate(labels)]
    device.compute[0].submit(tasks)
    reports.wait(before + len(tasks))
    return tasks


def failed(tasks):
    return [task.id for task in tasks if task.error is not None]


@pytest.mark.parametrize("name", ["cpu:0", "sim:0"])
def test_fail_hits_the_nth_task_of_that_label(open_device, reports, name):
    device = open_device(name, faults=[{"kind": "fail", "label": "mul", "nth": 2, "count": 2}])
    tasks = run(device, reports, ["mul", "add", "mul", "mul", "mul"])
    assert failed(tasks) == [2, 3]
    assert isinstance(tasks[2].error, KernelError)
    assert [task.executed for task in tasks] == [True, True, False, False, True]


def test_nothing_runs_inline_while_a_fault_is_armed(open_device, reports):
    device = open_device()
    assert all(stream.inline for stream in device.streams)
    device.inject(Fault(FaultKind.FAIL, label="mul"))
    assert not any(stream.inline for stream in device.streams)
    run(device, reports, ["add", "mul"])
    assert all(stream.inline for stream in device.streams)


def test_a_fault_may_be_meant_for_one_stream(open_device, reports):
    device = open_device(faults=[{"kind": "fail", "stream": "h2d"}])
    device.compute[0].submit([compute := FakeTask(0)])
    reports.wait(1)
    device.copy_stream(StreamKind.H2D).submit([copy := FakeTask(1)])
    reports.wait(2)
    assert failed([compute, copy]) == [1]


def test_allocation_faults_hit_allocate_and_adopt(open_device):
    device = open_device(faults=[{"kind": "allocation", "nth": 2, "count": 2}])
    first = device.allocate(10)
    assert first is not None
    assert device.allocate(10) is None
    assert device.adopt(np.zeros(3)) is None
    assert device.allocated == 10
    assert device.allocate(10) is not None


def test_slow_takes_longer(open_device, reports):
    device = open_device(faults=[{"kind": "slow", "seconds": 0.02}])
    slow, quick = run(device, reports, ["add", "add"])
    assert slow.finished - slow.started >= 20_000_000
    assert slow.executed
    assert quick.executed


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind != "allocation"])
def test_no_fault_hits_what_was_cancelled_before_it_started(open_device, reports, kind):
    """A slow report would take an hour, a hanging one would never come."""
    device = open_device(late_errors=True, faults=[{"kind": kind.value, "label": "mul", "seconds": 3600}])
    cancelled = FakeTask(0, label="mul", cancelled=True)
    device.compute[0].submit([cancelled])
    reports.wait(1)
    assert cancelled.executed
    assert cancelled.error is None
    assert not device.compute[0].inline  # the fault is still armed


def test_a_hang_is_named_by_running_and_ends_when_released(open_device, reports):
    device = open_device(faults=[{"kind": "hang", "label": "mul"}])
    before, hung, after = FakeTask(0), FakeTask(1, label="mul"), FakeTask(2)
    device.compute[0].submit([before, hung, after])
    assert device.faults.hanging.wait(WAIT)
    assert reports.wait(1) == [0]
    assert device.compute[0].running() == (hung, hung.started)
    device.release_hangs()
    assert reports.wait(3) == [0, 1, 2]
    assert hung.executed


def test_close_with_a_hang_returns_in_time_and_releases_it(open_device, reports):
    device = open_device(faults=[{"kind": "hang"}])
    other = FakeTask(7)
    device.compute[0].submit([FakeTask(0), after := FakeTask(1)])
    device.copy_stream(StreamKind.D2H).submit([other])
    assert device.faults.hanging.wait(WAIT)
    assert not device.close(0.01)
    assert sorted(reports.wait(3)) == [0, 1, 7]
    assert "closed" in str(after.error) or "closed" in str(other.error)


def test_late_reports_nothing_until_later_tasks_have_executed(open_device, reports):
    device = open_device(late_errors=True)
    assert all(stream.late_errors for stream in device.streams)
    device.inject(Fault(FaultKind.LATE, label="mul", after=2))
    device.hold("compute")
    blocked, release = threading.Event(), threading.Event()

    def block():
        blocked.set()
        release.wait(WAIT)

    late, one, two = FakeTask(0, label="mul"), FakeTask(1), FakeTask(2, block, quick=False)
    device.compute[0].submit([late, one, two, FakeTask(3, quick=False)])
    device.resume("compute")
    assert blocked.wait(WAIT)
    assert late.executed
    assert one.executed
    assert reports.ids == []
    assert late.error is None
    release.set()
    assert reports.wait(4) == [0, 1, 2, 3]
    assert reports.lists[0][:3] == [0, 1, 2]
    assert failed([late, one, two]) == [0]


def test_late_surfaces_when_the_queue_drains(open_device, reports):
    device = open_device(late_errors=True, faults=[{"kind": "late", "after": 100}])
    assert failed(run(device, reports, ["add"])) == [0]


def test_late_needs_a_device_with_late_errors(open_device):
    with pytest.raises(MetadataError, match="late_errors"):
        open_device(faults=[{"kind": "late"}])


def test_a_lost_device_fails_everything_from_then_on(open_device, reports):
    device = open_device(faults=[{"kind": "lost", "label": "mul"}])
    held = device.allocate(8)
    tasks = run(device, reports, ["add", "mul", "add"])
    assert failed(tasks) == [1, 2]
    device.copy_stream(StreamKind.H2D).submit([copy := FakeTask(3)])
    reports.wait(4)
    assert "lost" in str(copy.error)
    assert isinstance(device.lost, KernelError)
    assert device.allocate(8) is None
    assert device.adopt(np.zeros(1)) is None
    assert not any(stream.inline for stream in device.streams)
    device.free(held)
    assert device.allocated == 0


def test_faults_count_on_their_own(open_device, reports):
    device = open_device()
    device.inject(Fault(FaultKind.FAIL, nth=1))
    device.inject(Fault(FaultKind.FAIL, nth=3, count=FOREVER))
    assert failed(run(device, reports, ["add"] * 5)) == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "explode"}, "unknown fault 'explode'"),
        ({}, "unknown fault None"),
        ({"kind": "fail", "lable": "add"}, "unknown fault option 'lable'"),
        ({"kind": "fail", "nth": 0}, "start at 1"),
        ({"kind": "fail", "nth": "x"}, "fault fail"),
        ("fail", "a fault must be a table"),
    ],
)
def test_a_wrong_fault_is_an_error_that_says_why(open_device, table, message):
    with pytest.raises(MetadataError, match=message):
        open_device(faults=[table])
