"""`tensord doctor --checkpoints DIR`: damage, files that nothing refers to, the process that writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tensord.client.cli.doctor.checkpoints import check_checkpoints
from tensord.client.cli.doctor.findings import CheckResult, Level
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.types.meta import Meta

LARGE = 4 << 20  # bytes of a value that has a file of its own


def write(directory: Path, *names: str) -> None:
    """A generation with values of these names."""
    with CheckpointDirectory.open(directory, create=True) as opened:
        writer = opened.begin()
        for name in names:
            writer.start(name, Meta.of((LARGE,), "uint8"))
            writer.append(np.zeros(LARGE, np.uint8))
        writer.commit()


def findings(directory: Path, *, deep: bool = False) -> dict[str, CheckResult]:
    """The findings, by check."""
    return {one.check: one for one in check_checkpoints(directory, deep=deep)}


def values_of(directory: Path, name: str) -> Path:
    """The file with the values of a name."""
    with CheckpointReader.open(directory) as reader:
        return directory / f"values-{reader.generation(1).tensors[name].file:016x}"


def test_all_is_well(tmp_path):
    write(tmp_path, "a", "b")
    (found,) = check_checkpoints(tmp_path, deep=True)
    assert found.level is Level.OK
    assert found.message.startswith("generation 1 of ")
    assert found.message.endswith(f" in {tmp_path}: 2 names, 8 MiB")


def test_a_generation_that_cannot_be_read_names_the_one_in_its_place(tmp_path):
    write(tmp_path, "a")
    write(tmp_path, "a", "b")
    manifest = tmp_path / "generation-00000002"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    found = findings(tmp_path)
    assert found["generation 2"].level is Level.FAIL
    assert "is damaged" in found["generation 2"].message
    assert found["generation 2"].advice.startswith("generation 1 is restored in its place; ")
    assert "may need them" in found["orphans"].advice


def test_damaged_values_are_named(tmp_path):
    write(tmp_path, "a", "b")
    with values_of(tmp_path, "b").open("r+b") as file:
        file.write(b"\1")
    assert list(findings(tmp_path)) == ["checkpoints"]
    found = findings(tmp_path, deep=True)["generation 1"]
    assert found.level is Level.FAIL
    assert found.message.startswith("1 value damaged: b (")
    for path in tmp_path.glob("values-*"):
        path.unlink()
    assert findings(tmp_path)["generation 1"].message.startswith("2 values damaged: a, b (")


def test_files_that_nothing_refers_to_are_listed_with_their_bytes_and_age(tmp_path):
    write(tmp_path, "a")
    left = tmp_path / "values-00000000000000aa"
    left.write_bytes(bytes(2048))
    os.utime(left, (1, left.stat().st_mtime - 7200))
    (tmp_path / "somebody's").touch()
    found = findings(tmp_path)["orphans"]
    assert found.level is Level.WARN
    assert found.message.startswith("1 file of 2 KiB that no generation refers to: values-00000000000000aa (2 KiB, 2 h")
    assert found.advice == f"the next checkpoint removes them: tensord checkpoint {tmp_path}"
    with CheckpointDirectory.open(tmp_path) as opened:
        opened.collect(1)
    assert "orphans" not in findings(tmp_path)


def test_who_writes_is_named_and_what_it_writes_is_no_trouble(tmp_path):
    with CheckpointDirectory.open(tmp_path, create=True) as opened:
        writer = opened.begin()
        writer.start("a", Meta.of((LARGE,), "uint8"))
        writer.append(np.zeros(LARGE // 2, np.uint8))
        found = findings(tmp_path)
        assert found["lock"].message == f"{tmp_path} is being written by process {os.getpid()}"
        assert found["orphans"].level is Level.NOTE
        assert found["checkpoints"].message.endswith("has no generation yet")
    assert "lock" not in findings(tmp_path)


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_of_other_things_is_wrong(tmp_path, there):
    directory = tmp_path if there else tmp_path / "none"
    (tmp_path / "notes.txt").touch()
    (found,) = check_checkpoints(directory)
    assert found.level is Level.FAIL


def test_the_command_exits_with_1_and_has_it_for_programs(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    write(tmp_path / "ck", "a")
    assert run("doctor", "--checkpoints", tmp_path / "ck")[0] == 0
    values_of(tmp_path / "ck", "a").unlink()
    code, out, _ = run("doctor", "--checkpoints", tmp_path / "ck", "--json")
    assert code == 1
    (wrong,) = [one for one in json.loads(out) if one["level"] == "fail"]
    assert (wrong["check"], wrong["message"].split(":")[0]) == ("generation 1", "1 value damaged")
