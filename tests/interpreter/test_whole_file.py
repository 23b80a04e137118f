"""A file is complete or absent, however the writing ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensord.interpreter.whole_file import write_whole

from ..full_disk import longest_file
from ..vm.tracing.analysis.trace_programs import random_trace


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("content", ["text, ü", b"bytes\x00"])
def test_it_replaces_what_was_there(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text("before")
    write_whole(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names(tmp_path) == ["x.json"]


@pytest.mark.parametrize("before", [None, "before"])
def test_a_full_disk_leaves_what_was_there(tmp_path, before):
    path = tmp_path / "x.json"
    if before is not None:
        path.write_text(before)
    with longest_file(100), pytest.raises(OSError, match=r"x\.json"):
        write_whole(path, "x" * 5_000)
    assert names(tmp_path) == ([] if before is None else ["x.json"])
    assert before is None or path.read_text() == before


def test_a_private_file_is_private_from_its_first_byte(tmp_path, monkeypatch):
    path, modes = tmp_path / "secret", []
    write_bytes = Path.write_bytes

    def watched(self, content):
        modes.append(self.stat().st_mode & 0o777)
        return write_bytes(self, content)

    monkeypatch.setattr(Path, "write_bytes", watched)
    write_whole(path, "x", mode=0o600)
    assert (modes, path.stat().st_mode & 0o777, names(tmp_path)) == ([0o600], 0o600, ["secret"])


def test_a_file_keeps_its_mode_and_its_neighbours(tmp_path):
    path, other = tmp_path / "x", tmp_path / "x.partial"
    path.touch(0o600)
    path.chmod(0o600)
    other.write_text("the user's own")
    write_whole(path, "after")
    assert (path.stat().st_mode & 0o777, path.read_text(), other.read_text()) == (0o600, "after", "the user's own")


def test_where_the_directory_may_not_be_changed_the_file_is_written_through(tmp_path, monkeypatch):
    """Root may change every directory, so the test gives the system's answer."""
    path = tmp_path / "x"
    path.write_text("before")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        write_whole(path, "after")
        with pytest.raises(PermissionError, match="another"):
            write_whole(tmp_path / "another", "x")
    assert (path.read_text(), names(tmp_path)) == ("after", ["x"])


def test_a_new_file_replaces_none(tmp_path):
    path = tmp_path / "x"
    write_whole(path, "before", new=True)
    with pytest.raises(FileExistsError):
        write_whole(path, "after", new=True)
    assert (names(tmp_path), path.read_text()) == (["x"], "before")


def test_an_interrupt_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    path.write_text("before")

    def interrupted(self, _content):
        self.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "after")
    assert (names(tmp_path), path.read_text()) == (["x.json"], "before")


def test_a_link_still_leads_to_the_file(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    write_whole(link, "after")
    assert link.is_symlink()
    assert target.read_text() == "after"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_device_is_written_through():
    with pytest.raises(OSError, match="/dev/full"):
        write_whole("/dev/full", "x")
    write_whole("/dev/null", "x")


def test_a_timeline_is_whole_or_not_there(tmp_path):
    path = tmp_path / "run.json"
    with longest_file(1_000), pytest.raises(OSError, match=r"run\.json"):
        random_trace(1).timeline(path)
    assert names(tmp_path) == []
