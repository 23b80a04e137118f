"""Values and routines record the plugins of their writer; at its start a daemon logs those that differ."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensord as td
from tensord.vm.durability.contents import DEVICE
from tensord.vm.durability.restoring import look
from tensord.vm.durability.written_with import OPS, PLUGINS, Changed, changed
from tensord.vm.plugins.loading import LOADED, load

from ..daemon import Daemon
from .test_outside_package import NAMED, paths

WRITTEN = "names were written with another plugin or op"


@pytest.fixture
def checkpoints(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registries: None) -> Path:
    """A directory with three names: at home on the plugin's device, on ours, a routine with the plugin's op."""
    del registries
    monkeypatch.syspath_prepend(str(installed))
    with td.connect("local", devices=["file:0", "cpu:0"], plugins=["mypackage"]) as session:
        from mypackage.ops import damped  # type: ignore[import-not-found]

        x = session.asarray([1.0, 2.0])
        session.publish({"theirs": x, "ours": session.asarray([3.0], device="cpu:0")})
        session.publish("step", session.routine(lambda one: damped(one, x)).link(x))
        session.checkpoint(tmp_path / "checkpoints").wait()
    return tmp_path / "checkpoints"


def fields_in(directory: Path) -> dict[str, dict[str, Any]]:
    return look(directory.resolve(), 0, (), deep=False).fields


def test_each_value_and_routine_has_the_plugins_it_was_written_with(checkpoints: Path):
    fields = fields_in(checkpoints)
    assert fields["theirs"][DEVICE] == "file:0"
    assert fields["theirs"][PLUGINS] == (("mypackage", "1.2"),)
    assert PLUGINS not in fields["ours"]
    assert fields["step"][PLUGINS] == (("mypackage", "1.2"),)
    ((op, version, digest),) = fields["step"][OPS]
    assert (op, version, len(digest)) == ("mypackage.damped", "1.2", 16)
    assert changed(fields) == []


def test_what_is_another_one_here_is_found_with_the_names(checkpoints: Path):
    fields = fields_in(checkpoints)
    LOADED["mypackage"] = LOADED["mypackage"]._replace(version="1.3")
    assert changed(fields) == [Changed("plugin", "mypackage", "1.2", "1.3", ("step", "theirs"))]
    del LOADED["mypackage"]
    fields["step"][OPS] = (("mypackage.damped", "1.2", "another"), ("gone", "", "one"))
    ours, gone, theirs = changed(fields)
    assert ours == Changed("plugin", "mypackage", "1.2", "", ("step", "theirs"))
    assert gone == Changed("op", "gone", "unknown (one)", "", ("step",))
    assert (theirs.was, theirs.now[:5]) == ("1.2 (another)", "1.2 (")


def test_fields_that_lie_are_passed_over():
    lies: list[Any] = [None, 3, "x", (), ((),), ((1, 2),), (("a",),), (("a", "b", "c"),), [["a", "b"]], {"a": "b"}]
    assert changed({f"n{n}": {PLUGINS: lie, OPS: lie} for n, lie in enumerate(lies) if n != 7}) == []


def test_a_daemon_with_another_version_says_so_as_it_starts(checkpoints: Path, installed: Path, tmp_path: Path):
    newer = tmp_path / "newer"
    shutil.copytree(installed, newer)
    (about,) = newer.glob("*.dist-info/METADATA")
    about.write_text(about.read_text().replace("Version: 1.2", "Version: 1.3"))
    with Daemon.start(tmp_path, *NAMED, "--restore", str(checkpoints), PYTHONPATH=paths(newer)) as daemon:
        with daemon.connect() as session:
            assert session.lookup("theirs").device == "file:0"
        told = [line for line in daemon.log.splitlines() if WRITTEN in line]
    plugin, op = told
    assert all(word in plugin for word in ("plugin='mypackage'", "written_with='1.2'", "now='1.3'", "'theirs'"))
    assert all(word in op for word in ("op='mypackage.damped'", "['step']"))


def test_a_daemon_without_the_plugin_says_so_and_serves_the_rest(checkpoints: Path, tmp_path: Path):
    with Daemon.start(tmp_path, "--device", "cpu:0", "--restore", str(checkpoints)) as daemon:
        with daemon.connect() as session:
            assert session.lookup("theirs").tolist() == [1.0, 2.0]
            assert session.lookup("theirs").device == "cpu:0"
        told = [line for line in daemon.log.splitlines() if WRITTEN in line]
    assert len(told) == 2
    assert all("not loaded" in line for line in told)
    assert "a name was not restored" in daemon.log
    assert "step" in daemon.log


def test_a_machine_without_plugins_writes_nothing_of_them(tmp_path: Path, make_session: Callable[..., td.Session]):
    session = make_session(devices=["cpu:0"])
    session.publish("x", session.asarray([1.0]))
    session.checkpoint(tmp_path / "there").wait()
    assert PLUGINS not in fields_in(tmp_path / "there")["x"]
    assert load([]) == []
