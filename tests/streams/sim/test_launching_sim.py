"""The queues of a sim device that launches: their order, their time, their memory, and failures."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.streams.sim.sim_queue import POISON, Gate, SimEvent, SimQueue
from tensord.streams.stream import StreamKind

from ..conftest import WAIT, FakeTask

META = Meta.of((64,), "uint8")


class Owner:
    broken: BaseException | None = None


@pytest.fixture
def queue() -> SimQueue:
    return SimQueue(Owner())


@pytest.fixture
def device(open_device):
    return open_device("sim:0", launches=True)


def recorded(queue: SimQueue) -> SimEvent:
    """An event that was recorded now."""
    event = SimEvent()
    event.record(queue)
    return event


def test_nothing_is_computed_before_somebody_looks_and_then_the_tasks_before_the_position(queue):
    ran: list[int] = []
    queue.launch(ran.append, (1,))
    event = recorded(queue)
    queue.launch(ran.append, (2,))
    assert ran == []
    assert any(event.done for _ in range(100))  # a look lasts a moment, however far it gets
    assert ran == [1]
    queue.synchronize()
    assert ran == [1, 2]


def test_what_is_large_is_left_to_the_thread_that_waits(queue):
    ran: list[int] = []
    queue.launch(ran.append, (1,), large=True)
    event = recorded(queue)
    assert not event.done
    event.synchronize()
    assert ran == [1]


def test_an_event_that_was_never_recorded_is_done_and_waited_for_by_nobody(queue):
    assert SimEvent().done
    SimEvent().synchronize()
    queue.wait_event(SimEvent())
    assert not queue.items


def test_a_queue_waits_for_what_the_event_had_recorded_by_then(queue):
    other, order = SimQueue(Owner()), []  # type: tuple[SimQueue, list[str]]
    other.launch(order.append, ("first",))
    event = recorded(other)
    queue.wait_event(event)
    queue.launch(order.append, ("behind it",))
    other.launch(order.append, ("later",))
    event.record(other)
    queue.synchronize()
    assert order == ["first", "behind it"]


def test_threads_that_wait_for_queues_which_wait_for_each_other_both_come_to_an_end(queue):
    other, running, entered, go_on = SimQueue(Owner()), threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        running.set()
        assert go_on.wait(WAIT)

    queue.launch(run, ())
    first = recorded(queue)
    other.launch(entered.set, ())
    other.wait_event(first)
    second = recorded(other)
    queue.wait_event(second)
    last = recorded(queue)
    threads = [threading.Thread(target=event.synchronize, daemon=True) for event in (last, second)]
    threads[0].start()
    assert running.wait(WAIT)
    threads[1].start()
    assert entered.wait(WAIT)
    go_on.set()
    for thread in threads:
        thread.join(WAIT)
    assert last.done


def test_a_chain_takes_the_sum_of_its_spans_on_the_clock_of_its_queue(queue):
    span = int(3600e9)  # none has ended when the next one is launched, however busy the machine is
    for _ in range(500):
        queue.launch(len, ((),), span)
    begin = queue.items[0][3]
    event = recorded(queue)
    assert not event.done
    queue.hurry()
    event.synchronize()
    assert event.position is not None
    assert event.position.time == begin + 500 * span


def test_what_waits_begins_when_what_it_waits_for_has_ended(queue):
    other = SimQueue(Owner())
    other.launch(len, ((),), int(3600e9))  # it has not ended when the queue computes, however busy the machine is
    event = recorded(other)
    queue.wait_event(event)
    queue.launch(len, ((),), 1_000_000)
    for one in (other, queue):
        one.hurry()
    queue.synchronize()
    assert event.position is not None
    assert queue.time == event.position.time + 1_000_000


def test_no_delay_outlasts_a_hurry(queue):
    queue.launch(len, ((),), int(3600e9))
    event = recorded(queue)
    waiting = threading.Thread(target=event.synchronize)
    waiting.start()
    queue.hurry()
    waiting.join(WAIT)
    assert event.done


def test_an_error_sticks_and_is_raised_wherever_the_device_is_asked(queue):
    def fails() -> None:
        raise ValueError("late")

    queue.launch(fails, ())
    events = recorded(queue), recorded(queue)
    for event in events:
        with pytest.raises(ValueError, match="late"):
            event.synchronize()
        with pytest.raises(ValueError, match="late"):
            _ = event.done


def test_a_queue_goes_on_past_the_wait_for_a_device_that_is_broken(queue):
    other, ran = SimQueue(Owner()), []  # type: tuple[SimQueue, list[int]]
    queue.wait_event(recorded(other))
    other.owner.broken = ValueError("late")
    other.items.clear()
    queue.launch(ran.append, (1,))
    queue.synchronize()
    assert ran == [1]


def test_a_gate_holds_what_follows(queue):
    gate, ran = Gate(), []  # type: tuple[Gate, list[int]]
    queue.wait_for(gate)
    queue.launch(ran.append, (1,))
    event = recorded(queue)
    assert not event.done
    gate.open()
    assert any(event.done for _ in range(100))  # a look lasts a moment, however far it gets
    assert ran == [1]


# -- the device --------------------------------------------------------------------------------------------------------


def add_launched(device: Any) -> Any:
    """The launching function of an addition, as a plan has it."""
    return device.launching(np.add, "add", META.size, total=True)


def filled(device: Any, value: int) -> tuple[Any, Any]:
    """A buffer, and its array."""
    buffer = device.allocate(META.nbytes)
    array = device.bind(buffer, META)
    array.fill(value)
    return buffer, array


def test_freed_memory_is_poisoned_behind_the_launch_that_uses_it(device):
    (buffer, x), (_, result) = filled(device, 3), filled(device, 0)
    add_launched(device)(x, x, result)
    device.order.issued += 1
    buffer.behind = device.order.issued
    device.free(buffer)
    assert x[0] == 3
    device.compute[0].raw.synchronize()
    assert result[0] == 6
    assert x[0] == POISON


def test_memory_that_no_launch_uses_is_poisoned_at_once(device):
    buffer, x = filled(device, 3)
    device.free(buffer)
    assert x[0] == POISON


def test_a_result_of_unknown_shape_lies_in_memory_that_no_launch_uses(device):
    buffer, x = filled(device, 3)
    result = filled(device, 0)[1]
    add_launched(device)(x, x, result)
    device.order.issued += 1
    buffer.behind = 1
    device.free(buffer)
    adopted = device.adopt(np.full(META.shape, 9, META.dtype))
    assert device.owns(adopted.array)
    device.compute[0].raw.synchronize()
    assert (result[0], adopted.array[0]) == (6, 9)


def test_a_kernel_that_may_raise_waits_for_what_is_before_it_and_raises_where_it_is_called(device):
    x, result = filled(device, 3)[1], filled(device, 0)[1]
    add_launched(device)(x, x, result)

    def kernel(array: Any) -> None:
        raise ValueError(f"a {array[0]}")

    with pytest.raises(ValueError, match="a 6"):
        device.launching(kernel, "judge", 1, total=False)(result)
    assert device.broken is None


def test_a_copy_takes_what_its_source_holds_when_it_is_launched(device):
    target, source = filled(device, 0)[1], np.full(META.shape, 5, META.dtype)
    device.copy_in(target, source)
    source.fill(7)
    assert target[0] == 0
    device.compute[0].raw.synchronize()
    assert target[0] == 5


def test_a_stream_reports_what_it_has_computed_in_order(device, reports):
    tasks = [FakeTask(i, lambda: device.compute[0].raw.launch(len, ((),))) for i in range(100)]
    copies = device.copy_stream(StreamKind.H2D)
    copies.submit(tasks[:50])
    device.compute[0].submit(tasks[50:])
    reports.wait(100)
    assert [id_ for id_ in reports.ids if id_ < 50] == list(range(50))
    assert [id_ for id_ in reports.ids if id_ >= 50] == list(range(50, 100))


def test_a_launched_kernel_takes_its_operations_at_the_rate(open_device):
    device = open_device("sim:0", launches=True, compute_rate=1e6)
    launch = device.launching(len, "len", 10_000, total=True)
    launch(())
    queue = device.compute[0].queue
    before = queue.items[-1][3]
    queue.synchronize()
    assert queue.time - before >= 10_000_000


def test_a_device_closes_though_it_is_held_and_its_kernels_take_long(open_device, reports):
    device = open_device("sim:0", launches=True, compute_delay=3600.0)
    device.hold("compute")
    result = filled(device, 0)[1]
    kernel = add_launched(device)
    device.compute[0].submit([FakeTask(0, lambda: kernel(result, result, result))])
    assert device.close(WAIT)
    assert reports.ids == [0]


def test_a_device_that_hangs_is_given_up_when_it_closes(open_device):
    device = open_device("sim:0", launches=True, faults=[{"kind": "hang", "label": "add"}])
    result = filled(device, 0)[1]
    kernel = add_launched(device)
    device.compute[0].submit([FakeTask(0, lambda: kernel(result, result, result))])
    assert not device.close(0.05)


def test_with_several_compute_streams_nothing_is_launched_at_admission(open_device):
    assert not open_device("sim:0", launches=True, compute_streams=2).launches
