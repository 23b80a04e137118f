"""Sessions: names, sync, cancel, stats, the end."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensord as td

from ...behaviours.looking_inside import WAIT, assert_sound, device_of, held, machine_of, ones
from ...behaviours.made_ops import make_gate
from ...each_case import each_case
from ...puppet import eventually


def test_a_session_is_a_context_manager():
    with td.connect("local") as s:
        machine = machine_of(s)
        assert s.devices == ["cpu:0"]
        np.testing.assert_array_equal((s.asarray([1]) + 1).numpy(), [2])
    assert machine.closed
    assert "closed" in repr(s)


def test_a_closed_session_neither_saves_nor_loads_and_says_that_it_is_closed(make_session, tmp_path):
    s = make_session()
    x = s.asarray([1.0])
    s.close()
    for use in (lambda: s.save(tmp_path / "x.safetensors", {"x": x}), lambda: s.load(tmp_path / "x.npz")):
        with pytest.raises(td.ConnectionLost, match="the session is closed") as caught:
            use()
        assert "test_session.py" in str(caught.value.location)
    assert list(tmp_path.iterdir()) == []


def test_the_default_address_is_one_machine_for_the_process():
    with td.connect() as a, td.connect() as b, td.connect("local") as c:
        assert machine_of(a) is machine_of(b)
        assert machine_of(a) is not machine_of(c)
        a.close()
        np.testing.assert_array_equal((b.asarray([1]) + 1).numpy(), [2])
        with pytest.raises(td.MetadataError, match="exists already, with devices cpu:0"):
            td.connect(devices=["sim:0"])


def test_closing_while_kernels_run_ends_their_waits(make_session, monkeypatch):
    gate = make_gate(monkeypatch)
    session = make_session(devices=[{"name": "cpu:0", "workers": 2}])
    slow = session.call("slow_copy", [session.asarray(ones(4))])[0]
    ended: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(td.TensordError) as caught:
            slow.numpy()
        ended.append(caught.value)
        gate.opened.set()

    waiter = threading.Thread(target=wait)
    session.flush()
    assert gate.entered.wait(WAIT)
    waiter.start()
    assert machine_of(session).wait_until(lambda: session._core.transport._replies.open, WAIT)
    session.close()
    waiter.join(WAIT)
    assert type(ended[0]) in {td.ConnectionLost, td.CancelledError}


def test_a_dict_is_published_looked_up_and_taken_away_at_once(make_session):
    a = make_session("local:shared")
    b = make_session("local:shared", devices=None)
    a.publish({name: a.asarray([n]) for n, name in enumerate("xyz")})
    found = b.lookup(["z", "x"])
    assert {name: t.item() for name, t in found.items()} == {"z": 2, "x": 0}
    with pytest.raises(td.MetadataError, match="'none'"):
        b.lookup(["x", "none"])
    with pytest.raises(td.MetadataError, match="'none'"):
        b.unpublish("x", "none")
    a.publish("x", a.asarray([7]))  # replaces the name; a session that looked it up keeps the old tensor
    assert b.lookup("x").item() == 7
    assert found["x"].item() == 0
    b.unpublish("x", "x", "y", "z")
    assert b.stats()["names"] == []
    found.clear()
    a.sync()
    assert_sound(b)
    assert b.stats()["devices"]["cpu:0"]["allocated"] == 0


def test_a_pending_tensor_can_be_published(make_session):
    a = make_session("local:shared")
    b = make_session("local:shared", devices=None)
    a.publish("u", a.call("unique_values", [a.asarray([2, 1, 2])])[0])
    u = b.lookup("u")
    assert u.shape == (2,)
    np.testing.assert_array_equal((u + 1).numpy(), [2, 3])


def test_sync_waits_for_what_was_issued_and_does_not_raise(session):
    x = session.asarray(ones(4))
    with held(session, "cpu:0", "compute"):
        y = x + x
        with pytest.raises(TimeoutError):
            session.sync(timeout=0)
    session.sync()
    assert y.is_ready()
    session.sync(timeout=WAIT)


def test_restart_without_cancel_changes_nothing(session):
    x = session.asarray(ones(4))
    y = x + x
    session.restart()
    np.testing.assert_array_equal(y.numpy(), ones(4, value=2))


def test_stats_count_exactly(make_session):
    s = make_session(devices=["cpu:0", "sim:0"])
    x = s.asarray(ones(4), device="sim:0")
    y = (x + x).to_device("cpu:0")
    y.wait()
    stats = s.stats()
    assert stats["devices"]["sim:0"]["allocated"] == stats["devices"]["sim:0"]["planned"] == 32
    assert stats["devices"]["cpu:0"]["allocated"] == 16
    assert stats["transfers"]["sim:0"]["h2d"] == {"count": 1, "bytes": 16}
    assert stats["transfers"]["sim:0"]["d2h"] == {"count": 1, "bytes": 16}
    assert stats["session"]["tensors"] == 2
    assert (stats["live"], stats["pending"], stats["failed"], stats["hung"]) == (0, 0, 0, [])
    assert stats["retired"] == len(s.trace().records)


def test_without_tracing_there_are_no_records(make_session):
    s = make_session(tracing=False)
    (s.asarray(ones(4)) + 1.0).wait()
    assert len(s.trace()) == 0
    assert s.stats()["retired"] > 0


def test_what_finishes_while_somebody_looks_is_not_forgotten(session, monkeypatch):
    """A stream rings no bell while the lock is held; the thread with the lock has to look again."""
    device = device_of(session, "cpu:0")
    machine = machine_of(session)
    x = session.asarray(ones(4))
    session.sync()
    device.hold("compute")
    y = x + x
    session.flush()
    reported = threading.Event()
    sink = machine.sink

    def watched(tasks: Any) -> None:
        sink(tasks)
        reported.set()

    for stream in device.streams:
        monkeypatch.setattr(stream, "_sink", watched)
    answer = machine.engine.admission.answer

    def look(*arguments: Any) -> Any:
        device.resume("compute")
        assert reported.wait(WAIT)
        return answer(*arguments)

    monkeypatch.setattr(machine.engine.admission, "answer", look)
    session.stats()
    assert not machine.engine.finished
    assert y.is_ready()


def test_the_public_names_are_the_ones_that_dir_shows():
    shown = set(dir(td))
    assert {*td.__all__, "array_api", "handlers"} <= shown
    assert not {"annotations", "Any", "Mapping", "TYPE_CHECKING", "_HOMES", "_MODULES"} & shown
    assert all(getattr(td, name) is not None for name in shown)


def test_several_values_come_at_once_and_the_first_error_is_raised(sim_session):
    s = sim_session
    x = s.asarray(np.arange(4.0))
    chosen = s.call("nonzero", [x > 1])[0]
    first, second, third = s.fetch([x + 1, (x * 2).to_device("sim:0"), chosen])
    assert (first.tolist(), second.tolist(), third.tolist()) == ([1, 2, 3, 4], [0, 2, 4, 6], [[2, 3]])
    assert chosen._meta is not None
    assert s.fetch([]) == []
    s.cancel()
    late = x + 1
    s.restart()
    with pytest.raises(td.CancelledError, match=r"test_session\.py"):
        s.fetch([x, late, x])
    assert s.fetch([x])[0].tolist() == [0, 1, 2, 3]


def test_a_session_that_is_pickled_says_what_to_do(session):
    with pytest.raises(TypeError, match="connect again there, and share tensors by name"):
        session.__reduce__()


def test_what_a_session_issues_first_leaves_by_itself(make_session):
    session = make_session()
    x = session.xp.zeros((4,))
    y = x + x
    eventually(lambda: not session._core.outbox.messages)
    del x, y


class TestDetail:
    def test_it_times_the_calls_inside_of_each_nth_run_of_a_routine(self, make_session):
        session = make_session("local", detail=2)
        routine = session.routine(lambda x: (x + 1) * 2)
        x = session.asarray([1.0])
        for _ in range(5):
            routine(x)
        session.sync()
        assert [len(record.stamps) for record in session.trace().records if record.part] == [0, 4, 0, 4]

    @each_case("detail", [-1, True, "2", None, 1.5])
    def test_it_is_a_number(self, detail):
        with pytest.raises(td.MetadataError, match="detail=N times one run in every N"):
            td.connect("local", detail=detail)

    def test_without_a_trace_there_is_none(self):
        with pytest.raises(td.ProtocolError, match="this machine does not trace"):
            td.connect("local", tracing=False, detail=1)
