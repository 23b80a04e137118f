"""`tensord checkpoint` and `tensord restore`, through a daemon; `restore --list`, which needs no daemon."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensord.client.cli.drawing.terminal import ProgressBar
from tensord.client.cli.files.checkpoint import followed, show_written
from tensord.interpreter.checkpoints.directory import CheckpointDirectory

from ....daemon import Daemon

W, B = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(1 << 20, np.float32)  # the second has a file of its own


@pytest.fixture
def published(daemon: Daemon) -> Iterator[Any]:
    """A session that has published `w` and `b`. At the end no tensor has a name."""
    with daemon.connect() as session:
        session.publish({"w": session.asarray(W), "b": session.asarray(B, device="sim:0")})
        yield session
        session.sync()
        session.unpublish(*session.names())


@pytest.fixture
def told(run: Callable[..., tuple[Any, str, str]], daemon: Daemon) -> Callable[..., Any]:
    """told(*arguments, code=0) -> the JSON of a command."""

    def told(*arguments: object, code: int = 0) -> Any:
        left, out, err = run(*arguments, "--json", "--address", daemon.address)
        assert (left, err) == (code, ""), out
        return json.loads(out)

    return told


def values_of(directory: Path, name: str) -> Path:
    """The file with the values of a name, in the last generation."""
    with CheckpointDirectory.open(directory) as opened:
        generation = opened.latest().generation
        assert generation is not None
        return directory / f"values-{generation.tensors[name].file:016x}"


def spoil(path: Path) -> None:
    """Change the last byte of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_what_a_command_issues_has_the_command_as_its_location(published, told, tmp_path):
    told("checkpoint", tmp_path)
    found = {record.location for record in published.trace().records}
    assert "tensord checkpoint" in found
    assert not any("click" in location for location in found)


def test_how_far_it_has_come_is_asked_for(tmp_path):
    asked, shown, waits = [], ProgressBar("writing"), iter([TimeoutError, TimeoutError])

    class Writing:
        directory = tmp_path

        def wait(self, timeout: float) -> dict[str, Any]:
            assert timeout < 1
            for error in waits:
                raise error
            return {"generation": 1}

    class Answers:
        def query(self, what: str) -> list[dict[str, Any]]:
            asked.append(what)
            rows = [("/elsewhere", 1, 2), (str(tmp_path.resolve()), 10 * len(asked), 40)]
            return [dict(zip(("directory", "written", "bytes"), row, strict=True)) for row in rows]

    writing: Any = Writing()
    session: Any = SimpleNamespace(_core=SimpleNamespace(answers=Answers()))
    assert followed(session, writing, shown) == {"generation": 1}
    assert asked == ["checkpoints"] * 2
    assert shown._figures == (20, 40)


def test_what_is_published_goes_to_the_directory_and_comes_back(published, told, tmp_path):
    first = told("checkpoint", tmp_path / "ck")
    assert (first["generation"], first["names"], first["written"], first["failed"]) == (1, 2, W.nbytes + B.nbytes, {})
    again = told("checkpoint", tmp_path / "ck", "w", "--keep", 1)
    assert (again["names"], again["written"], again["kept"], again["collected"]) == (1, 0, W.nbytes, 1)
    told("checkpoint", tmp_path / "ck")
    published.unpublish("w", "b")
    found = told("restore", tmp_path / "ck")
    assert (found["generation"], found["names"], found["failed"], found["moved"]) == (3, 2, {}, {})
    for name, values in {"w": W, "b": B}.items():
        np.testing.assert_array_equal(published.lookup(name).numpy(), values)
    assert published.lookup("b").device == "sim:0"


def test_a_file_that_cannot_be_removed_is_told(capsys):
    report = dict.fromkeys(("generation", "names", "written", "kept", "seconds", "collected"), 1)
    show_written({**report, "failed": {}, "note": "old files are still there: /x"})
    assert "\nold files are still there: /x\n" in capsys.readouterr().out


def test_names_and_an_older_generation_can_be_asked_for(published, told, tmp_path):
    told("checkpoint", tmp_path)
    published.publish("w", published.asarray(W + 1))
    told("checkpoint", tmp_path)
    published.unpublish("w", "b")
    found = told("restore", tmp_path, "w", "--generation", 1)
    assert (found["generation"], found["names"]) == (1, 1)
    assert published.names() == ["w"]
    np.testing.assert_array_equal(published.lookup("w").numpy(), W)
    assert "has no 'x'" in told("restore", tmp_path, "x", code=1)["error"]
    assert "has no generation 7" in told("restore", tmp_path, "--generation", 7, code=1)["error"]


def test_a_value_with_an_error_is_named_and_the_command_fails(published, told, run, daemon, tmp_path):
    published.publish("bad", published.xp.linalg.inv(published.asarray(np.zeros((2, 2)))))
    report = told("checkpoint", tmp_path, code=1)
    assert list(report["failed"]) == ["bad"]
    assert "Singular" in report["failed"]["bad"]
    code, out, _ = run("checkpoint", tmp_path, "--address", daemon.address)
    assert code == 1
    assert re.search(r"generation 2: 2 names, 0 written, 4 MiB kept, in [\d.]+ \w+\n", out)
    assert "1 name not written" in out
    assert told("restore", tmp_path, "--list")[1]["names"] == 2


def test_what_is_damaged_is_named_the_rest_comes_back_and_strict_fails(published, told, run, daemon, tmp_path):
    told("checkpoint", tmp_path)
    values = values_of(tmp_path, "b")
    spoil(values)
    assert told("restore", tmp_path, "--strict")["failed"] == {}  # no session has read it
    found = told("restore", tmp_path, "--strict", "--deep", code=1)
    assert (list(found["failed"]), found["names"]) == (["b"], 1)
    values.unlink()
    code, out, _ = run("restore", tmp_path, "--address", daemon.address)
    assert code == 0
    assert "1 name published" in out
    assert re.search(rf"b +{values}.*: cannot be opened", out)
    assert "1 name not restored" in out
    assert published.names() == ["b", "w"]  # the generation before


def test_an_older_generation_is_restored_in_place_of_a_damaged_one(published, told, run, daemon, tmp_path):
    told("checkpoint", tmp_path)
    told("checkpoint", tmp_path)
    spoil(tmp_path / "generation-00000002")
    found = told("restore", tmp_path)
    assert (found["generation"], list(found["notes"])) == (1, ["2"])
    told("restore", tmp_path, "--strict", code=1)
    out = run("restore", tmp_path, "--address", daemon.address)[1]
    assert out.startswith("generation 2 is damaged, and an older one is restored: ")
    assert published.names() == ["b", "w"]


def test_names_of_a_device_that_is_missing_come_to_the_first_one(run, make_session, tmp_path):
    with make_session("local:elsewhere", devices=["cpu:0", "sim:1"]) as elsewhere:
        elsewhere.publish({f"x{n}": elsewhere.asarray([1.0 * n], device="sim:1") for n in range(5)})
        elsewhere.checkpoint(tmp_path).wait()
    make_session("local:here", devices=["cpu:0"])
    out = run("restore", tmp_path, "--address", "local:here")[1]
    assert "sim:1 is missing here: 5 names came to the first device (x0, x1, x2, ...)" in out
    found = json.loads(run("restore", tmp_path, "--address", "local:here", "--json")[1])
    assert found["moved"] == {f"x{n}": "sim:1" for n in range(5)}


class TestList:
    @pytest.fixture(autouse=True)
    def nobody_runs(self, monkeypatch, tmp_path_factory):
        monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("none")))

    @pytest.fixture
    def directory(self, make_session, tmp_path) -> Path:
        session = make_session()
        session.publish({"w": session.asarray(W), "b": session.asarray(B)})
        session.checkpoint(tmp_path).wait()
        session.checkpoint(tmp_path, "w").wait()
        return tmp_path

    def test_it_lists_generations(self, run, directory):
        code, out, err = run("restore", directory, "--list", "--strict")
        assert (code, err) == (0, "")
        rows = [line.split() for line in out.splitlines() if re.match(r" +\d", line)]
        assert [(row[0], *row[3:]) for row in rows] == [("1", "2", "4", "MiB"), ("2", "1", "48", "B")]

    def test_it_says_what_is_damaged(self, run, directory):
        with CheckpointDirectory.open(directory) as opened:
            (name,) = [f for f in opened.generation(1).files if f not in opened.generation(2).files]
        (directory / f"values-{name:016x}").unlink()
        code, out, _ = run("restore", directory, "--list")
        assert code == 0
        assert "1 name of generation 1 damaged" in out
        code, out, _ = run("restore", directory, "--list", "--json", "--strict")
        assert code == 1
        assert [list(row["failed"]) for row in json.loads(out)] == [["b"], []]
        assert run("restore", directory, "--list", "--strict", "--generation", 2)[0] == 0

    def test_only_deep_reads_values(self, run, directory):
        spoil(values_of(directory, "w"))
        assert run("restore", directory, "--list", "--strict")[0] == 0
        code, out, _ = run("restore", directory, "--list", "--strict", "--deep", "--json")
        assert code == 1
        assert [list(row["failed"]) for row in json.loads(out)] == [["w"], ["w"]]

    def test_a_manifest_that_cannot_be_read_is_a_row(self, run, directory):
        spoil(directory / "generation-00000002")
        code, out, _ = run("restore", directory, "--list", "--json", "--strict")
        assert code == 1
        assert [bool(row["error"]) for row in json.loads(out)] == [False, True]
        assert "is damaged" in run("restore", directory, "--list")[1]

    @pytest.mark.parametrize(
        ("more", "said", "status"),
        [(["w"], "leave out the names", 2), (["--generation", "9"], "has no generation 9", 1)],
    )
    def test_what_cannot_be_listed_is_one_line(self, run, directory, more, said, status):
        code, out, err = run("restore", directory, "--list", *more)
        assert (code, out, err.count("\n")) == (status, "", 1)
        assert said in err

    def test_a_directory_of_other_things_is_refused(self, run, tmp_path):
        (tmp_path / "notes.txt").touch()
        assert "holds no checkpoints" in run("restore", tmp_path, "--list")[2]
