"""A disk that is full or fails at any call: an error, no new generation, the last one complete, no leftovers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.writer import GenerationWriter
from tensord.interpreter.errors import FileError

from ...each_case import each_case
from ...full_disk import longest_file
from .calls import Nth, half, watched
from .histories import (
    STEPS,
    Collect,
    Content,
    Generate,
    Play,
    array,
    check_goes_on,
    check_whole,
    names_of,
    needed_of,
    small_files,
    write,
)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_files():
        yield


def failing(code: int, *, done: bool = False) -> Any:
    """A call that does half of its work, or all, and then fails."""

    def fail(name: str, real: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if done and name not in ("open", "write"):
            real(*arguments, **options)
        else:
            half(name, real, arguments)
        raise OSError(code, os.strerror(code))

    return fail


FAILURES = ((errno.ENOSPC, False), (errno.EIO, False), (errno.EIO, True))


def number_of_calls(path) -> int:
    watch = Nth(0, failing(0))
    with watched(watch):
        Play(path).play(STEPS)
    return watch.count


def test_any_call_may_fail_once(memory):
    """After any failure an error is raised or no value was lost; later steps go on from the last generation.

    Calls fail in three ways, in turn: each kind of call is made so often that it fails in all of them."""
    for n in range(1, number_of_calls(memory / "model") + 1):
        code, done = FAILURES[n % len(FAILURES)]
        path = memory / str(n)
        play, watch = Play(path), Nth(n, failing(code, done=done))
        with watched(watch):
            play.play(STEPS, faults=True)
        assert len(play.errors) <= 1
        if watch.called[n - 1] in ("fsync", "write", "rename"):
            assert len(play.errors) == 1
        for error in play.errors:
            assert str(path) in error.message
            assert isinstance(error.__cause__, OSError)
        check_goes_on(path, play.expected, check_whole(path, play.expected, [play.last]))


def test_from_any_call_on_everything_may_fail(memory):
    """A disk is lost and comes back, with the last generation."""
    for n in range(1, number_of_calls(memory / "model") + 1):
        path = memory / str(n)
        play, watch = Play(path), Nth(n, failing(errno.EIO))
        fail = failing(errno.EIO)

        def gone(name, real, arguments, options, watch=watch, n=n, fail=fail):
            if watch.count >= n:
                return fail(name, real, arguments, options)
            return watch(name, real, arguments, options)

        with watched(gone):
            play.play(STEPS, faults=True)
        assert play.errors
        if play.last:
            # a manifest that could neither be flushed nor removed stays
            allowed = [play.last, *(number for number in play.expected if number > play.last)]
            check_goes_on(path, play.expected, check_whole(path, play.expected, allowed))
        else:
            CheckpointDirectory.open(path, create=True).close()


@each_case("room", range(0, 200, 7))
def test_a_full_disk_at_any_byte_leaves_the_last_generation_and_nothing_else(memory, room):
    play = Play(memory / str(room))
    play.play([Generate({"a": array(3)})])
    with CheckpointDirectory.open(play.path) as directory:
        before = names_of(play.path)
        writer = directory.begin()
        with longest_file(room), pytest.raises(FileError) as caught:
            write_all(writer, dict.fromkeys("bcdefgh", array(12, 1)))
        assert caught.value.message == (
            f"{play.path}: generation 2: cannot be written: File too large; "
            "the one before it is untouched; free some space, or collect older generations"
        )
        assert names_of(play.path) == before
        with pytest.raises(FileError, match="was committed, or given up after an error; begin another one"):
            writer.commit()
        assert directory.begin().number == 3
    check_goes_on(play.path, play.expected, check_whole(play.path, play.expected, [1]))


def flushes(watch: Nth) -> list[int]:
    """The numbers of the calls that flush."""
    return [n for n, name in enumerate(watch.called, 1) if name == "fsync"]


def test_a_failed_flush_is_not_tried_again(tmp_path):
    """The same file is not flushed again and not used: the next generation has the value under another name."""
    with CheckpointDirectory.open(tmp_path / "c", create=True) as directory:
        flushed: list[tuple[int, int]] = []

        def fail_once(name, real, arguments, options):
            if name == "fsync":
                status = os.fstat(arguments[0])
                flushed.append((status.st_dev, status.st_ino))
                if len(flushed) == 1:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **options)

        with watched(fail_once):
            with pytest.raises(FileError, match="Input/output error"), directory.begin() as writer:
                first = write(writer, "a", array(3))
            assert len(flushed) == 1
            assert not any(name.startswith("values-") for name in names_of(tmp_path / "c"))
            with directory.begin() as writer:
                second = write(writer, "a", array(3))
        assert first.file != second.file


def test_a_generation_whose_last_flush_fails_is_taken_back_and_would_be_whole_if_it_came_back(tmp_path):
    path = tmp_path / "c"
    with CheckpointDirectory.open(path, create=True) as directory:
        with directory.begin() as writer:
            write(writer, "a", array(3))
        watch = Nth(0, failing(0))
        with watched(watch), directory.begin() as writer:
            write(writer, "a", array(3, 1))
        last = flushes(watch)[-1]
        manifest = b""

        def keep(name, real, arguments, options):
            nonlocal manifest
            manifest = (path / "generation-00000003").read_bytes()
            return failing(errno.EIO)(name, real, arguments, options)

        writer = directory.begin()
        with watched(Nth(last, keep)), pytest.raises(FileError, match="generation 3: cannot be written"):
            write_all(writer, {"a": array(3, 2)})
        assert directory.generations() == [1, 2]
        assert len(directory.orphans()) == 1
        (path / "generation-00000003").write_bytes(manifest)
        assert check_whole(path, {n: {"a": array(3, n - 1)} for n in (1, 2, 3)}, [3]) == 3
        (path / "generation-00000003").unlink()
        assert len(directory.sweep()) == 1
        assert directory.begin().number == 4


def test_values_stay_until_the_removal_of_their_manifest_was_flushed(tmp_path):
    play = Play(tmp_path / "c")
    play.play(STEPS[:2])
    with CheckpointDirectory.open(play.path) as directory:
        values = {name for name in names_of(play.path) if name.startswith("values-")}
        for n in (2, 1):  # the manifest is removed once
            with watched(Nth(n, failing(errno.EIO))), pytest.raises(FileError, match="cannot be flushed: Input/output"):
                directory.collect(1)
            assert {name for name in names_of(play.path) if name.startswith("values-")} == values
        assert directory.collect(1).files
        assert names_of(play.path) == needed_of(directory)


def test_an_interrupt_at_any_call_leaves_the_last_generation(memory):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    watch = Nth(0, interrupt)
    with CheckpointDirectory.open(memory / "model", create=True) as directory, watched(watch):
        two_generations(directory)
    for n in range(1, watch.count + 1):
        path = memory / str(n)
        with CheckpointDirectory.open(path, create=True) as directory:
            with watched(Nth(n, interrupt)), pytest.raises(KeyboardInterrupt):
                two_generations(directory)
            numbers = directory.generations()
            assert numbers in ([], [1])
            assert directory.begin().number > 1
        contents = {1: {"a": array(3), "b": array(60)}}
        check_goes_on(path, contents, check_whole(path, contents, [0, *numbers]))


def two_generations(directory: CheckpointDirectory) -> None:
    for seed in range(2):
        writer = directory.begin()
        try:
            write_all(writer, {"a": array(3, seed), "b": array(60, seed)})
        finally:
            writer.abandon()


def write_all(writer: GenerationWriter, content: Content) -> None:
    for name, value in content.items():
        write(writer, name, value)
    writer.commit()


def test_collecting_goes_on_where_it_failed(tmp_path):
    play = Play(tmp_path / "c")
    play.play([*STEPS[:2], Collect(9)])
    with CheckpointDirectory.open(play.path) as directory:
        with (
            watched(Nth(1, failing(errno.EPERM))),
            pytest.raises(FileError, match=r"generation-00000001: cannot be removed"),
        ):
            directory.collect(1)
        assert directory.collect(1).generations == [1]
        assert names_of(play.path) == needed_of(directory)
