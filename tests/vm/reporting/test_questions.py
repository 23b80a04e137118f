"""An engine's answers to questions about itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import pytest

from tensord.interpreter.errors import KernelError, ProtocolError
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.process import MachineProcess
from tensord.vm.reporting.answering import ClientInfo
from tensord.vm.reporting.locations import LocationTexts
from tensord.vm.reporting.questions import MachineFacts, answer, whole
from tensord.vm.reporting.rows import tensors as tensor_rows

from ...each_case import each_case

WAIT = 30.0


class Asked:
    """A session, its machine, and a way to ask the engine behind them."""

    def __init__(self, session: Any, machine: Any) -> None:
        self.session = session
        self.machine = machine
        self.about = MachineFacts(
            LocationTexts(machine.engine),
            MachineProcess(),
            hung=lambda: list(machine.hung.values()),
            errors=lambda: machine.recent_errors,
        )

    @property
    def vm_session(self) -> Any:
        return self.session._core.transport._session

    def ask(self, what: str, *arguments: Any) -> Any:
        return whole(self.slices(what, *arguments))

    def slices(self, what: str, *arguments: Any) -> Any:
        self.session._core.outbox.flush(patient=False)
        with self.machine.inside():
            found = answer(self.machine.engine, self.vm_session, what, arguments, self.about)
            return iter(list(found)) if isinstance(found, Iterator) else found


@pytest.fixture
def asked(make_session, machine_of):
    session = make_session(devices=["cpu:0", "sim:0"])
    return Asked(session, machine_of(session))


@pytest.fixture
def engine(asked):
    return asked.machine.engine


class TestQuestions:
    @each_case(
        ("what", "arguments", "message"),
        [
            ("nonsense", (), "unknown question 'nonsense'; questions: stats, residency"),
            (7, (), "unknown question 7"),
            ([], (), "unknown question"),
            ("status", None, "a list"),
            ("status", (1, 2), "do not fit"),
            ("residency", (), "do not fit"),
            ("residency", ("x",), "not a natural number"),
            ("residency", (99,), "tensor 99 was released"),
            ("trace", (-1,), "not a natural number"),
            ("tensors", (1 << 70,), "not a natural number"),
            ("tensors", (1, 0, "gpu"), "unknown device 'gpu'; devices: cpu:0, sim:0"),
            ("tensors", (1, 99), "unknown session 99; open sessions: 1"),
            ("tensors", (1, 0, 5), "a name"),
        ],
    )
    def test_a_bad_one_is_a_typed_error(self, asked, engine, what, arguments, message):
        with asked.machine.inside(), pytest.raises(ProtocolError, match=message.replace("[", "\\[")):
            whole(answer(engine, asked.vm_session, what, arguments, asked.about))

    def test_every_answer_is_made_of_what_msgpack_has(self, asked):
        x = asked.session.asarray(np.ones((3, 4)))
        asked.session.publish("x", x)
        y = x.to_device("sim:0") + 1
        asked.session.call("unique_values", [y])
        for what in ("stats", "status", "sessions", "tensors", "devices", "names", "trace"):
            assert msgpack.unpackb(msgpack.packb(asked.ask(what)), strict_map_key=True) is not None

    def test_asking_changes_nothing(self, asked, engine):
        x = asked.session.asarray([1.0])
        asked.session.sync()
        before = (engine.scheduler.ids, engine.scheduler.tick, len(engine.ring.entries), x.residency())
        for what in ("stats", "status", "sessions", "tensors", "devices", "names", "trace"):
            asked.ask(what)
        assert (engine.scheduler.ids, engine.scheduler.tick, len(engine.ring.entries), x.residency()) == before


class TestStatusAndSessions:
    def test_status_counts(self, asked):
        x = asked.session.asarray(np.zeros(1000))
        asked.session.publish("x", x)
        asked.session.sync()
        status = asked.ask("status")
        assert (status["sessions"], status["tensors"], status["names"]) == (1, 1, 1)
        assert status["instructions"]["retired"] == status["trace"]["records"] > 0
        assert status["instructions"]["failed"] == status["instructions"]["live"] == 0
        assert status["devices"]["cpu:0"]["used"] == 8000
        assert status["devices"]["cpu:0"]["lost"] == ""
        assert status["address"] == "local"

    def test_status_tells_recent_errors_with_their_lines(self, asked):
        x = asked.session.asarray([1.0])
        asked.machine.devices["cpu:0"].inject(Fault(FaultKind.FAIL, label="negative"))
        y = asked.session.call("negative", [x])[0]
        with pytest.raises(KernelError):
            y.numpy()
        (error,) = asked.ask("status")["recent_errors"]
        assert (error["type"], error["op"]) == ("KernelError", "negative")
        assert "test_questions.py" in error["location"]
        assert "KernelError" in next(row["error"] for row in asked.ask("tensors") if row["error"])

    def test_sessions_without_and_with_a_client(self, asked):
        (one,) = asked.ask("sessions")
        assert (one["kind"], one["asks"], one["cancelled"], one["errors"]) == ("local", True, False, 0)
        asked.about.client = lambda _id: ClientInfo("train.py", 12, 1000, "ipc", 3.5, pending=4, consumed=99)
        asked.session.cancel()
        (one,) = asked.ask("sessions")
        assert (one["name"], one["pid"], one["kind"], one["pending"], one["consumed"]) == ("train.py", 12, "ipc", 4, 99)
        assert one["cancelled"]
        assert asked.ask("status")["instructions"]["pending"] == 4
        asked.session.restart()


class TestTensors:
    def test_the_largest_come_first_and_no_more_than_asked_for(self, asked):
        kept = [asked.session.asarray(np.zeros(n)) for n in (10, 1000, 100)]
        rows = asked.ask("tensors", 2)
        assert [row["bytes"] for row in rows] == [8000, 800]
        assert (rows[0]["shape"], rows[0]["dtype"], rows[0]["home"]) == ([1000], "float64", "cpu:0")
        assert (rows[0]["residency"], rows[0]["version"], rows[0]["holders"]) == ({"cpu:0": "valid"}, 1, 1)
        assert asked.ask("tensors", 0) == []
        assert len(kept) == len(asked.ask("tensors"))

    def test_by_session_and_by_device(self, make_session, machine_of):
        first = make_session("local:filters", devices=["cpu:0", "sim:0"])
        second = make_session("local:filters", devices=["cpu:0", "sim:0"])
        asked = Asked(first, machine_of(first))
        mine = first.asarray([1.0])
        other = second.asarray([1.0, 2.0])
        there = mine.to_device("sim:0")
        second.sync()
        assert [row["bytes"] for row in asked.ask("tensors", 9, 2)] == [16]
        assert len(asked.ask("tensors", 9, 1)) == 2
        assert all("sim:0" in row["residency"] for row in asked.ask("tensors", 9, 0, "sim:0"))
        assert {row["session"] for row in asked.ask("tensors", 9, 0, "sim:0")} == {1}
        assert other.shape == (2,)
        assert there.shape == (1,)

    def test_names_views_and_shared_storage(self, asked):
        x = asked.session.asarray(np.zeros((4, 4)))
        view = x.T
        asked.session.publish("weights", x)
        by_view = {row["view"]: row for row in asked.ask("tensors")}
        assert by_view[False]["names"] == ["weights"]
        assert by_view[False]["holders"] == 2
        assert by_view[True]["sharers"] == 2
        assert by_view[True]["storage"] == by_view[False]["storage"]
        assert view.shape == (4, 4)

    def test_a_name_that_nobody_holds_is_listed_without_a_session(self, asked):
        asked.session.publish("left", asked.session.asarray([1.0]))
        asked.session.sync()
        (row,) = asked.ask("tensors")
        assert (row["session"], row["id"], row["names"]) == (0, 0, ["left"])
        assert [one["name"] for one in asked.ask("names")] == ["left"]

    def test_a_pending_meta_is_not_known(self, asked):
        asked.machine.devices["cpu:0"].hold("compute")
        x = asked.session.asarray([1.0, 1.0])
        found = asked.session.call("unique_values", [x])[0]
        row = next(row for row in asked.ask("tensors") if row["id"] == found._id)
        assert (row["shape"], row["dtype"], row["bytes"]) == (None, None, None)
        asked.machine.devices["cpu:0"].resume("compute")
        assert found.shape == (1,)

    def test_many_are_looked_through_in_slices(self, asked, engine, monkeypatch):
        monkeypatch.setattr(tensor_rows, "PER_SLICE", 3)
        kept = [asked.session.asarray(np.zeros(n)) for n in range(1, 11)]
        asked.session.sync()
        with asked.machine.inside():
            slices = answer(engine, asked.vm_session, "tensors", (5,), asked.about)
            assert [next(slices) for _ in range(4)] == [[]] * 4
        kept.pop()  # released between two slices: the largest one is not there any more
        asked.session.sync()
        assert [row["bytes"] for row in whole(slices)] == [72, 64, 56, 48]


class TestDevices:
    def test_options_memory_streams_and_transfers(self, asked):
        x = asked.session.asarray(np.zeros(100)).to_device("sim:0")
        asked.session.sync()
        host, sim = asked.ask("devices")
        assert host["options"]["workers"] == len([s for s in host["streams"] if s["kind"] == "compute"])
        assert sim["transfers"] == {"h2d": {"count": 1, "bytes": 800}}
        assert sim["memory"]["used"] == 800
        assert all(stream["running"] is None and not stream["queued"] for stream in sim["streams"])
        assert x.shape == (100,)

    def test_peers(self, make_session, machine_of):
        session = make_session(devices=["cpu:0", "sim:0", "sim:1"])
        peers = {one["name"]: one["peers"] for one in Asked(session, machine_of(session)).ask("devices")}
        assert peers == {"cpu:0": [], "sim:0": ["sim:1"], "sim:1": ["sim:0"]}

    def test_what_runs_and_for_how_long(self, asked):
        device = asked.machine.devices["sim:0"]
        device.inject(Fault(FaultKind.HANG, label="add"))
        x = asked.session.asarray([1.0], device="sim:0")
        y = x + 1
        asked.session._core.outbox.flush()
        running: Any = None
        while running is None or running["op"] != "add":  # the upload may still run
            streams = asked.ask("devices")[1]["streams"]
            running = next((stream["running"] for stream in streams if stream["running"]), None)
        assert running["session"] == 1
        assert "test_questions.py" in running["location"]
        assert running["seconds"] >= 0
        assert device.faults.hanging.wait(WAIT)
        device.release_hangs()
        assert y.wait(WAIT) is not None
