"""Memory over time: the values in it, the peak, and unexplained bytes."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tensord.vm.tracing.analysis.recorded.filter import Filter
from tensord.vm.tracing.analysis.recorded.records import Memory
from tensord.vm.tracing.analysis.sums import memory_picture
from tensord.vm.tracing.analysis.sums.memory import (
    HOLDERS,
    DeviceMemory,
    derived,
    extent,
    holder_of,
    lifetimes_of,
    memory,
    until_taken_over,
)
from tensord.vm.tracing.analysis.sums.memory_picture import to_svg
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import Holding, MetaRecord

from ..trace_programs import record

KIB = (MetaRecord((256,), "float32"),)


def made(number, copy, begin, end, *operands, used=0, op="add", **fields):
    stamps = {"received": begin, "ready": begin, "dispatched": begin, "started": begin, "finished": end}
    ticks = (2 * number, 2 * number + 1)
    return record(number, *operands, (copy, "mut"), ticks=ticks, op=op, outputs=KIB, used=used, **(stamps | fields))


@pytest.fixture
def trace():
    """Copy 1 stands from before the trace to the end, 2 from 10 to 40, 3 from 30 to 50, 4 from 60 on."""
    records = [
        made(1, 2, 10, 20, used=2048, location="a.py:1"),
        made(2, 3, 30, 40, (2, "const"), used=3072, op="mul", location="a.py:2"),
        record(3, (3, "freed"), opcode="ReleaseTensor", ticks=(6, 7), started=50, finished=50),
        made(4, 4, 60, 70, used=2048),
    ]
    old = Holding(1, "cpu:0", 1024, "upload", 1, "a.py:0", ("weights",))
    new = Holding(4, "cpu:0", 1024, "add", 1, "a.py:3", ())
    return Trace(records, devices=["cpu:0", "sim:0"], taken=80, memory=Memory({"cpu:0": 2048, "sim:0": 0}, (old, new)))


def test_a_copy_stands_from_its_first_write_to_its_last_mention(trace):
    assert {stay.copy: (stay.begin, stay.end) for stay in lifetimes_of(trace)} == {
        1: (0, 80),
        2: (10, 40),
        3: (30, 50),
        4: (60, 80),
    }


def test_a_filter_leaves_the_copies_that_its_records_made(trace):
    (cpu,) = memory(trace, Filter(op="mul"))
    assert (cpu.peak, cpu.at, [stay.copy for stay in cpu.standing], cpu.other) == (1024, 30, [3], 0)
    assert cpu.curve == [(30, 1024), (51, 0)]
    (cpu,) = memory(trace, Filter(location="a.py"))
    assert (cpu.peak, [stay.copy for stay in cpu.standing]) == (3072, [1, 2, 3])  # of copy 1 only the line is known
    assert memory(trace, Filter(op="matmul")) == []
    assert memory(trace, Filter()) == memory(trace)


def test_the_peak_names_who_stood_in_it_the_largest_first(trace):
    (cpu,) = memory(trace)
    assert (cpu.device, cpu.peak, cpu.at, cpu.other) == ("cpu:0", 3072, 30, 0)
    assert [stay.copy for stay in cpu.standing] == [1, 2, 3]
    assert [(one.key, one.nbytes) for one in cpu.holders(HOLDERS["op"])] == [
        ("add", 1024),
        ("mul", 1024),
        ("upload", 1024),
    ]
    assert [one.key for one in cpu.holders(HOLDERS["name"])] == ["without a name", "weights"]


def test_by_span_the_spans_of_a_loop_are_one_holder(trace):
    records = [one._replace(span=(f"step {one.id}", "load")) if one.outputs else one for one in trace.records]
    (cpu,) = memory(Trace(records, devices=["cpu:0"], taken=80, memory=trace.memory))
    holders = cpu.holders(holder_of(cpu, "span"))
    assert [(one.key, one.count) for one in holders] == [("step */load", 2), ("outside of spans", 1)]


def test_what_nothing_explains_is_other(trace):
    records = [one._replace(used=one.used + 5000 * (one.id == 4)) for one in trace.records]
    (cpu,) = memory(Trace(records, devices=["cpu:0"], taken=80, memory=trace.memory))
    assert (cpu.peak, cpu.other) == (7048, 7048 - 2048)
    assert cpu.holders(HOLDERS["session"])[0].key == "other"


def test_a_recording_that_does_not_tell_has_the_sum_over_the_copies(trace):
    records = [one._replace(used=0) for one in trace.records]
    old = Trace(records, devices=["cpu:0"], taken=80)
    (cpu,) = memory(old)
    assert (cpu.peak, cpu.at) == (2048, 30)
    assert derived([]) == []


class TestBetweenMeasurements:
    """Records measure memory when results get theirs; the changes in between are derived."""

    def curve(self, *records, used=0, held=(), taken=1000):
        (cpu,) = memory(Trace(records, devices=["cpu:0"], taken=taken, memory=Memory({"cpu:0": used}, held)))
        return cpu.curve

    def test_a_release_frees_memory_when_it_happens(self):
        release = record(2, (1, "freed"), opcode="ReleaseTensor", ticks=(4, 5), started=50, finished=51)
        assert self.curve(made(1, 1, 10, 20, used=1024), release) == [(10, 1024), (52, 0), (1000, 0)]

    def test_an_operand_that_dies_with_its_last_use_frees_memory_then(self):
        last = made(2, 2, 30, 40, (1, "const"), used=2048)
        held = Holding(2, "cpu:0", 1024, "add", 1, "", ())
        found = self.curve(made(1, 1, 10, 20, used=1024), last, used=1024, held=(held,))
        assert found == [(10, 1024), (30, 2048), (41, 1024), (1000, 1024)]

    def test_memory_that_was_handed_on_is_not_freed(self):
        """Copy 2 took over the memory of copy 1, which ends."""
        chain = [
            made(1, 1, 10, 20, used=1024),
            made(2, 2, 30, 40, (1, "const"), used=1024),
            made(3, 3, 500, 510, used=2048),
        ]
        assert self.curve(*chain, used=0)[:2] == [(10, 1024), (30, 1024)]

    def test_memory_that_was_handed_on_has_one_holder(self):
        """Copy 2 took over the memory of copy 1 while another stream's kernel, which reads copy 8, ends at 60."""
        chain = [
            made(1, 1, 10, 20, used=2048),
            made(2, 2, 30, 40, (1, "const"), inputs=KIB, used=2048),
            made(3, 3, 35, 60, (8, "const"), inputs=KIB, used=3072),
        ]
        trace = Trace(chain, devices=["cpu:0"], taken=100, memory=Memory({"cpu:0": 0}, ()))
        stays = {stay.copy: (stay.begin, stay.end) for stay in until_taken_over(trace, list(lifetimes_of(trace)))}
        assert stays == {1: (10, 29), 2: (30, 40), 3: (35, 60), 8: (0, 60)}

    def test_an_operand_that_stood_beside_its_result_is_not_taken_for_handed_on(self):
        chain = [made(1, 1, 10, 20, used=1024), made(2, 2, 30, 40, (1, "const"), used=2048)]
        trace = Trace(chain, devices=["cpu:0"], taken=100, memory=Memory({"cpu:0": 0}, ()))
        assert {stay.end for stay in until_taken_over(trace, list(lifetimes_of(trace)))} == {40}

    def test_instructions_that_wait_in_their_stream_have_made_their_results(self):
        """3 and 4 have not started; the result of each takes over the memory of the one before it. 5 has no memory."""
        live = {"inputs": KIB, "started": 0, "finished": 0, "stream": "cpu:0/compute0", "dispatched": 30}
        chain = [
            made(1, 1, 10, 20, used=1024, op="upload"),
            made(2, 2, 30, 40, (1, "const"), inputs=KIB, used=2048),
            made(3, 3, 30, 0, (2, "const"), used=2048, op="mul", **live),
            made(4, 4, 30, 0, (3, "const"), used=2048, op="sub", **live),
            made(5, 5, 30, 0, (4, "const"), op="div", **(live | {"dispatched": 0})),
            made(6, 6, 30, 0, (5, "const"), op="neg", **(live | {"dispatched": 0})),
        ]
        held = Holding(1, "cpu:0", 1024, "upload", 1, "", ())
        (cpu,) = memory(Trace(chain, devices=["cpu:0"], taken=100, memory=Memory({"cpu:0": 2048}, (held,))))
        assert (cpu.peak, cpu.other) == (2048, 0)
        assert [(one.copy, one.op, one.begin, one.end) for one in cpu.standing] == [
            (1, "upload", 10, 100),
            (4, "sub", 30, 100),
        ]

    def test_what_the_next_measurement_finds_was_there_before(self):
        """Copy 1 has no use after 20, and yet its memory was there at 500: a replica, for example."""
        assert self.curve(made(1, 1, 10, 20, used=1024), made(2, 2, 500, 510, used=2048))[1] == (21, 1024)

    def test_an_upload_that_nothing_measured_is_added(self):
        upload = made(2, 2, 30, 40, opcode="Upload", op="upload")
        release = record(3, (2, "freed"), opcode="ReleaseTensor", ticks=(8, 9), started=50, finished=51)
        held = Holding(1, "cpu:0", 1024, "add", 1, "", ())
        found = self.curve(made(1, 1, 10, 20, used=1024), upload, release, used=1024, held=(held,))
        assert found == [(10, 1024), (30, 2048), (52, 1024), (1000, 1024)]


def test_a_transfer_to_the_host_fills_the_hosts_memory():
    moved = made(1, 5, 10, 20, opcode="Transfer", op="d2h sim:0->cpu:0", device="sim:0")
    (stay,) = lifetimes_of(Trace([moved]))
    assert (stay.device, stay.copy) == ("cpu:0", 5)


def test_the_picture_is_well_formed_and_obeys_no_text_of_a_user(trace):
    nasty = trace.records[0]._replace(location="</text><script>&\x00", op="<b>")
    drawn = to_svg(memory(Trace([nasty, *trace.records[1:]], devices=trace.devices, taken=80, memory=trace.memory)))
    root = ET.fromstring(drawn)  # noqa: S314 - our own picture
    assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}
    assert any("peak 3 KiB" in (element.text or "") for element in root.iter())
    assert "no memory was in use" in to_svg([])


def test_a_long_curve_is_thinned_and_keeps_its_peak(trace):
    (cpu,) = memory(trace)
    cpu.curve[:] = [(n, 3072 if n == 7777 else 1) for n in range(20_000)]
    assert to_svg([cpu]).count(",") < 20_000


def test_a_thinned_curve_ends_as_low_as_the_whole_one(trace):
    """The curve's last piece has a high point, and then a long time without work."""
    (cpu,) = memory(trace)
    cpu.curve[:] = [(n, 3072) for n in range(19_999)] + [(1_000_000, 1)]
    assert memory_picture._thinned(cpu.curve)[-1] == (1_000_000, 1)


def test_who_stood_in_the_peak_has_a_line_that_fits(trace):
    long = trace.records[1]._replace(location=" <- ".join(["a_long_folder/module.py:123 in some_function"] * 4))
    drawn = ET.fromstring(to_svg(memory(Trace([trace.records[0], long], devices=["cpu:0"], taken=80))))  # noqa: S314 - our own picture
    shown = [
        (element.text or "", [inner.text for inner in element])
        for element in drawn.iter()
        if element.tag.endswith("}text")
    ]
    assert all(len(text) <= 120 for text, _ in shown), "letters are some 7 px wide, the picture is 900"
    assert any(long.location in (inner or "") for _, titles in shown for inner in titles)


def test_all_devices_have_one_time_axis():
    """The second device has memory from the middle of the time on."""
    early = DeviceMemory("cpu:0", [(1_000, 1), (3_000, 2)], 2, 3_000)
    late = DeviceMemory("sim:0", [(3_000, 5), (5_000, 4)], 5, 3_000)
    assert extent([early, late]) == (1_000, 5_000)
    assert extent([]) == (0, 0)
    root = ET.fromstring(to_svg([early, late]))  # noqa: S314 - our own picture
    areas = [element.get("points", "").split() for element in root.iter() if element.tag.endswith("}polygon")]
    begins, ends = ([float(area[index].split(",")[0]) for area in areas] for index in (0, -1))
    assert begins == [90, 485]
    assert ends == [880, 880], "what is in use at the last point stays so"
    texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert texts.count("4 us") == texts.count("2 us") == 2


class TestOfAMachine:
    def test_memory_falls_when_the_last_tensors_are_released(self, make_session):
        session = make_session(devices=["cpu:0"])
        x = session.asarray(np.ones(100_000, np.float32))
        y = x + 1.0
        y.numpy()
        del x, y
        session.sync()
        released = [one for one in session.trace().records if one.opcode == "ReleaseTensor"]
        (cpu,) = memory(session.trace())
        assert (cpu.peak, cpu.curve[-1][1]) == (800_000, 0)
        assert (released[-1].finished + 1, 0) in cpu.curve

    def test_weights_made_before_the_ring_began_are_known_with_their_line(self, make_session, machine_of):
        from collections import deque

        session = make_session(devices=["cpu:0"])
        w = session.asarray(np.ones(100_000, np.float32))
        session.publish("weights", w)
        ring = machine_of(session).engine.ring
        ring.entries = deque(maxlen=8)
        ring.append = ring.entries.append
        for _ in range(20):
            session.call("add", [w, 1.0])[0].numpy()
        (cpu,) = memory(session.trace())
        (stay,) = [one for one in cpu.standing if one.names]
        assert (stay.op, stay.nbytes, stay.names, stay.session) == ("upload", 400_000, ("weights",), 1)
        assert "test_memory.py" in stay.location
        assert cpu.peak == 800_000
        assert cpu.other == 0, cpu.standing

    def test_holders_explain_the_peak_of_a_chain_that_hands_its_memory_on(self, make_session):
        session = make_session(devices=["cpu:0"])
        x = session.asarray(np.ones(1000, np.float32))
        for _ in range(50):
            x = x + 1.0
        x.numpy()
        (cpu,) = memory(session.trace())
        assert cpu.peak == 4000
        assert cpu.other == 0
        assert sum(stay.nbytes for stay in cpu.standing) == 4000

    def test_evictions_leave_the_peak_at_the_limit_of_the_device(self, make_session):
        value = np.random.default_rng(1).random((64, 64))
        room = 8 * value.nbytes
        small = {"name": "sim:0", "memory": room, "compute_delay": 0.001}
        session = make_session(devices=["cpu:0", small, "sim:1"])
        tensors = [session.asarray(value, device="sim:0") for _ in range(12)]
        for number in range(len(tensors)):
            tensors[number] *= 2
        moved = [(tensor @ tensor).to_device("sim:1") for tensor in tensors]
        session.sync()
        assert len(moved) == len(tensors)
        (peak,) = [one.peak for one in memory(session.trace()) if one.device == "sim:0"]
        assert peak == room
