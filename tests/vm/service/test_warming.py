"""A daemon compiles its configured programs at its start, while it serves, and logs the outcome."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.vm.service import preflight
from tensord.vm.service.daemon import run
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.settings.config import load

from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import eventually

WITH_A_GPU = ("tests.vm.service.broken_daemons", "with_a_gpu")
LAUNCHING = 'devices = ["cpu:0", {name = "sim:0", launches = true}]\n'


def configured(tmp_path: Path, text: str) -> str:
    (tmp_path / "tensord.toml").write_text(text)
    return str(tmp_path / "tensord.toml")


def compiling(session: td.Session, op: str) -> list[bool]:
    """For each call of an op by this session, in order: whether it waited for compiling."""
    me = session.stats()["session"]["id"]
    return ["compiling" in one.held for one in session.trace().records if one.op == op and one.session == me]


def await_end(daemon: Daemon) -> None:
    """Wait until the list has come to its end, and its session with it."""
    eventually(lambda: "kernels are compiled" in daemon.log)
    with daemon.connect() as session:
        eventually(lambda: [one["name"] for one in session._core.answers.query("sessions")].count("warm") == 0)


def test_what_is_listed_is_warm_for_every_client(tmp_path: Path) -> None:
    text = LAUNCHING + 'warm = ["add:float32", {op = "sum", dtypes = ["float32"], shapes = [[4, 6]]}, "log*:float64"]\n'
    with Daemon.start(tmp_path, "--config", configured(tmp_path, text)) as daemon:
        await_end(daemon)
        with daemon.connect() as session:
            x = session.asarray(np.ones((4, 6), np.float32), device="sim:0")
            (x + x).numpy()
            session.xp.sum(x).numpy()
            (x * x).numpy()
            assert compiling(session, "add") == compiling(session, "sum") == [False]
            assert compiling(session, "multiply") == [True]
            assert session._core.answers.query("status")["tensors"] == len([x])
        log = daemon.log
        assert daemon.stop() == 0
    lines = [line for line in log.splitlines() if "] compiled " in line]
    assert [line.partition("op=")[2].split()[0] for line in lines] == ["'add'", "'sum'", "'log*'"]
    assert "calls=3 device='sim:0' failed=0" in lines[0]
    assert all("failed=0" in line and "seconds=" in line for line in lines)


HANGING = """
devices = ["cpu:0", {name = "sim:0", faults = [{kind = "hang", label = "matmul", nth = 1}]}]
warm = [{op = "matmul", dtypes = ["float32"], device = "sim:0"}, {op = "add", device = "sim:0"}]
grace = 0.2
"""


def test_clients_are_served_meanwhile_and_the_end_does_not_wait_for_the_list(tmp_path: Path) -> None:
    with Daemon.start(tmp_path, "--config", configured(tmp_path, HANGING)) as daemon:
        eventually(lambda: "compiling kernels" in daemon.log)
        with daemon.connect() as session:
            assert (session.asarray([1.0]) + 1.0).tolist() == [2.0]
            assert session._core.answers.query("status")["sessions"] == 1
            assert "warm" in [one["name"] for one in session._core.answers.query("sessions")]
        daemon.stop()
        assert "kernels are compiled" not in daemon.log
        assert "stopping" in daemon.log


def test_what_fails_is_logged_and_ends_nothing(tmp_path: Path) -> None:
    text = """
devices = ["cpu:0", {name = "sim:0", faults = [{kind = "fail", label = "matmul", nth = 1}], missing = ["sin"]}]
warm = [
    {op = "matmul", dtypes = ["float32"], device = "sim:0"},
    {op = "sin", device = "sim:0"},
    {op = "cos", device = "sim:0"},
]
"""
    with Daemon.start(tmp_path, "--config", configured(tmp_path, text)) as daemon:
        await_end(daemon)
        assert "call='matmul(float32[8, 8], float32[8, 8])'" in daemon.log
        assert "the device has none" in daemon.log
        assert "op='cos'" in daemon.log
        assert "error]" not in daemon.log
        assert daemon.stop() == 0


def test_a_daemon_with_a_gpu_keeps_its_kernels_where_the_status_says(tmp_path: Path) -> None:
    device = '{name = "cuda:0", memory = "64 MiB", cache = "8 MiB", reserve = 0}'
    path = configured(tmp_path, f'devices = ["cpu:0", {device}]\nwarm = ["add:float32"]\n')
    with Daemon.start(tmp_path, "--config", path, str(tmp_path / "cache"), main=WITH_A_GPU) as daemon:
        await_end(daemon)
        with daemon.connect() as session:
            kernels = Path(session._core.answers.query("status")["kernels"])
            x = session.asarray(np.ones(64, np.float32), device="cuda:0")
            (x + x).numpy()
            assert compiling(session, "add") == [False]
        assert daemon.stop() == 0
    assert kernels == tmp_path / "cache" / "tensord" / "kernels"
    assert stat.S_IMODE(kernels.stat().st_mode) == 0o700


@each_case(
    ("entry", "told"),
    [
        ('"ad:float32"', "warm: 'ad:float32': unknown op 'ad'; did you mean add?"),
        ('"add:float3"', "warm: 'add:float3': unknown dtype 'float3'"),
        ('"zeros"', "warm: 'zeros': zeros requires shape"),
        ('{op = "sum", axis = 1}', "has no key 'axis'"),
        ("3", "warm: 3: must be"),
    ],
)
def test_a_mistake_in_the_list_is_an_error_of_the_configuration_that_names_the_entry(
    entry: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(StartError) as raised:
        load(Path(configured(tmp_path, f'warm = ["add", {entry}]\n')))
    assert str(raised.value).startswith(f"{tmp_path}/tensord.toml: warm: ")
    assert told in str(raised.value)


def test_a_list_is_a_list() -> None:
    with pytest.raises(StartError, match=r"warm: must be a list of ops, such as .*, not 'add'"):
        load(None, {"warm": "add"})


@pytest.mark.parametrize("ask", [preflight.check, run], ids=["check", "serve"])
def test_a_device_that_is_not_there_is_found_by_the_check_and_by_serve(
    ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chmod(tmp_path, 0o700)  # noqa: PTH101 - of a fixture
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    config = load(None, {"addresses": [f"ipc://{tmp_path}/own/socket"], "warm": [{"op": "add", "device": "cuda:1"}]})
    with pytest.raises(StartError, match=r"warm: add: unknown device cuda:1 \(devices: cpu:0\)"):
        ask(config)


def test_a_list_for_no_device_makes_a_doubt() -> None:
    assert "warm is for devices that compile kernels" in "".join(
        preflight.start_warnings(load(None, {"warm": ["add"]}))
    )
    fine = load(None, {"warm": ["add"], "devices": ["cpu:0", {"name": "sim:0", "launches": True}]})
    assert preflight.start_warnings(fine) == []
