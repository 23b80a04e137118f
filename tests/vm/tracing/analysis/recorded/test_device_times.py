"""The device's times of instructions that were launched at admission."""

from __future__ import annotations

import numpy as np

import tensord as td
from tensord.interpreter.opcodes import Opcode
from tensord.vm.tracing.analysis.recorded.device_times import on_devices
from tensord.vm.tracing.analysis.sums.stats import stats
from tensord.vm.tracing.analysis.trace import Trace

from ..trace_programs import record


def launch(number, called, work=0, device="cuda:0"):
    times = {"received": called, "ready": called, "dispatched": called, "started": called, "finished": called + 10}
    ticks = (2 * number, 2 * number + 1)
    return record(number, ticks=ticks, device=device, stream="compute0", launch=number, work=work, **times)


def fence(id_, number, passed, device="cuda:0"):
    return record(
        id_,
        ticks=(2 * id_, 2 * id_ + 1),
        opcode=Opcode.FENCE.value,
        op="fence",
        device=device,
        launch=number,
        finished=passed,
    )


def found(*records):
    return [(one.started, one.finished) for one in on_devices(Trace(records)).records if one.opcode == Opcode.CALL]


def test_launches_share_the_time_up_to_their_fence_by_their_work():
    assert found(launch(1, 0, 100), launch(2, 10, 300), fence(3, 2, 40_010)) == [(10, 11_010), (11_010, 40_010)]


def test_and_from_the_fence_before():
    launches = [launch(1, 0, 1), launch(2, 20, 1), launch(3, 40, 1)]
    assert found(*launches, fence(4, 1, 5_000), fence(5, 3, 11_000)) == [(10, 5_000), (5_000, 8_000), (8_000, 11_000)]


def test_none_begins_before_it_was_launched():
    assert found(launch(1, 0, 1), launch(2, 9_000, 1), fence(3, 2, 10_000)) == [(10, 5_005), (9_010, 10_000)]


def test_where_there_is_too_little_time_all_have_as_much():
    assert found(launch(1, 0, 1), launch(2, 10, 1000), fence(3, 2, 2_010)) == [(10, 1_010), (1_010, 2_010)]


def test_what_no_fence_covers_keeps_its_times():
    assert found(launch(1, 0), launch(2, 10), fence(3, 1, 100)) == [(10, 100), (10, 20)]
    trace = Trace([launch(1, 0), fence(3, 1, 0)])  # the fence has not passed
    assert on_devices(trace) is trace


def test_a_fence_is_a_moment_and_a_value_that_is_read_takes_its_part():
    (_, moment) = on_devices(Trace([launch(1, 0), fence(2, 1, 900)])).records
    assert (moment.started, moment.finished) == (900, 900)
    reading = fence(2, 1, 10_010)._replace(opcode=Opcode.ACCESS.value, started=20)
    (op, value) = on_devices(Trace([launch(1, 0), reading])).records
    assert (op.started, op.finished, value.started, value.finished) == (10, 5_010, 5_010, 10_010)


def test_each_device_has_fences_of_its_own():
    records = [
        launch(1, 0, 5),
        launch(2, 10, 5, device="cuda:1"),
        fence(3, 1, 900),
        fence(4, 2, 5_000, device="cuda:1"),
    ]
    assert found(*records) == [(10, 900), (20, 5_000)]


def test_the_sums_have_the_time_of_kernels_on_a_device_that_launches():
    device = {"name": "sim:0", "launches": True, "compute_delay": 2e-3}
    with td.connect("local", devices=["cpu:0", device]) as session:
        x = session.asarray(np.ones(4, np.float32), device="sim:0")
        (x + x).wait()
        session.sync()
        trace_begins = len(session.trace().records)
        for _ in range(10):
            x = x + x
        session.fetch([x])
        trace = session.trace()
    (row,) = [one for one in stats(trace, trace.records[trace_begins:]).ops if one.key == "add"]
    assert row.count == 10
    assert 2e6 <= row.mean < 2e7
