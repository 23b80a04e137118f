"""Launches, fences and waits of a CUDA device, over the fake runtime, with the device's own threads."""

import gc
import threading
import weakref
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import KernelError, MetadataError
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.cuda import CudaDevice
from tensord.streams.launching.launcher import MAX_BURST_TASKS
from tensord.streams.stream import StreamKind
from tensord.streams.threads.events import EXECUTED, LAUNCH_CONDITION

from ..conftest import WAIT, FakeTask
from ..fake_cuda.gpu import Gpu, IllegalAddress, current_queue
from ..fake_cuda.module import installed

META = Meta.of((64,), "float64")


@pytest.fixture(autouse=True)
def gpu():
    with installed(Gpu(seed=1)) as fake:
        yield fake


@pytest.fixture
def device(open_device):
    return open_device("cuda:0", memory="1MiB")


def copies(device, kind=StreamKind.H2D):
    return device.copy_stream(kind)


def work(gpu: Gpu, name: str = "", run: Any = lambda: None) -> Any:
    """A task's body: work for the stream that is current, which is held until `gpu.release(name)`."""
    ready = gpu.hold(name) if name else lambda: True
    return lambda: gpu.enqueue(current_queue(gpu), run, ready)


def slow(id_: int, body: Any = None, **fields: Any) -> FakeTask:
    return FakeTask(id_, body, quick=False, **fields)


def launched(*tasks):
    """Wait until the tasks are launched."""
    assert all(LAUNCH_CONDITION.wait(task, lambda: False) for task in tasks)


def illegal() -> None:
    raise IllegalAddress


# -- order -------------------------------------------------------------------------------------------------------------


def test_tasks_are_launched_and_reported_in_order(gpu, device, reports):
    ran: list[int] = []
    tasks = [FakeTask(i, work(gpu, run=partial(ran.append, i))) for i in range(300)]
    for start in range(0, 300, 50):
        device.compute[0].submit(tasks[start : start + 50])
    assert reports.wait(300) == ran == list(range(300))
    ends = [task.finished for task in tasks]
    assert all(0 < task.started <= task.finished for task in tasks)
    assert all(end <= task.started for end, task in zip(ends, tasks[1:], strict=False))


def test_a_task_is_reported_when_the_device_has_done_it_and_not_before(gpu, device, reports):
    first, second = slow(0, work(gpu, "first")), slow(1, work(gpu, "second"))
    device.compute[0].submit([first, second])
    launched(first, second)
    assert reports.ids == []
    gpu.release("first")
    assert reports.wait(1) == [0]
    gpu.release("second")
    assert reports.wait(2) == [0, 1]


def test_a_slow_kernel_does_not_hold_back_the_report_of_a_copy(gpu, device, reports):
    kernel, copy = FakeTask(0, work(gpu, "kernel")), FakeTask(1, work(gpu))
    device.compute[0].submit([kernel])
    copies(device).submit([copy])
    assert reports.wait(1) == [1]
    assert device.compute[0].running()[0] is kernel
    gpu.release("kernel")
    reports.wait(2)


def test_a_stream_waits_for_its_sources_without_the_host(gpu, device, reports):
    order: list[str] = []
    copy = FakeTask(0, work(gpu, "copy", partial(order.append, "copy")))
    kernel = FakeTask(1, work(gpu, run=partial(order.append, "kernel")), event_sources=[copy])
    copies(device).submit([copy])
    device.compute[0].submit([kernel])
    launched(copy, kernel)
    assert order == []
    gpu.release("copy")
    reports.wait(2)
    assert order == ["copy", "kernel"]
    assert copy.finished <= kernel.started


def test_batches_that_depend_on_each_other_both_ways_are_launched(device, reports):
    uploads = [FakeTask(i) for i in range(0, 20, 2)]
    kernels = [FakeTask(i) for i in range(1, 20, 2)]
    for i, kernel in enumerate(kernels):
        kernel.event_sources = [uploads[i]]
        if i:
            uploads[i].event_sources = [kernels[i - 1]]
    device.compute[0].submit(kernels)
    copies(device).submit(uploads)
    assert sorted(reports.wait(20)) == list(range(20))


def test_two_devices_that_wait_for_each_other_in_turn_end(gpu, open_device, reports):
    one, two = open_device("cuda:0", memory="1MiB"), open_device("cuda:1", memory="1MiB")
    ran: list[int] = []
    tasks = [FakeTask(i, work(gpu, run=partial(ran.append, i))) for i in range(200)]
    for i in range(1, 200):
        tasks[i].event_sources = [tasks[i - 1]]
    one.compute[0].submit(tasks[::2])
    two.compute[0].submit(tasks[1::2])
    assert sorted(reports.wait(200)) == ran == list(range(200))
    assert all(a.finished <= b.started for a, b in pairwise(tasks))


def test_a_source_that_has_been_executed_is_not_waited_for(gpu, device, reports):
    device.compute[0].submit([FakeTask(1, event_sources=[FakeTask(0, event=EXECUTED)])])
    reports.wait(1)
    assert gpu.calls["streamWaitEvent"] == 0


def test_a_task_behind_one_on_a_stream_of_another_kind_is_woken(device, open_device, reports):
    host = open_device("sim:0")
    go = threading.Event()
    source: Any = FakeTask(0, lambda: go.wait(WAIT))
    behind = FakeTask(1, event_sources=[source])
    device.compute[0].submit([behind])
    host.compute[0].submit([source])
    while not LAUNCH_CONDITION.waiting:  # the launcher is idle
        go.wait(0.001)
    go.set()
    assert reports.wait(2) == [0, 1]


# -- bursts ------------------------------------------------------------------------------------------------------------


def test_a_burst_of_quick_tasks_has_one_event_and_one_report(gpu, device, reports):
    tasks = [FakeTask(i, work(gpu)) for i in range(MAX_BURST_TASKS)]
    tasks[0].event_sources = [source := FakeTask(99, work(gpu))]  # so that all tasks are in the backlog by then
    device.compute[0].submit(tasks)
    copies(device).submit([source])
    reports.wait(MAX_BURST_TASKS + 1)
    assert len({id(task.event) for task in tasks}) == 1
    assert gpu.calls["eventRecord"] == 2
    assert gpu.calls["eventQuery"] + gpu.calls["eventSynchronize"] <= 4
    assert len(reports.lists) == 2


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_slow_task_is_a_burst_of_its_own(gpu, device, reports, slow):
    tasks = [FakeTask(i, work(gpu, f"task {i}"), quick=i != slow) for i in range(3)]
    device.compute[0].submit(tasks)
    launched(*tasks)
    assert len({id(task.event) for task in tasks}) == (2 if slow != 1 else 3)
    for i in range(3):
        gpu.release(f"task {i}")
    reports.wait(3)


def test_events_are_used_again_once_nobody_refers_to_them(gpu, device, reports):
    for i in range(50):
        device.compute[0].submit([slow(i, work(gpu))])
        reports.wait(i + 1)
    assert gpu.calls["eventRecord"] == 50
    assert gpu.calls["eventCreate"] <= 4


def test_an_event_that_somebody_may_still_wait_for_is_not_used_again(gpu, device, reports):
    kept = [slow(i, work(gpu)) for i in range(20)]
    for i, task in enumerate(kept):
        device.compute[0].submit([task])
        reports.wait(i + 1)
    assert len({id(task.event.event) for task in kept}) == 20


# -- tasks that block --------------------------------------------------------------------------------------------------


def test_a_task_that_waits_for_the_device_stops_no_other_stream(gpu, device, reports):
    value = work(gpu, "value")

    def look() -> None:
        value()
        gpu.drain(current_queue(gpu))

    looking, behind, copy = FakeTask(0, look, blocking=True), FakeTask(1), FakeTask(2)
    device.compute[0].submit([looking, behind])
    copies(device).submit([copy])
    assert reports.wait(1) == [2]
    assert not behind.executed
    gpu.release("value")
    assert reports.wait(3) == [2, 0, 1]


def test_a_large_copy_is_staged_beside_the_launcher(device, reports):
    staging, staged = threading.Event(), threading.Event()

    def stage() -> None:
        staging.set()
        assert staged.wait(WAIT)

    copies(device).submit([slow(0, stage)])
    assert staging.wait(WAIT)
    device.compute[0].submit([FakeTask(1)])
    assert reports.wait(1) == [1]
    staged.set()
    reports.wait(2)


def on_device(device, meta=META):
    return device.bind(device.allocate(meta.nbytes), meta)


def fill(array, value):
    return lambda: array.__setitem__((), value)


@pytest.mark.parametrize("reader", ["cuda:1", "sim:0"])
def test_what_a_copy_brings_to_the_host_is_there_for_those_who_wait_for_the_copy(gpu, open_device, reports, reader):
    """The bytes are staged: that the device is done with the copy is not enough for a reader on the host."""
    one, two = open_device("cuda:0", memory="1MiB"), open_device(reader, memory="1MiB")
    host, there = np.zeros(64), np.zeros(64)
    source, target = on_device(one), on_device(two)
    filled = FakeTask(0, fill(source, 7.0))
    out = FakeTask(1, lambda: (work(gpu, "out")(), one.copy_out(source, host)), event_sources=[filled])
    in_ = FakeTask(2, lambda: two.copy_in(target, host), event_sources=[out])
    back = FakeTask(3, lambda: two.copy_out(target, there), event_sources=[in_])
    two.copy_stream(StreamKind.D2H).submit([back])
    two.copy_stream(StreamKind.H2D).submit([in_])
    one.compute[0].submit([filled])
    copies(one, StreamKind.D2H).submit([out])
    launched(filled, out)
    gpu.release("out")
    reports.wait(4)
    assert (there == 7).all()


def test_of_two_copies_to_one_place_the_later_ones_bytes_stay(open_device, reports):
    one, two = open_device("cuda:0", memory="1MiB"), open_device("cuda:1", memory="1MiB")
    host, early, late = np.zeros(64), on_device(one), on_device(two)
    sources = [FakeTask(0, fill(early, 1.0)), FakeTask(1, fill(late, 2.0))]
    first = FakeTask(2, lambda: one.copy_out(early, host), event_sources=[sources[0]])
    second = FakeTask(3, lambda: two.copy_out(late, host), event_sources=[sources[1], first])
    stuck, go = threading.Event(), threading.Event()
    follow = copies(one, StreamKind.D2H)._await

    def late_thread(burst: Any) -> None:
        stuck.set()
        assert go.wait(WAIT)
        follow(burst)

    copies(one, StreamKind.D2H)._await = late_thread
    one.compute[0].submit([sources[0]])
    two.compute[0].submit([sources[1]])
    copies(one, StreamKind.D2H).submit([first])
    copies(two, StreamKind.D2H).submit([second])
    assert stuck.wait(WAIT)
    reports.wait(3)
    go.set()
    reports.wait(4)
    assert (host == 2).all()


def test_what_the_host_has_to_finish_is_finished_before_the_report(gpu, device, reports):
    finished: list[Any] = []

    def body() -> None:
        work(gpu, "copy")()
        device._burst.keep.append(object())
        device._burst.finish.append(lambda: finished.append(list(reports.ids)))

    copies(device).submit([task := FakeTask(0, body)])
    launched(task)
    assert finished == []
    gpu.release("copy")
    reports.wait(1)
    assert finished == [[]]


@pytest.mark.parametrize("kind", [StreamKind.H2D, StreamKind.D2H])
@pytest.mark.parametrize("quick", [True, False])
def test_the_memory_of_a_copy_is_free_once_the_copy_is_reported(device, reports, kind, quick):
    array, there = device.host_array(META), on_device(device)
    freed = weakref.ref(array)

    def submit(host):
        body = partial(device.copy_in, there, host) if kind is StreamKind.H2D else partial(device.copy_out, there, host)
        copies(device, kind).submit([FakeTask(0, body, quick=quick)])

    submit(array)
    del array
    reports.wait(1)
    gc.collect()
    assert freed() is None


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_that_surfaces_late_fails_what_is_not_reported_and_everything_later(gpu, device, reports):
    good = slow(0, work(gpu))
    bad, behind = slow(1, work(gpu, "bad", illegal)), slow(2, work(gpu))
    copy = FakeTask(3, work(gpu, "copy"))
    device.compute[0].submit([good, bad, behind])
    copies(device).submit([copy])
    reports.wait(1)
    launched(bad, behind, copy)
    gpu.release("bad")
    reports.wait(4)
    later = FakeTask(4)
    copies(device).submit([later])
    reports.wait(5)
    assert good.error is None
    assert all(isinstance(task.error, KernelError) for task in (bad, behind, copy, later))
    assert "illegal memory access" in str(later.error)
    assert not later.executed
    assert device.allocate(8) is None


def test_what_waits_for_a_lost_device_does_not_lose_its_own(gpu, open_device, reports):
    one, two = open_device("cuda:0", memory="1MiB"), open_device("cuda:1", memory="1MiB")
    bad = slow(0, work(gpu, run=illegal))
    soft, hard = FakeTask(1, event_sources=[bad]), FakeTask(2, blocking=True, event_sources=[bad])
    one.compute[0].submit([bad])
    two.compute[0].submit([soft, hard])
    reports.wait(3)
    assert one.lost is not None
    assert two.lost is None


def test_a_task_that_faulted_fails_although_another_device_has_gone_on_behind_it(gpu, open_device, reports):
    """No device waits for events of a broken one, so work behind the events does not prove that they were reached."""
    one, two = open_device("cuda:0", memory="1MiB"), open_device("cuda:1", memory="1MiB")
    go = threading.Event()
    follow = one.compute[0]._await

    def late_thread(burst: Any) -> None:
        assert go.wait(WAIT)
        follow(burst)

    one.compute[0]._await = late_thread
    bad = slow(0, work(gpu, run=illegal))
    one.compute[0].submit([bad])
    launched(bad)
    two.compute[0].submit([FakeTask(1, event_sources=[bad])])
    assert reports.wait(1) == [1]
    go.set()
    reports.wait(2)
    assert one.lost is not None
    assert "illegal memory access" in str(bad.error)


def test_an_error_at_launch_loses_the_device(gpu, device, reports):
    def body() -> None:
        work(gpu, run=illegal)()
        gpu.drain(current_queue(gpu))

    device.compute[0].submit([task := FakeTask(0, body)])
    reports.wait(1)
    assert device.lost is not None
    assert "lost" in str(task.error)


def test_a_stream_that_cannot_be_made_current_loses_the_device(device, reports):
    def use() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    device.compute[0].raw.use = use
    tasks = [FakeTask(0), FakeTask(1)]
    device.compute[0].submit(tasks)
    assert reports.wait(2) == [0, 1]
    assert all("cuda:0 is lost" in str(task.error) for task in tasks)


@pytest.mark.parametrize("calls", [1, 2])
def test_a_device_that_cannot_be_made_current_is_lost_and_its_tasks_fail(
    open_device, reports, monkeypatch, caplog, calls
):
    """On the launcher's thread and on a stream's: present and later tasks fail, and the log has the reason."""
    failures = iter([RuntimeError("no context")] * calls)

    def current(_device):
        for failure in failures:
            raise failure
        return nullcontext()

    monkeypatch.setattr(CudaDevice, "current", current)
    device = open_device("cuda:0", memory="1MiB")
    tasks = [FakeTask(0), FakeTask(1)]
    device.compute[0].submit(tasks)
    assert reports.wait(2) == [0, 1]
    late = FakeTask(2)
    device.compute[0].submit([late])
    assert reports.wait(3) == [0, 1, 2]
    assert "cuda:0 is lost" in str(late.error)
    assert not late.executed
    assert "lost its device by an error outside of its tasks" in caplog.text


def test_an_error_in_the_streams_thread_outside_of_a_task_does_not_end_it(device, reports, caplog):
    stream = device.compute[0]
    sink, failures = stream._sink, iter([RuntimeError("the sink broke")])

    def broken(tasks):
        sink(tasks)
        for failure in failures:
            raise failure

    stream._sink = broken
    stream.submit([FakeTask(0)])
    reports.wait(1)
    stream.submit([after := FakeTask(1)])
    assert reports.wait(2) == [0, 1]
    assert "cuda:0 is lost" in str(after.error)
    assert "the sink broke" in caplog.text


# -- the end -----------------------------------------------------------------------------------------------------------


def test_close_finishes_what_is_queued_and_ends_submitting(gpu, device, reports):
    device.compute[0].submit([FakeTask(i, work(gpu)) for i in range(100)])
    assert device.close(WAIT)
    assert reports.ids == list(range(100))
    with pytest.raises(RuntimeError, match="closed"):
        copies(device).submit([FakeTask(0)])


def test_close_gives_up_on_a_kernel_that_hangs(gpu, device, reports):
    device.compute[0].submit([task := FakeTask(0, work(gpu, "hanging"))])
    launched(task)
    assert not device.compute[0].close(0.01)
    gpu.release("hanging")
    reports.wait(1)


def test_close_fails_what_is_behind_a_task_that_blocks_for_ever(device, reports):
    go = threading.Event()
    device.compute[0].submit([FakeTask(0, lambda: go.wait(WAIT), blocking=True), behind := FakeTask(1)])
    assert not device.compute[0].close(0.01)
    go.set()
    reports.wait(2)
    assert "closed" in str(behind.error)


def test_close_fails_what_waits_for_something_that_never_runs(device, reports):
    device.compute[0].submit([task := FakeTask(0, event_sources=[FakeTask(1)])])
    assert not device.compute[0].close(0.01)
    reports.wait(1)
    assert not task.executed
    assert "closed" in str(task.error)


def test_in_a_process_that_is_ending_streams_that_were_not_used_before_work(gpu, device, reports, monkeypatch):
    """From Python 3.12 on no thread can be started then; prints that are still open are read on streams."""

    def refuse(_thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    kernel = FakeTask(0, work(gpu))
    device.compute[0].submit([kernel])
    copies(device, StreamKind.D2H).submit([FakeTask(1, work(gpu), event_sources=[kernel])])
    assert sorted(reports.wait(2)) == [0, 1]
    assert device.close(WAIT)


@pytest.mark.parametrize("started", [0, 1, 3])
def test_a_device_whose_threads_cannot_be_started_does_not_open_and_leaves_nothing(
    gpu, open_device, monkeypatch, started
):
    start, left = threading.Thread.start, iter(range(started))

    def refuse(thread):
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(MetadataError, match="'cuda:0' does not open: RuntimeError: can't start new thread"):
        open_device("cuda:0", memory="1MiB")
    assert gpu.free[0] == gpu.total
