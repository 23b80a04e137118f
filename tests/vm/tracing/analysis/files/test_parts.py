"""A snapshot of the ring, taken in slices, equals the trace that the machine would have given at once."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.wire.messages import Sync
from tensord.vm.model.texts import WIDEST, SourceTexts, size_of
from tensord.vm.reporting import live_trace, locations
from tensord.vm.reporting.live_trace import SLICE, recent_parts, trace_parts
from tensord.vm.reporting.locations import LocationTexts
from tensord.vm.tracing.analysis.files.parts import read_parts
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.flat import LONG, SourceLocation

from .....each_case import each_case


@pytest.fixture
def machine(sim_session, machine_of):
    """A machine whose session has run a few instructions of every kind."""
    x = sim_session.asarray(np.ones((8, 8), np.float32))
    y = x.to_device("sim:0") @ x.to_device("sim:0")
    sim_session.call("add", [y, 1.0], out=[y])
    sim_session.call("unique_values", [x])
    y.numpy()
    sim_session.sync()
    return machine_of(sim_session)


def travelled(parts):
    """The parts after a trip over a socket."""
    return [msgpack.unpackb(msgpack.packb(part), use_list=False) for part in parts]


def test_it_is_the_same_trace_and_verifies(machine):
    whole = machine.trace()
    again = Trace.from_parts(travelled(trace_parts(machine.engine, LocationTexts(machine.engine))))
    assert again.records == whole.records
    assert (again.devices, again.dropped) == (whole.devices, whole.dropped)
    assert again.taken >= whole.taken
    assert again.verify() == []
    assert any("test_parts.py" in record.location for record in again.records)


def test_since_gives_what_was_erased_later(machine, sim_session):
    where = LocationTexts(machine.engine)
    first = read_parts(trace_parts(machine.engine, where))
    assert first.finished == len(first.records)
    sim_session.asarray([1.0])
    sim_session.sync()
    second = read_parts(trace_parts(machine.engine, where, first.tick))
    assert second.records
    assert {r.id for r in second.records}.isdisjoint(r.id for r in first.records)
    assert second.retired - first.retired == second.finished
    assert read_parts(trace_parts(machine.engine, where, second.tick)).records == []


def test_a_sample_has_the_newest_records_after_a_tick(machine, sim_session):
    where = LocationTexts(machine.engine)
    finished = machine.trace().records
    sample = read_parts(travelled(recent_parts(machine.engine, where, 0, 3)))
    newest = sorted(finished, key=lambda record: record.erased)[-3:]
    assert sorted(record.id for record in sample.records) == sorted(record.id for record in newest)
    assert sample.retired == len(finished)
    sim_session.asarray([1.0])
    sim_session.sync()
    after = read_parts(travelled(recent_parts(machine.engine, where, sample.tick, 1000)))
    assert len(after.records) == after.retired - sample.retired
    assert {record.id for record in after.records}.isdisjoint(record.id for record in finished)


def test_a_sample_has_the_oldest_live_instructions_and_says_how_many_there_are(machine, sim_session):
    device = machine.devices["sim:0"]
    device.hold("compute")
    x = sim_session.asarray(np.zeros(4), device="sim:0")
    results = [x + 1 for _ in range(10)]
    sim_session._core.outbox.flush()
    sample = read_parts(travelled(recent_parts(machine.engine, LocationTexts(machine.engine), 1 << 62, 4)))
    device.resume("compute")
    assert [record.op for record in sample.records] == ["add"] * 4
    assert [record.id for record in sample.records] == sorted(record.id for record in sample.records)
    assert (sample.live, len(results)) == (10, 10)


def test_of_many_edges_a_sample_has_the_first(machine, sim_session, monkeypatch):
    monkeypatch.setattr(live_trace, "EDGES", 8)
    device = machine.devices["sim:0"]
    device.hold("compute")
    x = sim_session.asarray(np.zeros(4), device="sim:0")
    results = [x + 1 for _ in range(10)]
    sim_session._core.outbox.flush()
    done = sim_session._core.outbox.ask(Sync)
    sample = read_parts(travelled(recent_parts(machine.engine, LocationTexts(machine.engine), 1 << 62, 100)))
    device.resume("compute")
    assert [len(record.edges) for record in sample.records if record.op == "sync"] == [2]
    assert len(results) == 10
    assert done is not None


def test_a_sample_says_how_long_it_took_without_what_happened_between_its_slices(machine, monkeypatch):
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(machine.engine.scheduler, "clock", lambda: next(clock))
    slices = []
    for part in recent_parts(machine.engine, LocationTexts(machine.engine), 0, 100):
        next(clock)  # the daemon does other work
        slices.append(part)
    assert read_parts(slices).spent == 15  # one slice, for which the clock is read twice, and the end


def test_slices_are_bounded_and_long_lists_of_edges_are_cut(machine, sim_session, monkeypatch):
    monkeypatch.setattr(live_trace, "EDGES", 8)
    device = machine.devices["sim:0"]
    device.hold("compute")
    x = sim_session.asarray(np.zeros(4), device="sim:0")
    results = [x + 1 for _ in range(SLICE)]
    sim_session._core.outbox.flush()
    done = sim_session._core.outbox.ask(Sync)  # a sync: an edge from every one of them
    slices = list(trace_parts(machine.engine, LocationTexts(machine.engine)))
    device.resume("compute")
    assert len(slices) >= 2
    assert max(map(len, slices)) <= SLICE
    assert max(len(entry[10]) for part in slices for entry in part if len(entry) == LONG) <= 8
    barrier = max(Trace.from_parts(travelled(slices)).records, key=lambda record: len(record.edges))
    assert (barrier.op, len(barrier.edges)) == ("sync", SLICE)
    sim_session._core.outbox.await_reply(done, 10)
    assert results[0].shape == (4,)


def test_what_retires_between_two_slices_is_in_it_once_as_finished(machine, sim_session, monkeypatch):
    monkeypatch.setattr(live_trace, "SLICE", 4)
    device = machine.devices["sim:0"]
    device.hold("compute")
    x = sim_session.asarray(np.zeros(4), device="sim:0")
    results = [x + number for number in range(20)]
    sim_session._core.outbox.flush()
    slices = trace_parts(machine.engine, LocationTexts(machine.engine))
    taken = [next(slices), next(slices)]
    device.resume("compute")
    sim_session.sync()
    trace = Trace.from_parts(travelled([*taken, *slices]))
    assert trace.verify() == []
    assert all(record.status == "DONE" for record in trace.records)
    assert len({record.id for record in trace.records}) == len(trace)
    assert len(results) == 20


def test_lines_of_ended_sessions_are_known_while_their_records_are(make_session, machine_of):
    first = make_session("local:ended", devices=["cpu:0"])
    second = make_session("local:ended", devices=["cpu:0"])
    machine = machine_of(first)
    where = LocationTexts(machine.engine)
    second.asarray([1.0])
    second.sync()
    ended = second._core.transport._session
    second.close()
    assert not any(r.location for r in read_parts(trace_parts(machine.engine, where)).records if r.session == ended.id)
    where.ended(ended)
    where.ended(ended)
    lines = [r.location for r in read_parts(trace_parts(machine.engine, where)).records if r.session == ended.id]
    assert any("test_parts.py" in line for line in lines)


def test_the_tables_of_ended_sessions_are_bounded(machine):
    def ended(id_: int, text: str) -> Any:
        source = SourceTexts(sys.maxsize)
        source.lines.keep(1, text)
        return SimpleNamespace(id=id_, source=source)

    where = LocationTexts(machine.engine)
    for number in range(1000, 1000 + 2 * locations.ENDED):
        where.ended(ended(number, "here"))
    known = [number for number in range(1000, 1000 + 2 * locations.ENDED) if where(number, 1).line]
    assert known == list(range(1000 + locations.ENDED, 1000 + 2 * locations.ENDED))
    where.ended(ended(5000, "x" * (locations.TEXT + 1)))
    assert where(5000, 1) == SourceLocation()
    where.ended(ended(5001, "x" * ((locations.TEXT - size_of("")) // WIDEST)))
    assert where(5001, 1).line
    assert not where(known[-1], 1).line


@each_case(
    "parts",
    [
        [],
        [[]],
        [[1]],
        [[(1, 2, 3, 4)]],
        [[{"devices": 5}]],
        [["abc"]],
        [[(1, "text")]],
        [[(1,) * LONG]],
        [[(1,) * 7]],
        [[((),), {"devices": ["cpu:0"], "taken": 1, "tick": 1, "since": 0, "retired": 0, "capacity": 0, "enabled": 1}]],
        [[(1,) * 9]],
        [None],
    ],
)
def test_what_is_no_picture_is_a_protocol_error(parts):
    with pytest.raises(ProtocolError, match="not what this version understands"):
        Trace.from_parts(parts)


def test_a_machine_without_tracing_says_so(make_session, machine_of):
    machine = machine_of(make_session(tracing=False))
    found = read_parts(trace_parts(machine.engine, LocationTexts(machine.engine)))
    assert (found.enabled, found.records, found.trace(Trace).dropped) == (False, [], 0)
