"""Figures of a node, read from real output of a daemon and its supervisor."""

from __future__ import annotations

import tensord as td
from tensord.interpreter.metrics.family import Figures
from tensord.interpreter.metrics.table import FAMILIES
from tensord.vm.cluster.figures import OF_A_DAEMON, OF_A_DEVICE, OF_A_NODE, figures
from tensord.vm.cluster.keeper import Keeper
from tensord.vm.cluster.specification import Specification

from .fakes import FakeClock, FakeStart


def row_of(directory, monkeypatch):
    """The row of a node whose daemon starts."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory / "run"))
    wanted = Specification(directory=str(directory / "home"))
    keeper = Keeper("node0", "127.0.0.1", wanted, FakeStart(), FakeClock(), take_port=lambda _port: True)
    keeper.begin()
    return keeper.row()


def test_a_daemon_that_serves_has_all_figures(tmp_path, monkeypatch):
    with td.connect("local", devices=["cpu:0", "sim:0"], node="node0") as session:
        x = session.asarray([1.0, 2.0], device="sim:0")
        session.publish("x", x)
        session.sync()
        status = session._core.answers.query("status")
        found = {(name, device): value for name, device, value in figures(row_of(tmp_path, monkeypatch), status)}
    devices = ("node0/cpu:0", "node0/sim:0")
    of_devices = {(name, device) for name in OF_A_DEVICE for device in devices}
    assert found.keys() == of_devices | {(name, "") for name in (*OF_A_NODE, *OF_A_DAEMON)}
    assert found["tensord_device_used_bytes", "node0/sim:0"] >= x.nbytes
    assert (found["tensord_names", ""], found["tensord_sessions", ""]) == (1.0, 1.0)
    assert found["tensord_device_limit_bytes", "node0/sim:0"] == status["devices"]["node0/sim:0"]["limit"]


def test_without_a_daemon_there_are_the_supervisors_figures(tmp_path, monkeypatch):
    found = {name: value for name, _, value in figures(row_of(tmp_path, monkeypatch), None)}
    assert found == dict.fromkeys(OF_A_NODE, 0.0) | {"tensord_incarnation": 1.0}


def test_what_an_exporter_has_under_the_same_name_is_the_same(tmp_path, monkeypatch):
    """Except the daemon's memory, which always varies, and the supervisor's own figures."""
    with td.connect("local", devices=["cpu:0", "sim:0"], node="node0") as session:
        x = session.asarray([1.0, 2.0], device="sim:0")
        session.publish("x", x)
        session.sync()
        machine, *sessions = session._core.answers.query("metrics")
        status = session._core.answers.query("status")
    exported = {
        one.name: one.samples(Figures(machine, sessions)) for one in FAMILIES if one.labels in {(), ("device",)}
    }
    shared = (OF_A_DAEMON.keys() | OF_A_DEVICE.keys()) & exported.keys() - {"tensord_memory_bytes"}
    assert len(shared) > 6
    for name, device, value in figures(row_of(tmp_path, monkeypatch), status):
        if name in shared:
            assert exported[name][(device,) if device else ()] == value, name
