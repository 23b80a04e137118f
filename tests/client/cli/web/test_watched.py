"""A daemon that pages watch; in these tests a machine in this process answers in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.web import watched as module
from tensord.client.cli.web.source import UnknownError
from tensord.client.cli.web.watched import WatchedDaemon
from tensord.client.cli.web.window import Window
from tensord.interpreter.errors import ConnectionLost, NoDaemon, ProtocolError
from tensord.vm.tracing.analysis.files.parts import RingSnapshot, read_parts


class Machine:
    """Connections to a machine, as often as one connects. `pid`: another pid means another daemon; `seconds`: the
    duration of each question.
    """

    def __init__(self, session: td.Session) -> None:
        self.session = session
        self.pid = 1
        self.now = 0.0
        self.seconds = 0.0
        self.up = True
        self.connections = 0
        self.asked: list[Any] = []
        self.enabled = True

    def connect(self, _address: str, _patience: float) -> Any:
        if not self.up:
            raise NoDaemon("nobody listens")
        self.connections += 1
        return Connection(self, self.connections)

    def watched(self) -> WatchedDaemon:
        return WatchedDaemon("ipc:///x", clock=lambda: self.now, connect=self.connect)

    def asked_for(self, what: str) -> list[Any]:
        return [arguments for name, *arguments in self.asked if name == what]


class Connection:
    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.number = number

    def renew_patience(self, _patience: float) -> None: ...

    def ask(self, what: str, *arguments: Any) -> Any:
        machine = self.machine
        if not machine.up or self.number < machine.connections:
            raise ConnectionLost("gone")
        machine.asked.append((what, *arguments))
        machine.now += machine.seconds
        found = machine.session._core.answers.query(what, *arguments)
        if what == "status":
            found |= {"pid": machine.pid}
            found["trace"]["enabled"] = machine.enabled
        return [{**row, "asks": False} for row in found] if what == "sessions" else found

    def __exit__(self, *_: object) -> None:
        self.machine.asked.append(("closed",))


@pytest.fixture
def machine() -> Iterator[Machine]:
    with td.connect("local", devices=["cpu:0"], name="trainer") as session:
        yield Machine(session)


def work(machine: Machine, ops: int) -> td.Tensor:
    x = machine.session.asarray(np.ones(4))
    for _ in range(ops):
        x = x + 1
    machine.session.sync()
    return x


def view(watched: WatchedDaemon) -> Any:
    return json.loads(watched.poll().view)


def test_a_view_has_what_is_new_since_the_last_one(machine: Machine) -> None:
    watched = machine.watched()
    work(machine, 3)
    first = view(watched)
    held = work(machine, 2)
    second = view(watched)
    assert held.shape == (4,)
    ids = [{row[0] for row in one["records"]} for one in (first, second)]
    assert len(ids[1]) >= 3
    assert ids[0].isdisjoint(ids[1])
    assert second["about"]["sampled"]["shown"] == second["about"]["sampled"]["of"] == len(ids[1])
    assert second["about"]["taken"] > first["about"]["taken"] > 0
    assert view(watched)["records"] == []


def test_of_too_many_records_a_view_has_the_newest_and_says_so(machine: Machine) -> None:
    watched = machine.watched()
    view(watched)
    watched._pace.most = 10
    work(machine, 50)
    found = view(watched)
    assert len(found["records"]) == 10
    assert found["about"]["sampled"]["shown"] == 10
    assert found["about"]["sampled"]["of"] > 50


def test_what_is_expensive_is_looked_at_rarely(machine: Machine) -> None:
    watched = machine.watched()
    machine.seconds = 0.1  # for each question
    held = work(machine, 1)
    first = view(watched)
    session = machine.session.stats()["session"]["id"]
    assert [(row["bytes"], row["holder"]) for row in first["tensors"]] == [(32, f"session {session} trainer")]
    assert [(row["name"], row["bytes"]) for row in first["sessions"]] == [("trainer", 32)]
    assert held.shape == (4,)
    assert view(watched)["tensors"] is None
    machine.now += 0.2 / 0.005 - 1
    assert view(watched)["tensors"] is None
    machine.now += 2
    assert view(watched)["tensors"] is not None
    assert len(machine.asked_for("tensors")) == 2


def test_nothing_is_asked_between_polls_and_the_connection_ends_when_nobody_looks(machine: Machine) -> None:
    watched = machine.watched()
    view(watched)
    watched.rest()
    assert machine.asked[-1] == ("closed",)
    view(watched)
    assert machine.connections == 2
    assert watched.about()["run"] == 1  # the same daemon


def test_a_daemon_that_is_another_one_begins_anew(machine: Machine) -> None:
    watched = machine.watched()
    work(machine, 3)
    first = view(watched)
    machine.up = False
    with pytest.raises(NoDaemon):
        watched.poll()
    machine.up, machine.pid = True, 2
    second = view(watched)
    assert (first["about"]["run"], second["about"]["run"]) == (1, 2)
    assert second["records"] == first["records"]  # asked from the beginning
    assert len(machine.asked_for("status")) == 2


def test_a_daemon_that_comes_back_at_once_is_asked_who_it_is(machine: Machine) -> None:
    """The connection breaks during a question, which is repeated on a new one."""
    watched = machine.watched()
    work(machine, 3)
    view(watched)
    machine.connections, machine.pid = 5, 2  # the connection is not the newest any more
    assert view(watched)["about"]["run"] == 2


def test_a_daemon_without_a_trace_says_what_to_do(machine: Machine) -> None:
    machine.enabled = False
    with pytest.raises(ProtocolError, match="start it with tracing on"):
        machine.watched().greet()


def test_history_is_a_view_of_all_that_is_known(machine: Machine) -> None:
    watched = machine.watched()
    assert watched.history() is None
    work(machine, 3)
    first = view(watched)
    work(machine, 2)
    second = view(watched)
    history = json.loads(watched.history() or "")
    assert sorted(row[0] for row in history["records"]) == sorted(
        row[0] for one in (first, second) for row in one["records"]
    )
    assert history["sessions"][0]["name"] == "trainer"


def test_questions_are_answered_from_what_was_shown(machine: Machine) -> None:
    watched = machine.watched()
    held = work(machine, 40)
    found = view(watched)
    machine.asked.clear()
    id_ = next(row[0] for row in found["records"] if found["texts"][row[5]] == "add")
    assert watched.why(id_).startswith(f"#{id_} add (4,) float64 x int  cpu:0/")
    with pytest.raises(UnknownError, match="#12345678 is not among the newest"):
        watched.why(12345678)
    assert {one["rule"] for one in watched.advice()["advice"]} <= {"small ops", "kernels compiled"}
    row = found["tensors"][0]
    told = watched.tensor(row["id"], row["session"])["tensor"]
    assert (told["residency"], told["holders"]) == (
        {"cpu:0": "valid"},
        [{"session": row["session"], "id": row["id"]}],
    )
    with pytest.raises(UnknownError, match="is not among the 500 largest"):
        watched.tensor(row["id"] + 1000, row["session"])
    assert machine.asked == []
    assert held.shape == (4,)


def test_who_else_holds_a_tensor_is_told(machine: Machine) -> None:
    x = work(machine, 1)
    machine.session.publish("x", x)
    watched = machine.watched()
    found = view(watched)
    row = next(row for row in found["tensors"] if row["id"])
    assert row["name"] == "x"
    assert len(watched.tensor(row["id"], row["session"])["tensor"]["holders"]) >= 1


def test_a_question_without_a_page_asks_for_what_is_new_but_not_more_often_than_pages_would(machine: Machine) -> None:
    watched = machine.watched()
    for _ in range(3):
        watched.refresh()
    assert len(machine.asked_for("recent")) == 1
    machine.now += 10
    watched.refresh()
    assert len(machine.asked_for("recent")) == 2


# -- kept records ------------------------------------------------------------------------------------------------------


def sample(machine: Machine, since: int, most: int) -> RingSnapshot:
    return read_parts([machine.session._core.answers.query("recent", since, most)])


def test_a_window_keeps_the_newest_records_alone(machine: Machine) -> None:
    window = Window(capacity=20)
    work(machine, 30)
    first = sample(machine, 0, 1000)
    assert window.add(first) == first.finished
    trace = window.trace()
    assert trace is not None
    assert [record.id for record in trace.records] == sorted(record.id for record in first.records)[-20:]
    assert window.missed == 0


def test_a_window_counts_what_samples_left_out_and_reports_no_missing_edge(machine: Machine) -> None:
    window = Window()
    first = sample(machine, 0, 1000)
    window.add(first)
    work(machine, 30)
    assert window.add(sample(machine, first.tick, 5)) > 30
    trace = window.trace()
    assert trace is not None
    assert (len(trace), trace.dropped) == (5 + first.finished, window.missed)
    assert window.missed > 25
    assert all(edge.mark != "missing" for edge in trace.graph().edges)


def test_what_it_asks_for_is_bounded() -> None:
    assert module.TENSORS <= 1000
