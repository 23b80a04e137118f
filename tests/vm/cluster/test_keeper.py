"""A node's daemon is kept running: on a clock that the test moves, with processes that the test controls."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tensord.interpreter.wire.keys import read_secret
from tensord.vm.cluster.keeper import Keeper
from tensord.vm.cluster.lifecycle import DaemonEvent, DaemonProcessState, IllegalStep
from tensord.vm.cluster.specification import Specification

from .fakes import FakeClock, FakeStart


@pytest.fixture(autouse=True)
def _short_runtime_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def start():
    return FakeStart()


@pytest.fixture
def make(tmp_path, clock, start):
    def made(free=lambda _port: True, **wanted):
        specification = Specification(directory=str(tmp_path / "home"), **wanted)
        return Keeper("node1", "127.0.0.1", specification, start, clock, take_port=free)

    return made


@pytest.fixture
def keeper(make, start):
    made = make()
    made.begin()
    start.last.serve()
    made.described({"devices": ["node1/cpu:0"], "values": "127.0.0.1:7701", "fingerprint": "ab"})
    return made


def test_each_start_has_the_next_incarnation_and_the_same_ports(keeper, start, clock):
    assert keeper.entry()["address"] == "tcp://127.0.0.1:7700"
    start.last.observer.exited(-9)
    assert (keeper.entry()["state"], keeper.entry()["incarnation"]) == ("lost", 1)
    clock.advance(0.0)
    config = tomllib.loads(start.last.config)
    assert config["cluster"] == {"incarnation": 2, "values": "127.0.0.1:7701", "encryption": "tls"}
    assert config["addresses"][1] == "tcp://127.0.0.1:7700"
    assert config["node"] == "node1"


def test_a_daemon_is_up_once_it_has_said_what_it_has(make, start):
    keeper = make()
    keeper.begin()
    assert keeper.entry()["state"] == "lost"
    start.last.serve()
    assert (keeper.state, keeper.entry()["state"]) == (DaemonProcessState.SERVING, "lost")
    keeper.described({"devices": ["node1/cpu:0"], "values": "", "fingerprint": ""})
    assert keeper.entry()["state"] == "up"


def test_a_new_supervisor_of_the_node_goes_on_counting_with_the_same_key(make):
    first = make()
    first.begin()
    key = first.key
    second = make()
    second.begin()
    assert (second.incarnation, second.key) == (2, key)


def test_what_others_remember_of_a_node_is_not_counted_again(make):
    keeper = make()
    keeper.begin(after=7)
    assert keeper.incarnation == 8


def test_a_port_that_was_taken_meanwhile_is_replaced_by_another_of_the_range(make, start, clock):
    taken = set()
    keeper = make(free=lambda port: port not in taken)
    keeper.begin()
    taken.add(7700)
    start.last.observer.exited(1)
    clock.advance(0.0)
    assert keeper.ports == (7701, 7702)


def test_without_ports_the_start_fails_is_told_and_is_tried_again(make, start, clock):
    taken = {7700}
    keeper = make(free=lambda port: port not in taken, ports=(7700, 7701))
    keeper.begin()
    clock.advance(0.0)
    assert not start.started
    assert "1 of the 2 ports that a node needs are free in 7700-7701" in keeper.row()["wrong"]
    taken.clear()
    clock.advance(60.0)
    assert start.started


def test_a_crash_loop_is_told_in_the_daemons_words_and_does_not_spin(make, start, clock):
    keeper = make()
    keeper.begin()
    for _ in range(6):
        start.last.observer.printed("tensord: cuda:0: there is no such device")
        start.last.observer.exited(1)
        clock.advance(keeper.lifecycle.pause())
    row = keeper.row()
    assert (row["state"], row["failures"]) == ("failing", 6)
    assert row["wrong"] == "it ended with status 1: cuda:0: there is no such device"
    started = len(start.started)
    start.last.observer.exited(1)
    clock.advance(10.0)
    assert len(start.started) == started


def test_a_process_that_cannot_be_started_is_a_failed_start(make, start, clock):
    start.fails = OSError(11, "Resource temporarily unavailable")
    keeper = make()
    keeper.begin()
    clock.advance(0.0)
    assert "Resource temporarily unavailable" in keeper.row()["wrong"]
    assert keeper.state is DaemonProcessState.WAITING or keeper.starts > 1


def test_a_daemon_whose_loop_does_not_turn_is_killed(keeper, start, clock):
    clock.advance(29.0)
    start.last.observer.alive()
    clock.advance(29.0)
    keeper.look()
    assert start.last.asked == []
    clock.advance(2.0)
    keeper.look()
    assert start.last.asked == ["kill"]
    assert keeper.state is DaemonProcessState.KILLED


def test_news_of_an_earlier_process_change_nothing(keeper, start, clock):
    first = start.last
    first.observer.exited(-11)
    clock.advance(0.0)
    start.last.serve()
    first.observer.exited(0)
    first.observer.ready()
    assert keeper.state is DaemonProcessState.SERVING


def test_a_stopped_node_has_left(keeper, start):
    keeper.take(DaemonEvent.STOP)
    assert start.last.asked == ["terminate"]
    start.last.observer.exited(0)
    assert (keeper.state, keeper.entry()["state"]) == (DaemonProcessState.STOPPED, "left")
    with pytest.raises(IllegalStep):
        keeper.take(DaemonEvent.RESTART)


def test_after_close_nothing_is_started_again(keeper, start, clock):
    keeper.close()
    assert start.last.asked == ["kill"]
    start.last.observer.exited(-9)
    clock.advance(100.0)
    assert len(start.started) == 1


def test_keys_and_directories_are_for_the_user_alone(make, tmp_path):
    keeper = make()
    keeper.begin()
    assert read_secret(keeper.home.secret).public.decode() == keeper.key
    for path in (tmp_path / "home", keeper.home.directory, keeper.home.keys, keeper.runtime, keeper.home.secret):
        assert Path(path).stat().st_mode & 0o077 == 0


def test_log_lines_are_kept_in_bounds(keeper, start):
    for number in range(1000):
        start.last.observer.printed(f"line {number}")
    assert len(keeper.lines) == 400
    assert keeper.lines[-1] == (keeper.printed, "line 999")


def test_settings_of_the_user_reach_the_daemon_and_durable_names_have_a_directory(make, start):
    keeper = make(settings={"memory": "1 GiB", "cluster": {"link": "1 GiB", "incarnation": 99}}, grace=3.0)
    keeper.begin()
    config = tomllib.loads(start.last.config)
    assert (config["memory"], config["grace"]) == ("1 GiB", 3.0)
    assert config["cluster"]["link"] == "1 GiB"
    assert config["cluster"]["incarnation"] == 1
    assert config["devices"][-1] == {"name": "store:0", "durable": str(keeper.home.durable)}
    assert Path(config["security"]["allow"]).is_absolute()
