"""Dependencies: instructions are ordered where values need it, nowhere else, and nothing is left behind."""

from __future__ import annotations

import gc
import operator
import threading
from collections import deque
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.wire.message_kinds import CALL, SIGNATURE, UPLOAD
from tensord.streams.catalogue import close_devices, open_devices
from tensord.vm import engine as engine_module
from tensord.vm import machine as machine_module
from tensord.vm.engine import Engine
from tensord.vm.model.instruction import Instruction
from tensord.vm.tracing.ring import RecordRing

from .looking_inside import WAIT, assert_sound, device_of, held, machine_of, ones, records, until
from .made_ops import make_gate, make_op, raising

THREE_WORKERS = {"name": "cpu:0", "workers": 3}
TWO_STREAMS = {"name": "sim:0", "compute_streams": 2}
GATES = (("cpu:0", "compute0"), ("cpu:0", "compute1"), ("sim:0", "compute0"), ("sim:0", "compute1"), ("sim:0", "h2d"))
OPERATORS = (operator.add, operator.sub, operator.mul)


def edges_of(session: Any, op: str) -> list[tuple[str, str]]:
    """(reason, op of the source) of every edge into the one instruction of that op."""
    trace = session.trace()
    (record,) = [r for r in trace.records if r.op == op]
    return [(edge.reason, trace.require(edge.source).op) for edge in record.edges]


# --- 2: barriers


def test_a_barrier_waits_for_what_came_before_and_holds_nothing_later_back(make_session):
    """Behaviour 2: sync waits for everything before it; later instructions run while it still waits."""
    session = make_session(devices=[THREE_WORKERS])
    x, y = session.asarray(ones(4)), session.asarray(ones(4))
    session.sync()
    with held(session, "cpu:0", "compute0"):
        first = x * y
        with pytest.raises(TimeoutError):
            session.sync(timeout=0)
        later = x + y
        np.testing.assert_array_equal(later.wait(WAIT).numpy(), ones(4, value=2))
        assert not first.is_ready()
    session.sync(WAIT)
    assert first.is_ready()
    (multiply,) = records(session, "multiply")
    barrier = records(session, "sync")[1]
    assert [(edge.source, edge.reason) for edge in barrier.edges] == [(multiply.id, "barrier")]
    assert barrier.erased > multiply.erased
    (add,) = records(session, "add")
    assert add.edges == ()
    assert add.erased < barrier.erased
    assert_sound(session)


# --- 3: a long pending list


def test_a_long_pending_list_does_not_delay_what_finished():
    """Behaviour 3: with 100,000 messages pending, a pass releases finished instructions and admits a bounded window."""
    finished: deque[Any] = deque()
    reported = threading.Event()

    def sink(tasks: Any) -> None:
        finished.extend(tasks)
        reported.set()

    devices: dict[str, Any] = {**open_devices(["cpu:0"], sink)}
    try:
        devices["cpu:0"].hold("compute")
        engine = Engine(devices, lambda: 0)
        session = engine.open_session(lambda *_: None)
        meta = ((4,), "float32")
        engine.receive(session, [[UPLOAD, 1, (4,), "float32", "cpu:0", ones(4), 0]])
        engine.receive(session, [[SIGNATURE, 1, "add", (), (meta, meta), "cpu:0", None], [CALL, 1, (1, 1), (2,), 0, 0]])
        while engine.schedule():
            pass
        (waiting,) = [i for i in engine.live.values() if i.label == "add"]
        engine.receive(session, [[CALL, 1, (1, 1), (n,), 0, 0] for n in range(3, 100_003)])
        devices["cpu:0"].resume("compute")
        assert reported.wait(WAIT)
        engine.finished.extend(finished)
        assert engine.schedule()
        assert waiting.retired
        assert waiting.id not in engine.live
        assert engine.waiting().total() == 100_000 - engine_module.WINDOW
    finally:
        close_devices(devices, WAIT)


# --- 4: two instructions on one tensor


def test_two_reads_of_one_tensor_run_side_by_side(make_session, monkeypatch):
    """Behaviour 4: read-read; each kernel here only ends once the other one has started."""
    meeting = threading.Barrier(2)

    def meet(_xp: Any, inputs: Any, outputs: Any, _: Any) -> None:
        meeting.wait(WAIT)
        np.copyto(outputs[0], inputs[0])

    make_op(monkeypatch, "meet", meet)
    session = make_session(devices=[THREE_WORKERS])
    x = session.asarray(ones(4))
    left, right = session.call("meet", [x])[0], session.call("meet", [x])[0]
    left.wait(WAIT)
    right.wait(WAIT)
    assert [record.edges for record in records(session, "meet")] == [(), ()]
    assert_sound(session)


def test_a_write_waits_for_the_read_before_it(make_session, monkeypatch):
    """Behaviour 4: read-write. The write may be on another stream and ready first; it does not start."""
    gate = make_gate(monkeypatch)
    session = make_session(devices=[THREE_WORKERS])
    x, y = session.asarray(ones(4)), session.asarray(ones(4, value=5))
    reader = session.call("slow_copy", [x])[0]
    session.call("multiply", [y, y], out=[x])
    session.flush()
    assert gate.entered.wait(WAIT)
    assert not x.is_ready()
    assert session.stats()["by_status"]["WAITING"] >= 1
    gate.opened.set()
    np.testing.assert_array_equal(reader.numpy(), ones(4))
    np.testing.assert_array_equal(x.numpy(), ones(4, value=25))
    assert edges_of(session, "multiply") == [("WAR", "slow_copy")]
    assert_sound(session)


def test_a_read_waits_for_the_write_before_it(make_session, monkeypatch):
    """Behaviour 4: write-read."""
    gate = make_gate(monkeypatch)
    session = make_session(devices=[THREE_WORKERS])
    x, y = session.asarray(ones(4)), session.asarray(ones(4, value=5))
    session.call("slow_copy", [y], out=[x])
    result = x + y
    session.flush()
    assert gate.entered.wait(WAIT)
    assert not result.is_ready()
    gate.opened.set()
    np.testing.assert_array_equal(result.numpy(), ones(4, value=10))
    assert edges_of(session, "add") == [("RAW", "slow_copy")]
    assert_sound(session)


def test_a_write_waits_for_the_write_before_it(make_session, monkeypatch):
    """Behaviour 4: write-write; the last one in program order decides the value."""
    gate = make_gate(monkeypatch)
    session = make_session(devices=[THREE_WORKERS])
    x, y = session.asarray(ones(4)), session.asarray(ones(4, value=5))
    session.call("slow_copy", [y], out=[x])
    session.call("negative", [y], out=[x])
    session.flush()
    assert gate.entered.wait(WAIT)
    assert not x.is_ready()
    gate.opened.set()
    np.testing.assert_array_equal(x.numpy(), ones(4, value=-5))
    assert edges_of(session, "negative") == [("WAW", "slow_copy")]
    assert_sound(session)


# --- 5: in place


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_op_in_place_does_not_wait_for_itself(make_session, device, at_once):
    """Behaviour 5: add(x, x, out=x), on a stream and on the driving thread."""
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray(ones(4), device=device)
    session.sync()
    if not at_once:
        device_of(session, device).hold("compute")
    session.call("add", [x, x], out=[x])
    session.call("add", [x, x], out=[x])
    session.flush()
    device_of(session, device).resume("compute")
    np.testing.assert_array_equal(x.numpy(), ones(4, value=4))
    first, second = records(session, "add")
    (copy,) = {operand.copy for operand in first.operands}
    assert {operand.kind for operand in first.operands} == {"const", "mut"}
    assert first.edges == ()
    assert [edge[:3] for edge in second.edges] == ([] if at_once else [(first.id, "RAW", copy)])
    assert_sound(session)


# --- 6: bounded memory


def test_a_submitter_that_is_too_fast_is_slowed_and_loses_nothing(session, monkeypatch):
    """Behaviour 6: 5,000 independent ops against a stream that stands still: at most a window of them is alive."""
    assert machine_module.WINDOW <= 1 << 14
    monkeypatch.setattr(machine_module, "WINDOW", 512)
    machine, transport = machine_of(session), session._core.transport
    x = session.asarray(ones(4))
    session.sync()
    inner, peak, send = transport._session, 0, transport.send

    def watched(messages: Any) -> None:
        nonlocal peak
        send(messages)
        peak = max(peak, len(inner.live) + machine.engine.waiting().total())

    monkeypatch.setattr(transport, "send", watched)
    results: list[Any] = []
    submitter = threading.Thread(target=lambda: results.extend(x + float(n) for n in range(5000)))
    with held(session, "cpu:0", "compute"):
        submitter.start()
        until(session, lambda: peak > 512)
        assert submitter.is_alive()
        assert len(results) < 1000
    submitter.join(WAIT)
    assert not submitter.is_alive()
    assert [value[0] for value in session.fetch(results)] == [1.0 + n for n in range(5000)]
    assert 512 < peak <= 512 + 256 + 16  # the window and the batch that crossed it
    results.clear()
    assert_sound(session)


def test_a_long_run_of_independent_ops_leaves_no_growing_structure(session):
    """Behaviour 6: after 30,000 independent ops every table is as small as after 3,000."""
    machine, inner = machine_of(session), session._core.transport._session
    x = session.asarray(ones(4))

    def sizes(count: int) -> tuple[int, ...]:
        for n in range(count):
            x + float(n)
        session.sync()
        engine = machine.engine
        assert len(engine.ring.entries) <= (RecordRing().entries.maxlen or 0)
        queues = (
            engine.live,
            engine.pending,
            engine.scheduler.dispatcher.ready,
            engine.scheduler.dispatcher.doomed,
            engine.finished,
            engine.scheduler.dispatcher.batches,
        )
        tables = (
            inner.tensors,
            inner.plans,
            inner.source.lines,
            inner.live,
            inner.chains,
            session._core.calls._signatures.entries,
        )
        outbox = session._core.outbox
        mine = (outbox.messages, outbox.locations.sites, session._core.transport._replies.open, machine.recent_errors)
        return (*map(len, (*queues, *tables, *mine)), outbox._released.qsize(), len(engine.infer))

    before = sizes(3000)
    allocated = session.stats()["devices"]["cpu:0"]["allocated"]
    assert sizes(30_000) == before
    assert session.stats()["devices"]["cpu:0"]["allocated"] == allocated == x.numpy().nbytes
    assert session.stats()["retired"] >= 33_000


# --- 7: chains


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_a_chain_reaches_its_stream_as_one_batch(make_session, monkeypatch, device):
    """Behaviour 7: all links are handed over before the first one has run; dispatch elides the edges between them."""
    session = make_session(devices=["cpu:0", "sim:0"])
    x, y = session.asarray(ones(4), device=device), session.asarray(ones(4), device=device)
    session.sync()
    (stream,) = [s for s in device_of(session, device).compute if s.name.endswith("compute0")]
    batches: list[int] = []
    submit = stream.submit

    def note(tasks: Any) -> None:
        batches.append(len(tasks))
        submit(tasks)

    monkeypatch.setattr(stream, "submit", note)
    with held(session, device, "compute"):
        for _ in range(100):
            x += y
        session.flush()
        assert session.stats()["by_status"] == {"DISPATCHED": 100}
        assert batches == [100]
    np.testing.assert_array_equal(x.numpy(), ones(4, value=101))
    assert batches == [100]
    links = records(session, "add")
    assert [len(link.edges) for link in links] == [0] + [1] * 99
    assert all(edge.elided for link in links for edge in link.edges)
    assert {link.stream for link in links} == {stream.name}
    assert_sound(session)


# --- 8: empty afterwards


def test_after_the_work_the_machine_is_empty(make_session, monkeypatch):
    """Behaviour 8: no access, edge, instruction or buffer is left over, and none had to be found by the collector."""
    make_op(monkeypatch, "boom", raising)
    session = make_session(devices=["cpu:0", "sim:0", "sim:1"])
    machine = machine_of(session)
    inner = session._core.transport._session
    gc.collect()
    gc.disable()
    try:
        for device in session.devices:
            x = session.asarray(ones(4), device=device)
            with held(session, device, "compute"):
                y = (x + 1.0)[1:3] * 2.0
                x[0:2] = y
                z = x[1:3].to_device("sim:1") + session.call("boom", [y])[0]
                unique = session.call("unique_values", [x])[0] + 1.0
                session.effect(lambda *_: None, x)
                session.flush()
            assert unique.shape == (2,)
            with pytest.raises(td.KernelError):
                z.wait(WAIT)
            del x, y, z, unique
        session.sync()
        session.sync()
        engine = machine.engine
        alive = [o for o in gc.get_objects() if type(o) is Instruction and o.author is inner]
        assert alive == []
    finally:
        gc.enable()
    for queue in (
        engine.live,
        engine.pending,
        engine.scheduler.dispatcher.ready,
        engine.scheduler.dispatcher.doomed,
        engine.finished,
        engine.scheduler.dispatcher.batches,
    ):
        assert len(queue) == 0
    assert engine.scheduler.dispatcher.backlog == {}
    assert inner.tensors == {}
    assert inner.live == {}
    assert inner.barrier is None
    for device in engine.devices.values():
        assert (device.planned, device.backend.allocated, device.unreserved_bytes, device.unknown) == (0, 0, 0, 0)
        assert [
            len(t) for t in (device.live, device.unreserved, device.waiting, device.candidates, device.reusable)
        ] == [0] * 5
        assert all(stream.queued == 0 for stream in device.backend.streams)
    for chain in inner.chains.values():
        assert (chain.writer, chain.uses, chain.queued) == (None, 0, 0)
        assert not chain.readers
    assert_sound(session)
