"""The folder of the compiled form: one for each state of the sources, complete or absent."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy import compiled
from tensord.interpreter.build_info import RECORD_FILE


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """deploy/compiled.py, on a checkout of its own."""
    (tmp_path / "src" / "tensord").mkdir(parents=True)
    (tmp_path / "src" / "tensord" / "one.py").write_text("ONE = 1\n")
    (tmp_path / "setup.py").write_text("")
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled, "MADE", tmp_path / "out" / "compiled")
    return compiled


def building(module: Any, monkeypatch: pytest.MonkeyPatch, *, compiled: bool = True, fails: bool = False) -> list[str]:
    """Replace builds by their leftovers; returns the built folders."""
    built: list[str] = []

    def run(command: list[str], **_: Any) -> None:
        folder = Path(command[-1])
        built.append(folder.name)
        (folder / "tensord").mkdir(parents=True)
        if compiled:
            (folder / "tensord" / RECORD_FILE).write_text("{}")
        if fails:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(module.subprocess, "run", run)
    return built


def test_it_is_built_once_for_the_same_sources_and_anew_for_others(module, monkeypatch, capsys):
    built = building(module, monkeypatch)
    folders = []
    for text in ("ONE = 1\n", "ONE = 1\n", "ONE = 2\n"):
        (module.ROOT / "src" / "tensord" / "one.py").write_text(text)
        module.main()
        folders.append(Path(capsys.readouterr().out.strip()))
    assert folders[0] == folders[1] != folders[2]
    assert len(built) == 2
    assert list(module.MADE.iterdir()) == [folders[2]]
    assert (folders[2] / "tensord" / RECORD_FILE).exists()


def test_a_build_that_compiled_nothing_leaves_no_folder_and_prints_none(module, monkeypatch, capsys):
    building(module, monkeypatch, compiled=False)
    module.main()
    assert capsys.readouterr().out == ""
    assert not list(module.MADE.iterdir())


def test_a_build_that_fails_leaves_no_folder(module, monkeypatch):
    building(module, monkeypatch, fails=True)
    with pytest.raises(subprocess.CalledProcessError):
        module.main()
    assert not list(module.MADE.iterdir())
