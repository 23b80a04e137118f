"""`tensord warm`: kernels are compiled on devices, calls that cannot be made are named, and errors end nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.programs import warm, warming
from tensord.streams.cuda import kernel_cache

from ....daemon import Daemon
from ....streams.fake_cuda.gpu import Gpu
from ....streams.fake_cuda.module import installed


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str) -> Iterator[Any]:
    """A session on a machine with a CUDA device, over the fake of its runtime, which the command line reaches."""
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path / "kernels"))
    device: Any = {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}
    with installed(Gpu(seed=1, memory=1 << 30)), td.connect(address, devices=["cpu:0", device]) as session:
        yield session


def compiling(session: Any, op: str) -> list[bool]:
    """For the calls of an op by this session, in their order."""
    me = session.stats()["session"]["id"]
    return ["compiling" in one.held for one in session.trace().records if one.op == op and one.session == me]


def test_what_was_called_is_warm_in_that_machine(run: Any, cuda: Any, address: str) -> None:
    code, out, err = run("warm", "add:float32", "matmul:float32", "--address", address)
    assert (code, err) == (0, "")
    assert "4 calls of 2 ops" in out
    x = cuda.asarray(np.ones(1024, np.float32), device="cuda:0").wait()
    (x + x).numpy()
    (x + 2).numpy()
    (x * x).numpy()
    assert compiling(cuda, "add") == [False, False]
    assert compiling(cuda, "multiply") == [True]
    launched = [one for one in cuda.trace().records if one.op == "add" and one.launch]
    assert len(launched) == 2


@pytest.mark.usefixtures("cuda")
def test_for_programs(run: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "kernels"
    directory.mkdir()
    (directory / "old.cubin").write_bytes(b"1")
    call = warming.WarmedCalls.call

    def compile_too(self: Any, sample: Any, device: str) -> Any:
        (directory / f"{sample}.cubin".replace("/", "")).write_bytes(b"1")
        return call(self, sample, device)

    monkeypatch.setattr(warming.WarmedCalls, "call", compile_too)
    code, out, _ = run("warm", "sin:float32,float64", "--address", address, "--json")
    found = json.loads(out)
    assert code == 0
    assert [(one["op"], one["device"], one["call"], one["error"]) for one in found["called"]] == [
        ("sin", "cuda:0", "sin(float32[8, 8])", ""),
        ("sin", "cuda:0", "sin(float64[8, 8])", ""),
    ]
    assert all(one["seconds"] > 0 for one in found["called"])
    assert (found["directory"], found["kernels"], found["new"]) == (str(directory), 3, 2)
    assert not found["interrupted"]


@pytest.mark.parametrize("launches", [True, False])
def test_every_op_can_be_called_on_a_device_that_launches_and_on_one_that_does_not(
    run: Any, make_session: Any, address: str, launches: bool
) -> None:
    make_session(address, devices=["cpu:0", {"name": "sim:0", "launches": launches}])
    code, out, _ = run("warm", "--all", "--dtype", "float32", "--address", address, "--device", "sim:0", "--json")
    found = json.loads(out)
    assert [one for one in found["called"] if one["error"]] == []
    assert code == 0
    assert len({one["op"] for one in found["called"]}) > 200


def test_what_has_to_be_given_more_is_named_and_left_out(run: Any) -> None:
    code, out, _ = run("warm", "sin:float32", "zeros", "--device", "sim:0")
    assert code == 1  # since `zeros` was named
    assert "1 call of 1 op" in out
    assert "zeros  requires shape" in out
    code, out, _ = run("warm", "zeros", "--attribute", "shape=[3]", "--device", "sim:0")
    assert code == 0
    assert "1 call of 1 op" in out
    assert run("warm", "zeros*", "--device", "sim:0")[0] == 0  # since `zeros` only matches a pattern


def test_what_a_device_lacks_is_named(run: Any, make_session: Any, address: str) -> None:
    make_session(address, devices=["cpu:0", {"name": "sim:0", "missing": ["sin"]}])
    code, out, _ = run("warm", "sin", "cos:float32", "--address", address, "--device", "sim:0")
    assert code == 1
    assert "sim:0 has no kernel for it" in out
    assert "1 call of 1 op" in out


def test_an_error_ends_nothing(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "values_of", lambda meta: np.zeros(meta.shape, meta.dtype))
    code, out, _ = run("warm", "inv:float32,float64", "sin:float32", "--device", "sim:0")
    assert code == 1
    assert "inv(float32[8, 8]): " in out
    assert "(and 1 more)" in out
    assert "3 calls of 2 ops" in out


def test_ctrl_c_ends_it_with_what_was_done(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = warming.WarmedCalls.call

    def interrupted(self: Any, sample: Any, device: str) -> Any:
        if self.called:
            raise KeyboardInterrupt
        return call(self, sample, device)

    monkeypatch.setattr(warming.WarmedCalls, "call", interrupted)
    code, out, _ = run("warm", "sin", "--device", "sim:0")
    assert code == 130
    assert "1 call of 1 op" in out
    assert ", interrupted" in out


def test_what_is_wrong_on_the_command_line(run: Any, make_session: Any, address: str) -> None:
    assert run("warm")[0] == run("warm", "add", "--all")[0] == 2
    assert run("warm", "add", "--shape", "8,8")[0] == run("warm", "add", "--attribute", "axis")[0] == 2
    assert "did you mean add?" in run("warm", "ad", "--device", "sim:0")[2]
    make_session(address, devices=["cpu:0", "sim:0"])
    assert "none of the devices cpu:0, sim:0 compiles kernels" in run("warm", "add", "--address", address)[2]
    assert "unknown device sim:1" in run("warm", "add", "--address", address, "--device", "sim:1")[2]


def test_without_a_daemon_the_directory_of_a_daemon_is_filled(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(kernel_cache.VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with installed(Gpu(seed=1, memory=1 << 30)):
        code, out, err = run("warm", "sin:float32")
    assert (code, err) == (0, "")
    assert (tmp_path / "tensord" / "kernels").is_dir()
    assert f"{tmp_path}/tensord/kernels has 0 kernels" in out


def test_the_list_of_a_configuration_is_called_and_its_directory_filled(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(kernel_cache.VARIABLE, "")
    (tmp_path / "tensord.toml").write_text(
        'kernel_cache = "kernels"\nwarm = ["sin:float32", {op = "cos", dtypes = ["float32"], device = "cuda:1"}]\n'
    )
    with installed(Gpu(seed=1, memory=1 << 30)):
        code, out, _ = run("warm", "tan:float64", "--config", tmp_path / "tensord.toml", "--json")
    found = json.loads(out)
    assert code == 0
    assert [one["call"] for one in found["called"]] == ["tan(float64[8, 8])", "sin(float32[8, 8])"]
    assert found["directory"] == str(tmp_path / "kernels")
    (tmp_path / "tensord.toml").write_text('warm = ["sn"]\n')
    assert "warm: 'sn': unknown op 'sn'" in run("warm", "--config", tmp_path / "tensord.toml")[2]


def test_a_daemon_that_runs_is_asked(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Daemon.start(tmp_path, "--device", "cpu:0") as daemon:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(daemon.home))
        monkeypatch.setattr(warm, "find_daemon", lambda: daemon.address)
        code, out, _ = run("warm", "sin:float32", "--device", "cpu:0")
        assert code == 0
        assert "sin" in out
        code, _, err = run("warm", "sin:float32")
        assert code == 1
        assert "none of the devices cpu:0 compiles kernels" in err
