"""An outside package that is built and installed gives a daemon its device."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.doctor import daemon as doctor
from tensord.client.cli.main import main

from ..daemon import Daemon

Command: TypeAlias = Callable[..., tuple[Any, str, str]]

PACKAGE = Path(__file__).parent / "package"
NAMED = ("--plugin", "mypackage", "--device", "cpu:0", "--device", "file:0")


@pytest.fixture(scope="module")
def daemon(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon.start(tmp_path_factory.mktemp("daemon"), *NAMED, PYTHONPATH=paths(installed)) as daemon:
        yield daemon


def paths(*more: Path) -> str:
    """Python's path for daemons: ours, and the installed packages."""
    return ":".join([*map(str, more), *(path for path in sys.path if path)])


@pytest.fixture
def tensord(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    """tensord(arguments) -> exit code, stdout and stderr of the command line, run in this process."""

    def run(*line: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(line))
        said = capsys.readouterr()
        return left.value.code, said.out, said.err

    return run


@pytest.fixture
def on_path(installed: Path, monkeypatch: pytest.MonkeyPatch, registries: None) -> Path:
    """The package can be imported in this process."""
    del registries
    monkeypatch.syspath_prepend(str(installed))
    return installed


def test_its_device_holds_values_and_computes(daemon: Daemon):
    with daemon.connect() as session:
        values = np.arange(40_000.0).reshape(200, 200)
        x = session.asarray(values, device="file:0")
        y = x @ x.T + 1.0
        assert y.device == "file:0"
        assert np.array_equal(y.numpy(), values @ values.T + 1.0)
        assert np.array_equal(y.to_device("cpu:0").numpy(), values @ values.T + 1.0)
        assert {one.device for one in session.trace().records if one.op == "matmul"} == {"file:0"}


def test_routines_run_on_it_with_the_same_bits(daemon: Daemon):
    with daemon.connect() as session:
        xp = session.xp
        function = lambda x: xp.sum(xp.sin(x) * 2.0 + x, axis=0)  # noqa: E731 - captured as it is
        routine = session.routine(function)
        x = session.asarray(np.linspace(0.0, 1.0, 3000).reshape(100, 30), device="file:0")
        assert {tuple(routine(x).tolist()) for _ in range(4)} == {tuple(function(x).tolist())}


def test_its_op_runs_in_the_daemon_on_any_device(daemon: Daemon, on_path: Path):
    del on_path
    from mypackage.ops import damped  # type: ignore[import-not-found]

    with daemon.connect() as session:
        for device in ("cpu:0", "file:0"):
            x, y = (session.asarray([one, 2.0], device=device) for one in (1.0, 3.0))
            assert damped(x, y, rate=0.25).tolist() == [1.5, 2.0]
            routine = session.routine(lambda x, y: damped(x, y) * 2.0)
            assert [routine(x, y).tolist() for _ in range(3)] == [[4.0, 4.0]] * 3


def test_the_daemon_says_what_it_has_loaded_from_where(daemon: Daemon, installed: Path, tensord: Command):
    (row,) = json.loads(tensord("plugins", "--json", "--address", daemon.address)[1])
    assert row == {
        "name": "mypackage",
        "version": "1.2",
        "location": str(installed / "mypackage"),
        "ops": ["mypackage.damped"],
        "devices": ["file"],
    }
    table = tensord("plugins", "--address", daemon.address)[1]
    assert "mypackage  1.2" in table
    assert "1 plugin" in table
    line = next(line for line in daemon.log.splitlines() if "mypackage" in line)
    assert all(word in line for word in ("1.2", str(installed), "file"))


def test_the_doctor_compares_its_version_with_that_of_this_python(
    daemon: Daemon, on_path: Path, monkeypatch: pytest.MonkeyPatch, tensord: Command
):
    del on_path

    def told() -> str:
        return next(
            line for line in tensord("doctor", "--address", daemon.address)[1].splitlines() if "plugins" in line
        )

    assert "mypackage 1.2, as here" in told()
    monkeypatch.setattr(doctor, "distributions", lambda **_: iter([SimpleNamespace(version="1.3")]))
    assert "the daemon has mypackage 1.2, this Python 1.3" in told()
    monkeypatch.setattr(doctor, "distributions", lambda **_: iter(()))
    assert "mypackage 1.2, which is not installed here" in told()


def test_the_check_of_a_configuration_says_it_too(on_path: Path, tensord: Command):
    code, out, err = tensord("serve", "--check-config", *NAMED)
    assert code == 0
    assert f"plugin mypackage 1.2 from {on_path}/mypackage: device file, op mypackage.damped" in err
    assert 'plugins = ["mypackage"]' in out


def test_what_is_installed_is_listed(on_path: Path, tensord: Command):
    del on_path
    (row,) = json.loads(tensord("plugins", "--installed", "--json")[1])
    assert row == {"name": "mypackage", "version": "1.2", "ops": ["all"], "devices": ["file"]}
    assert "the settings of a daemon name those that it loads" in tensord("plugins", "--installed")[1]


def test_a_daemon_that_does_not_name_it_does_not_load_it_and_says_what_is_missing(on_path: Path, tensord: Command):
    del on_path
    code, _, err = tensord("serve", "--check-config", "--device", "file:0")
    assert code == 2
    assert 'comes with the package mypackage: name it, plugins = ["mypackage"]' in err
    assert "mypackage" not in sys.modules


def test_a_daemon_without_the_package_does_not_start_and_says_what_to_do(tensord: Command):
    code, _, err = tensord("serve", "--check-config", *NAMED)
    assert code == 1
    assert "plugin 'mypackage' is not installed in" in err


def test_a_daemon_without_plugins_says_so(tmp_path: Path, tensord: Command):
    with Daemon.start(tmp_path) as daemon:
        assert "the daemon has no plugins" in tensord("plugins", "--address", daemon.address)[1]
    assert "is installed for this Python" in tensord("plugins", "--installed")[1]


def test_a_disk_that_is_full_is_as_memory_that_is(on_path: Path, monkeypatch: pytest.MonkeyPatch):
    del on_path
    with td.connect("local", devices=["file:0", "cpu:0"], plugins=["mypackage"]) as session:
        import mypackage.device  # type: ignore[import-not-found]

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(mypackage.device.os, "posix_fallocate", full)
        with pytest.raises(td.DeviceMemoryError):
            session.xp.ones(100_000).numpy()
        assert session.xp.ones(10).tolist() == [1.0] * 10


def test_the_documentation_shows_the_package_as_it_is():
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
    for file in ("pyproject.toml", "mypackage/device.py", "mypackage/ops.py"):
        text = (PACKAGE / file).read_text()
        assert text in page, file
