"""The simulated accelerator: private memory, events between streams, added time."""

import threading
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError
from tensord.interpreter.types.meta import Meta
from tensord.streams.faults import Fault, FaultKind
from tensord.streams.stream import StreamKind
from tensord.streams.threads.events import EXECUTED

from ...behaviours.looking_inside import held
from ..conftest import WAIT, FakeTask

META = Meta.of((4, 4), "float32")
H2D, D2H, P2P = StreamKind.H2D, StreamKind.D2H, StreamKind.P2P


def array_on(device, meta=META):
    return device.bind(device.allocate(meta.nbytes), meta)


def test_bytes_go_in_between_and_out(open_device):
    one, two = open_device("sim:0"), open_device("sim:1")
    source = np.arange(16, dtype="float32").reshape(4, 4)
    first, second, result = array_on(one), array_on(two), np.empty((2, 4), "float32")
    one.copy_in(first, source)
    two.peer_copy(second, first)
    two.copy_out(second[::2], result)
    assert result.tolist() == source[::2].tolist()


def test_memory_of_one_place_is_not_taken_for_that_of_another(open_device):
    one, two, host = open_device("sim:0"), open_device("sim:1"), np.empty((4, 4), "float32")
    mine, theirs = array_on(one), array_on(two)
    assert one.owns(mine)
    assert one.owns(mine[1:].T)
    assert not one.owns(theirs)
    assert not one.owns(host)
    for misuse in (
        lambda: one.copy_in(host, host),
        lambda: one.copy_in(mine, mine),
        lambda: one.copy_in(theirs, host),
        lambda: one.copy_out(host, host),
        lambda: one.copy_out(mine, theirs),
        lambda: one.peer_copy(mine, host),
        lambda: one.peer_copy(theirs, mine),
    ):
        with pytest.raises(RuntimeError, match="in the memory of"):
            misuse()


@pytest.mark.parametrize("name", ["cpu:0", "sim:0"])
def test_a_copy_does_not_convert(open_device, name):
    device = open_device(name)
    with pytest.raises(TypeError, match="Cannot cast"):
        device.copy_in(array_on(device), np.zeros((4, 4), "float64"))


def test_a_task_waits_for_its_event_sources(open_device, reports):
    device = open_device()
    h2d, compute = device.copy_stream(H2D), device.compute[0]
    order = []
    device.hold("h2d")
    source = FakeTask(0, lambda: order.append("copy"))
    h2d.submit([source])
    dependent = FakeTask(2, lambda: order.append("kernel"), event_sources=[source])
    compute.submit([FakeTask(1), dependent, FakeTask(3)])
    assert reports.wait(1) == [1]
    device.resume("h2d")
    reports.wait(4)
    assert order == ["copy", "kernel"]
    assert source.event is EXECUTED


class Composite(FakeTask):
    """A task of parts, which the stream is to intercept."""

    def __init__(self, id_, stream, *parts):
        super().__init__(id_, lambda: [stream.intercept(part) for part in parts], composite=True)


def test_each_part_of_a_task_takes_the_time_of_a_task_and_meets_its_faults(open_device, reports):
    device = open_device(compute_delay=0.002)
    stream = device.compute[0]
    device.inject(Fault(FaultKind.FAIL, label="part", nth=2))
    parts = [FakeTask(n, label="part") for n in range(3)]
    task = Composite(3, stream, *parts)
    parts[2].cancelled = True
    stream.submit([task])
    reports.wait(1)
    assert task.finished - task.started >= 4_000_000
    assert [str(part.error) for part in parts] == ["None", "part failed on sim:0 (injected)", "None"]
    assert [part.executed for part in parts] == [True, False, True]  # a cancelled part counts as executed


def test_parts_that_are_left_when_closing_gives_up_fail(open_device, reports):
    device = open_device()
    stream = device.compute[0]
    device.inject(Fault(FaultKind.HANG))
    parts = [FakeTask(n) for n in range(2)]
    stream.submit([Composite(2, stream, *parts)])
    assert device.faults.hanging.wait(WAIT)
    assert not device.close(0)
    reports.wait(1)
    assert [part.executed for part in parts] == [True, False]
    assert "was closed before" in str(parts[1].error)


def test_a_source_may_be_submitted_after_its_dependent(open_device, reports):
    device = open_device()
    order = []
    source = FakeTask(0, lambda: order.append("copy"))
    device.compute[0].submit([FakeTask(1), FakeTask(2, lambda: order.append("kernel"), event_sources=[source])])
    reports.wait(1)
    device.copy_stream(H2D).submit([source])
    reports.wait(3)
    assert order == ["copy", "kernel"]


def test_streams_that_wait_for_each_other_in_turn_end(open_device, reports):
    device = open_device(compute_streams=2)
    one, two = device.compute
    order: list[int] = []
    tasks = [FakeTask(i, partial(order.append, i)) for i in range(200)]
    for previous, task in pairwise(tasks):
        task.event_sources = [previous]
    one.submit(tasks[::2])
    two.submit(tasks[1::2])
    reports.wait(200)
    assert order == list(range(200))


def test_events_order_streams_of_two_devices(open_device, reports):
    one, two = open_device("sim:0"), open_device("sim:1")
    one.hold("compute")
    source = FakeTask(0)
    dependent = FakeTask(1, lambda: source.executed or pytest.fail("it ran too early"), event_sources=[source])
    one.compute[0].submit([source])
    two.copy_stream(P2P).submit([dependent])
    one.resume("compute")
    reports.wait(2)
    assert dependent.error is None


def test_closing_ends_a_wait_for_what_never_runs(open_device, reports):
    device = open_device()
    never, dependent = FakeTask(0, label="copy"), FakeTask(1, label="kernel")
    dependent.event_sources = [never]
    device.compute[0].submit([dependent])
    assert not device.close(0.01)
    reports.wait(1)
    assert not dependent.executed
    assert "copy" in str(dependent.error)


def test_a_transfer_runs_while_an_op_computes(open_device, reports):
    device = open_device()
    meeting = threading.Barrier(2)
    tasks = [FakeTask(i, lambda: meeting.wait(WAIT)) for i in range(2)]
    device.compute[0].submit([tasks[0]])
    device.copy_stream(H2D).submit([tasks[1]])
    reports.wait(2)
    assert [task.error for task in tasks] == [None, None]


@pytest.mark.parametrize("kind", [H2D, D2H, P2P])
def test_a_transfer_takes_latency_and_bytes_over_bandwidth(open_device, reports, kind):
    device = open_device(latency=0.005, bandwidth="1MiB")
    device.copy_stream(kind).submit([task := FakeTask(0, bytes_moved=10 << 10)])
    reports.wait(1)
    assert task.finished - task.started >= (0.005 + 10 / 1024) * 1e9
    assert device.compute[0].inline
    assert not device.copy_stream(kind).inline


def test_an_op_takes_its_delay_and_a_transfer_does_not(open_device, reports):
    device = open_device(compute_delay=0.01)
    device.compute[0].submit([task := FakeTask(0)])
    reports.wait(1)
    assert task.finished - task.started >= 10_000_000
    assert not device.compute[0].inline
    assert device.copy_stream(H2D).inline


@pytest.mark.parametrize(("delay", "least"), [(0.0, 0.01), (0.015, 0.015)])
def test_an_op_takes_its_operations_at_the_rate_and_its_delay_if_that_is_longer(open_device, reports, delay, least):
    device = open_device(compute_rate=1e6, compute_delay=delay)
    device.compute[0].submit([task := FakeTask(0, work=10_000)])
    reports.wait(1)
    assert task.finished - task.started >= least * 1e9
    assert not device.compute[0].inline
    assert device.copy_stream(H2D).inline


def test_what_was_cancelled_before_it_started_takes_no_delay(open_device, reports):
    """An hour each, if it did: the reports would not come."""
    device = open_device(compute_delay=3600, latency=3600)
    compute, h2d = device.compute[0], device.copy_stream(H2D)
    compute.submit(tasks := [FakeTask(i, cancelled=True) for i in range(3)])
    h2d.submit([FakeTask(3, cancelled=True, bytes_moved=16)])
    assert sorted(reports.wait(4)) == [0, 1, 2, 3]
    assert all(task.executed for task in tasks)  # each cancelled task took its turn


def test_a_cancelled_session_does_not_wait_out_the_delays_of_its_queue(make_session):
    s = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 3600}])
    with held(s, "sim:0", "compute"):
        x = s.asarray(np.ones(4, "float32"), device="sim:0")
        waiting = [x + float(k) for k in range(4)]
        s.flush()
        s.cancel()
    s.sync(WAIT)
    assert all(type(tensor.error) is CancelledError for tensor in waiting)


def test_close_cuts_delays_short(open_device, reports):
    device = open_device(compute_delay=3600)
    device.compute[0].submit([FakeTask(i) for i in range(10)])
    assert device.close(WAIT)
    assert reports.ids == list(range(10))


def test_peer_access_is_up_to_both(open_device):
    one, two, alone = open_device("sim:0"), open_device("sim:1"), open_device("sim:2", peer=False)
    host = open_device("cpu:0")
    assert one.reaches(two)
    assert two.reaches(one)
    assert not one.reaches(alone)
    assert not alone.reaches(one)
    assert not one.reaches(host)
    assert not host.reaches(one)
    assert host.reaches(open_device("cpu:1"))


def test_streams_say_what_they_can(open_device):
    sim, cpu = open_device("sim:0", compute_streams=3, inline=False), open_device("cpu:0", workers=2)
    assert [stream.name for stream in sim.streams] == [
        "sim:0/compute0", "sim:0/compute1", "sim:0/compute2", "sim:0/h2d0", "sim:0/d2h0", "sim:0/p2p0",
    ]  # fmt: skip
    assert all(stream.events and not stream.inline and not stream.late_errors for stream in sim.streams)
    assert [stream.name for stream in cpu.streams] == ["cpu:0/compute0", "cpu:0/compute1", "cpu:0/p2p0"]
    assert all(stream.inline and not stream.events for stream in cpu.streams)
    assert cpu.host
    assert not sim.host
