"""A daemon restores a checkpoint before clients can connect; damage is logged, or ends the start."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.types.meta import Meta
from tensord.vm.durability.contents import DEVICE
from tensord.vm.service import preflight
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.settings.config import load

from ...daemon import MAIN, Daemon
from ...forked import run

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def write(directory: Path, names: int, device: str = "cpu:0") -> None:
    """A generation with `names` tensors of the value `W`."""
    with CheckpointDirectory.open(directory, create=True) as opened:
        writer = opened.begin()
        for n in range(names):
            writer.start(f"w{n}", Meta.of(W.shape, W.dtype), {DEVICE: device})
            writer.append(W)
        writer.commit()


def damage(directory: Path) -> None:
    """Take away the values of all names."""
    for path in directory.glob("values-*"):
        path.unlink()


def start(directory: Path, checkpoints: Path, *options: str) -> Daemon:
    return Daemon.start(directory, "--device", "cpu:0", "--restore", str(checkpoints), *options)


def refused(checkpoints: Path, *options: str) -> str:
    """The error of a daemon that does not start."""
    with tempfile.TemporaryDirectory(prefix="td-") as home:
        arguments = ["serve", "--address", f"ipc://{home}/socket", "--restore", str(checkpoints), *options]
        done = run(MAIN, ["tensord", *arguments])
        assert done.returncode == 1
        assert not (Path(home) / "socket").exists()
    return done.stderr


def test_what_one_daemon_has_written_the_next_one_has(tmp_path):
    checkpoints = tmp_path / "ck"
    with start(tmp_path, checkpoints) as running:
        assert "nothing to restore: no checkpoint was ever written there" in running.log
        with running.connect() as session:
            add = session.routine(lambda x: x + session.asarray(W))
            session.publish({"w": session.asarray(W), "add": add.link(session.asarray(W))})
            session.checkpoint(checkpoints).wait()
    with start(tmp_path, checkpoints, "--strict") as running:
        with running.connect() as session:
            assert session.names() == ["add", "w"]
            np.testing.assert_array_equal(session.lookup("w").numpy(), W)
            np.testing.assert_array_equal(session.lookup("add")(session.lookup("w")).numpy(), W + W)
            assert session.checkpoint(checkpoints).wait()["written"] == 0
            assert session.trace().verify() == []
        assert re.search(r"restored .*generation=1 names=2 ", running.log)
        assert running.stop() == 0


def test_names_are_those_of_nobody_and_any_session_may_replace_them(tmp_path):
    write(tmp_path / "ck", 2)
    with start(tmp_path, tmp_path / "ck") as running, running.connect() as session:
        session.publish("w0", session.asarray(W + 1))
        session.unpublish("w1")
        assert session.names() == ["w0"]
        np.testing.assert_array_equal(session.lookup("w0").numpy(), W + 1)


def test_what_is_not_as_it_was_is_told_in_a_few_lines(tmp_path):
    write(tmp_path / "ck", 30, device="cuda:7")
    with start(tmp_path, tmp_path / "ck") as running:
        lines = [line for line in running.log.splitlines() if "device of the checkpoint is missing" in line]
        assert len(lines) == 1
        assert all(part in lines[0] for part in ("missing='cuda:7'", "instead='cpu:0'", "names=30"))
        with running.connect() as session:
            assert session.lookup("w29").device == "cpu:0"
    damage(tmp_path / "ck")
    with start(tmp_path, tmp_path / "ck") as running:
        assert len([line for line in running.log.splitlines() if "a name was not restored" in line]) == 6
        assert "more=25" in running.log
        with running.connect() as session:
            assert session.names() == []


def test_strict_ends_the_start_before_anything_listens(tmp_path):
    said = refused(tmp_path / "ck", "--strict")
    assert "has no checkpoint to restore" in said
    write(tmp_path / "ck", 8)
    damage(tmp_path / "ck")
    said = refused(tmp_path / "ck", "--strict")
    assert "w0: " in said
    assert "and 3 more" in said
    assert said.count("\n") == 1


def test_checkpoints_that_cannot_be_read_end_the_start(tmp_path):
    """Otherwise the next checkpoints would replace the present ones."""
    (tmp_path / "notes.txt").touch()
    assert "holds no checkpoints" in refused(tmp_path)
    write(tmp_path / "ck", 1)
    manifest = tmp_path / "ck" / "generation-00000001"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    assert "has no generation that can be restored (generation 1: " in refused(tmp_path / "ck")


class TestDurableNames:
    """Configured durable names are restored after a restart, whether `restore` is set or not."""

    @staticmethod
    def configured(tmp_path: Path, **more: Any) -> Any:
        store = {"name": "store:0", "durable": str(tmp_path / "durable")}
        return load(None, {"devices": ["cpu:0", store], **more})

    @staticmethod
    def file(tmp_path: Path) -> str:
        path = tmp_path / "c.toml"
        path.write_text('devices = ["cpu:0", {name = "store:0", durable = "%s"}]\n' % (tmp_path / "durable"))
        return str(path)

    def test_they_are_there_after_a_restart_and_stay_durable(self, tmp_path):
        for expected in (0, 1, 2):
            with Daemon.start(tmp_path, "--config", self.file(tmp_path)) as running:
                with running.connect() as session:
                    assert len(session.names()) == expected
                    if expected:
                        np.testing.assert_array_equal(session.lookup("w0").numpy(), W)
                    session.publish(f"w{expected}", session.asarray(W), durable=True)
                assert running.stop() == 0

    def test_of_two_daemons_with_one_directory_the_second_does_not_start_while_the_first_lives(self, tmp_path):
        homes = [tmp_path / "first", tmp_path / "second"]
        for home in homes:
            home.mkdir()
        with Daemon.start(homes[0], "--config", self.file(tmp_path)) as first:
            for _ in range(2):  # without a name there, and with one
                with pytest.raises(AssertionError, match=rf"durable names: .* is in use by process {first.pid};"):
                    Daemon.start(homes[1], "--config", self.file(tmp_path))
                with first.connect() as session:
                    session.publish("w", session.asarray(W), durable=True)
            first.kill()
        with Daemon.start(homes[1], "--config", self.file(tmp_path)) as second, second.connect() as session:
            assert session.names() == ["w"]

    def test_another_directory_in_their_place_is_refused(self, tmp_path, monkeypatch):
        tmp_path.chmod(0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        write(tmp_path / "other", 1)
        preflight.check(self.configured(tmp_path, restore=str(tmp_path / "other")))  # it has no durable names yet
        write(tmp_path / "durable", 1)
        with pytest.raises(StartError, match=r"has durable names of an earlier run, and .*other is to be restored"):
            preflight.check(self.configured(tmp_path, restore=str(tmp_path / "other")))
        preflight.check(self.configured(tmp_path, restore=str(tmp_path / "durable")))

    def test_a_first_start_has_none_and_may_be_strict(self, tmp_path, monkeypatch):
        tmp_path.chmod(0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        preflight.check(self.configured(tmp_path, restore_strict=True))
        write(tmp_path / "durable", 1)
        damage(tmp_path / "durable")
        preflight.check(self.configured(tmp_path))
        with pytest.raises(StartError, match="w0: "):
            preflight.check(self.configured(tmp_path, restore_strict=True))


def test_strict_about_nothing_is_refused(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(StartError, match=r"restore_strict .* applies only to a restore: name a directory"):
        preflight.check(load(None, {"restore_strict": True}))


class TestPreflight:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path, monkeypatch):
        tmp_path.chmod(0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def config(self, checkpoints: Path, **more: Any) -> Any:
        return load(None, {"restore": str(checkpoints), **more})

    def test_the_check_says_what_a_start_would(self, tmp_path):
        checkpoints = tmp_path / "ck"
        preflight.check(self.config(checkpoints))
        assert not checkpoints.exists()
        write(checkpoints, 1)
        preflight.check(self.config(checkpoints, restore_strict=True))
        damage(checkpoints)
        preflight.check(self.config(checkpoints))
        with pytest.raises(StartError, match="w0: "):
            preflight.check(self.config(checkpoints, restore_strict=True))

    def test_a_path_in_a_file_is_relative_to_it(self, tmp_path):
        (tmp_path / "tensord.toml").write_text('restore = "ck"\nrestore_strict = true\n')
        config = load(tmp_path / "tensord.toml")
        assert (config.restore, config.restore_strict) == (tmp_path / "ck", True)


def test_a_first_checkpoint_that_was_cut_short_is_no_reason_not_to_start(tmp_path):
    write(tmp_path / "ck", 1)
    (tmp_path / "ck" / "generation-00000001").unlink()  # its files of values are left
    with CheckpointReader.open(tmp_path / "ck") as reader:
        assert reader.orphans()
    with start(tmp_path, tmp_path / "ck") as running, running.connect() as session:
        assert session.names() == []


def test_a_daemon_that_runs_serves_others_between_the_pieces_of_a_restore(tmp_path):
    write(tmp_path / "ck", 2000)
    with Daemon.start(tmp_path, "--device", "cpu:0") as running, running.connect() as session:
        assert session.restore(tmp_path / "ck")["names"] == 2000
        pieces = [record for record in session.trace().records if record.op == "restore"]
        assert len(pieces) == 1 + 2000 // 256
        assert len(session.names()) == 2000
        with pytest.raises(td.MetadataError):
            session.lookup("w2000")
