"""A file is complete or absent after any failure, and a failed flush is never tried again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tensord.interpreter.errors import FileError, MetadataError
from tensord.interpreter.files import durable_file
from tensord.interpreter.files.durable_file import UNFINISHED_PREFIX, DurableFile
from tensord.interpreter.files.tensor_file import Identity

from ...each_case import each_case
from ...full_disk import longest_file


@contextmanager
def directory(path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture
def folder(tmp_path):
    with directory(tmp_path) as fd:
        yield fd


def write(folder, times=1, **options):
    """A committed file of `times` times eight bytes."""
    with DurableFile(folder, "x", **options) as file:
        for _ in range(times):
            file.write(b"8 bytes.")


def names(path):
    return sorted(entry.name for entry in path.iterdir())


@pytest.mark.parametrize("before", [None, "before"])
def test_it_is_there_once_it_is_committed(tmp_path, folder, before):
    path = tmp_path / "x"
    if before is not None:
        path.write_text(before)
    with DurableFile(folder, "x") as file:
        file.write(b"some ")
        file.write(memoryview(b"bytes"))
        assert (path.read_text() if path.exists() else None) == before
        assert any(name.startswith(UNFINISHED_PREFIX) for name in names(tmp_path))
    assert (path.read_text(), names(tmp_path)) == ("some bytes", ["x"])


def test_the_steps_come_in_the_order_that_lasts(folder, monkeypatch):
    steps = []

    def watch(name):
        real = getattr(os, name)

        def watched(first, *rest, **more):
            steps.append((name, first == folder))
            return real(first, *rest, **more)

        monkeypatch.setattr(os, name, watched)

    for name in ("write", "fsync", "close", "rename"):
        watch(name)
    with DurableFile(folder, "x") as file:
        file.write(b"bytes")
    assert steps == [("write", False), ("fsync", False), ("close", False), ("rename", False), ("fsync", True)]


def test_several_files_are_placed_and_their_directory_is_flushed_once(tmp_path, folder, monkeypatch):
    flushed, real = [], os.fsync

    def flush(fd):
        flushed.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fsync", flush)
    for name in "xyz":
        file = DurableFile(folder, name)
        file.write(b"bytes")
        identity = file.rename()
        assert identity == Identity.of((tmp_path / name).stat())
        assert not file.is_open
    assert folder not in flushed
    assert (len(flushed), names(tmp_path)) == (3, ["x", "y", "z"])


def test_its_unfinished_name_begins_as_it_is_told_to(tmp_path, folder):
    file = DurableFile(folder, "x", unfinished=f"{UNFINISHED_PREFIX}mine-")
    (name,) = names(tmp_path)
    assert name.startswith(f"{UNFINISHED_PREFIX}mine-")
    file.commit()
    assert names(tmp_path) == ["x"]


def test_the_system_is_told_to_begin_early_with_each_byte_once(folder, monkeypatch):
    monkeypatch.setattr(durable_file, "WRITE_AHEAD_BYTES", 100)
    told = []

    def advise(_, offset, count, advice):
        told.append((offset, count, advice))
        raise OSError(22, "Invalid argument")  # the call is only advice

    monkeypatch.setattr(os, "posix_fadvise", advise)
    file = DurableFile(folder, "x")
    for count in (99, 1, 250, 50):
        file.write(bytes(count))
    assert file.size == 400
    file.write_ahead()
    file.commit()
    assert told == [(0, 100, 4), (100, 250, 4), (350, 50, 4)]
    with pytest.raises(FileError, match="was committed"):
        file.write_ahead()


def test_the_identity_is_that_of_the_file_that_is_there(tmp_path, folder):
    file = DurableFile(folder, "x")
    file.write(b"bytes")
    assert file.commit() == Identity.of((tmp_path / "x").stat())


def test_a_file_that_is_given_up_leaves_what_was_there(tmp_path, folder):
    (tmp_path / "x").write_text("before")
    file = DurableFile(folder, "x")
    file.write(b"bytes")
    with suppress(ZeroDivisionError), file:
        raise ZeroDivisionError
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "before")
    file.abandon()
    for use in (file.commit, lambda: file.write(b"")):
        with pytest.raises(FileError, match=r"^x: was committed, or given up after an error; write it anew"):
            use()


@pytest.mark.parametrize("room", range(0, 40, 7))
def test_a_disk_that_is_full_at_any_write_leaves_what_was_there(tmp_path, folder, room):
    (tmp_path / "x").write_text("before")
    with longest_file(room), pytest.raises(FileError, match=r"^x: cannot be written: File too large") as caught:
        write(folder, 5)
    assert isinstance(caught.value.__cause__, OSError)
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "before")


@pytest.mark.parametrize("call", ["open", "fchmod", "write", "fsync", "fstat", "close", "rename"])
def test_any_system_call_may_fail(tmp_path, folder, monkeypatch, call):
    (tmp_path / "x").write_text("before")
    real = getattr(os, call)

    def fails(*rest, **more):
        if call == "close":
            real(*rest, **more)  # Linux has closed it, despite the error
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(FileError, match=r"^x: cannot be written: No space left on device"):
            write(folder)
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "before")


def test_a_failed_flush_is_final(tmp_path, folder, monkeypatch):
    calls = []

    def fails(fd):
        calls.append(fd)
        raise OSError(5, "Input/output error")

    file = DurableFile(folder, "x")
    file.write(b"bytes")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(FileError, match="Input/output error"):
            file.commit()
        with pytest.raises(FileError, match="given up after an error; write it anew"):
            file.commit()
    with pytest.raises(FileError, match="given up after an error"):
        file.commit()
    assert (len(calls), names(tmp_path)) == (1, [])


def test_a_failed_flush_of_the_directory_is_said_and_the_file_is_whole(tmp_path, folder, monkeypatch):
    fsync = os.fsync

    def fails(fd):
        if fd == folder:
            raise OSError(5, "Input/output error")
        fsync(fd)

    file = DurableFile(folder, "x")
    file.write(b"bytes")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(
            FileError, match=r"^x: is written, but may be gone after a loss of power: Input/output error"
        ):
            file.commit()
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "bytes")


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_an_interrupt_leaves_what_was_there(tmp_path, folder, monkeypatch, call):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(folder)
    assert names(tmp_path) == []


def test_a_file_keeps_its_mode_and_a_private_one_is_private_from_its_first_byte(tmp_path, folder):
    (tmp_path / "x").touch(0o640)
    (tmp_path / "x").chmod(0o640)
    before = os.umask(0o077)
    try:
        with DurableFile(folder, "x"), DurableFile(folder, "z"):
            modes = {
                path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name.startswith(UNFINISHED_PREFIX)
            }
    finally:
        os.umask(before)
    assert modes == {0o640, 0o600}
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "xz"] == [0o640, 0o600]


def test_a_link_is_replaced_and_not_followed(tmp_path, folder):
    (tmp_path / "target").write_text("before")
    (tmp_path / "x").symlink_to("target")
    with DurableFile(folder, "x") as file:
        file.write(b"after")
    assert not (tmp_path / "x").is_symlink()
    assert ((tmp_path / "target").read_text(), (tmp_path / "x").read_text()) == ("before", "after")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_replaced(tmp_path, folder, make):
    make(tmp_path / "x")
    with pytest.raises(FileError, match=r"^x: exists and is not a regular file, so it is not replaced"):
        DurableFile(folder, "x")
    assert names(tmp_path) == ["x"]


@each_case("name", ["", ".", "..", "a/b", "/x", "../x", "a\0b", "\ud800"])
def test_a_name_is_that_of_a_file_in_the_directory(folder, name):
    with pytest.raises(MetadataError, match="is not a name of a file"):
        DurableFile(folder, name)


def test_long_names_are_as_long_as_the_file_system_allows(tmp_path, folder):
    with DurableFile(folder, "x" * 255):
        pass
    assert names(tmp_path) == ["x" * 255]
    with pytest.raises(FileError, match="cannot be written: File name too long"):
        DurableFile(folder, "x" * 256)
