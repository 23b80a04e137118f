"""Memory over time: who stood in it, the peak, and what could not be explained."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tensord.vm.tracing.analysis.filter import Filter
from tensord.vm.tracing.analysis.memory import HOLDERS, derived, memory, stays_of
from tensord.vm.tracing.analysis.memory_picture import to_svg
from tensord.vm.tracing.analysis.trace import Memory, Trace
from tensord.vm.tracing.record import Holding, MetaRecord

from .trace_programs import record

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
    assert {stay.copy: (stay.begin, stay.end) for stay in stays_of(trace)} == {
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
    assert (cpu.peak, [stay.copy for stay in cpu.standing]) == (3072, [1, 2, 3])  # of 1 we know the line alone
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


def test_a_transfer_to_the_host_fills_the_hosts_memory():
    moved = made(1, 5, 10, 20, opcode="Transfer", op="d2h sim:0->cpu:0", device="sim:0")
    (stay,) = stays_of(Trace([moved]))
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


class TestOfAMachine:
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
        assert cpu.peak <= 2 * 4000
        assert cpu.other <= 4000
