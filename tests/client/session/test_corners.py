"""Rare interleavings of threads, signals, dropped sessions and reused numbers."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tensord as td
from tensord.client.calls import signatures
from tensord.client.locations.locations import Locations
from tensord.interpreter.wire.messages import Fetch

from ...forked import run_script

WAIT = 30.0


def machine_of(session):
    return session._core.transport.machine


def test_a_number_taken_over_between_look_up_and_append_is_noticed(session, monkeypatch):
    """Another thread's signatures may recycle the number that a call has just looked up."""
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 8)
    x, y = session.asarray([3.0]), session.asarray([5.0])
    assert (x + y).item() == 8.0
    number = Locations.site
    pending = [True]

    def interfere(locations, frame):
        if pending:
            pending.clear()
            for name in ("multiply", "subtract", "divide", "maximum", "minimum", "power", "remainder", "less", "equal"):
                session.call(name, [x, y])
        return number(locations, frame)

    monkeypatch.setattr(Locations, "site", interfere)
    assert (x + y).item() == 8.0
    assert not pending


def test_an_old_reader_keeps_its_dtype_when_the_tensor_is_handed_down(sim_session):
    device = machine_of(sim_session).devices["sim:0"]
    a, b = sim_session.asarray(np.full(4, 2, np.float32)), sim_session.asarray(np.zeros(4, np.float32))
    sim_session.call("add", [a, b], device="sim:0")[0].wait()
    device.hold("compute")
    old = sim_session.call("add", [a, b], device="sim:0")[0]
    named = old._id
    reply = sim_session._core.outbox.ask(lambda request, location: Fetch(named, request, location, 0))
    sim_session.call("add", [a, a], out=[old], device="cpu:0")
    new = sim_session.call("astype", [old], {"dtype": "int32"}, device="cpu:0")[0]
    del old
    sim_session.flush()
    device.resume("compute")
    read = sim_session._core.outbox.await_reply(reply, WAIT)
    assert (read.dtype, read.tolist()) == (np.float32, [2.0] * 4)
    assert new.numpy().tolist() == [4] * 4


def test_a_machine_shared_by_name_does_not_take_other_options(make_session, machines):
    if machines == "daemon":
        pytest.skip("a daemon has the devices that it was started with")
    make_session("local:options", devices=["cpu:0", {"name": "sim:0", "memory": 1 << 20}])
    with pytest.raises(td.MetadataError, match="exists already"):
        td.connect("local:options", devices=["cpu:0", {"name": "sim:0", "memory": 1 << 30}])


def test_a_dropped_session_closes_its_machine():
    session = td.connect("local")
    machine = machine_of(session)
    thread = machine.background.thread
    del session
    gc.collect()
    thread.join(WAIT)
    assert machine.closed


def test_a_program_may_end_without_closing_while_a_kernel_runs(tmp_path):
    (tmp_path / "script.py").write_text("""
import numpy as np, tensord as td
s = td.connect("local")
z = s.asarray(np.ones((1500, 1500), np.float32))
z = z @ z
s.flush()
""")
    assert run_script(str(tmp_path / "script.py")).returncode == 0


def test_sync_waits_for_the_transfers_that_were_asked_for(make_session):
    session = make_session(devices=["cpu:0", "sim:0"])
    device = machine_of(session).devices["sim:0"]
    device.hold("h2d")
    y = session.asarray(np.arange(3.0)).to_device("sim:0")
    session.flush()
    with pytest.raises(TimeoutError):
        session.sync(timeout=0.05)
    device.resume("h2d")
    session.sync()
    assert y.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert session.trace().verify() == []


def test_a_callback_may_keep_its_arrays(session):
    kept: list[np.ndarray] = []
    z = session.asarray(np.arange(4.0)) * 1
    session.effect(kept.append, z)
    session.check_chain()
    z += 100
    session.sync()
    assert kept[0].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_an_unknown_chain_is_refused_at_the_call(session):
    for chain in ("x", 77, True):
        with pytest.raises(td.ProtocolError, match="is not a chain"):
            session.effect(print, chain=chain)


def test_asarray_of_a_tensor_takes_a_dtype(session):
    x = session.asarray([1.5, 2.5])
    assert session.asarray(x, dtype="int32").numpy().tolist() == [1, 2]


def test_asking_whether_it_is_ready_needs_no_credit(make_session, monkeypatch):
    from tensord.vm import machine

    monkeypatch.setattr(machine, "WINDOW", 16)
    session = make_session(devices=["cpu:0"])
    device = machine_of(session).devices["cpu:0"]
    x = session.asarray(np.ones(4))
    session.sync()
    device.hold("compute")
    y = [x + float(i) for i in range(40)]
    assert not y[-1].is_ready()
    assert y[-1].error is None
    assert session.stats()["session"]["live"] > 16
    device.resume("compute")
    assert y[-1].wait().is_ready()


def test_locations_are_bounded_on_both_sides(session, monkeypatch):
    from tensord.client.locations import locations

    monkeypatch.setattr(locations, "MAX_SITES", 50)
    monkeypatch.setattr(locations, "SITE_NUMBERS", 100)
    x = session.asarray([1.0])
    for i in range(300):
        exec(compile("x + 1", f"cell {i}", "exec"), {"x": x})  # noqa: S102 - cells of a notebook
    session.sync()
    assert len(session._core.outbox.locations.sites) <= 50
    assert len(session._core.transport._session.source.lines) <= 100


def test_any_number_of_operands_may_be_dropped_with_the_call_that_uses_them(session):
    """A call marks some of them by bits; each is released once all the same, and no other tensor."""
    kept = session.asarray(-1.0)
    rows = [session.asarray(float(n)) for n in range(200)]
    whole = session.call("stack", [*rows, kept, kept, rows[3], rows[199]])[0]
    rows.clear()
    assert whole.numpy().tolist() == [*range(200), -1.0, -1.0, 3.0, 199.0]
    assert kept.item() == -1.0
    assert session.stats()["session"]["tensors"] == 2


def test_signatures_of_many_operands_take_numbers_of_their_own(session, monkeypatch):
    """The daemon counts the operands of all signatures: a few wide ones are known at a time, however many are used."""
    monkeypatch.setattr(signatures, "MAX_LONG_SIGNATURES", 2)
    xp, width = session.xp, signatures.MANY_OPERANDS + 1
    parts = [session.asarray(np.full(n, n)) for n in range(1, 6)]
    y = parts[0] + parts[0]
    for _ in range(2):
        joined = [xp.concat([part] * width) for part in parts]
        assert [each.shape for each in joined] == [(n * width,) for n in range(1, 6)]
        assert [int(each[-1]) for each in joined] == [1, 2, 3, 4, 5]
    assert (y + y).item() == 4
