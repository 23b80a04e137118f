"""After a loss of power at any point the last committed generation is there, or the one after it, complete."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.layout import FORMAT_FILE

from .calls import CALLS, Watch, watched
from .histories import (
    STEPS,
    Collect,
    Content,
    Generate,
    Play,
    Reopen,
    array,
    check_goes_on,
    check_whole,
    small_files,
)
from .losing_power import Disk, State

SOME = 2


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_files():
        yield


class States:
    """All possible states after a history, each once: files, and the generations one of which must be the last."""

    def __init__(self, path: Path, seed: int) -> None:
        self.disk = Disk(path)
        self.found: set[tuple[State | None, tuple[int, ...]]] = set()
        self.play = Play(path)
        self._rnd = random.Random(seed)

    def __call__(self, name: str, real: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.look()
        result = self.disk(name, real, arguments, options)
        self.look()
        return result

    def look(self) -> None:
        """The power may be lost now."""
        self.found.update((state, self.play.allowed) for state in self.disk.after(self._rnd))


def put(path: Path, state: State) -> None:
    """The files of a state, in a directory."""
    path.mkdir()
    for name, content in state:
        (path / name).write_bytes(content)


def check_state(path: Path, state: State | None, allowed: tuple[int, ...], expected: dict[int, Content]) -> int:
    """Check the directory as a machine finds it that has lost its power."""
    if state is not None:
        put(path, state)
    number = 0
    if state is not None and FORMAT_FILE in dict(state):
        number = check_whole(path, expected, allowed)
    else:
        assert 0 in allowed
    check_goes_on(path, expected, number)
    shutil.rmtree(path)
    return number


def test_what_was_committed_is_there_after_a_loss_of_power(memory):
    states = States(memory / "c", 0)
    with watched(states):
        states.play.play(STEPS)
    assert {"open", "write", "fsync", "rename", "unlink", "mkdir"} <= set(CALLS)
    assert len(states.found) > 500
    numbers = set()
    for state, allowed in some_of(states.found):
        numbers.add((allowed, check_state(memory / "after", state, allowed, states.play.expected)))
    between = [allowed for allowed, _ in numbers if len(allowed) > 1]
    assert {(allowed, allowed[1]) for allowed in between} <= numbers, "no generation was there before it was committed"
    assert {(allowed, allowed[0]) for allowed in between} <= numbers


def some_of(found: Iterable[Any]) -> list[Any]:
    """Some of the states with the same manifests and the same allowed generations: the check of one takes a
    hundred system calls."""
    alike: dict[Any, list[Any]] = {}
    for state, *rest in sorted(found, key=repr):
        manifests = tuple(name for name, _ in state or () if name.startswith("generation"))
        alike.setdefault((manifests, *rest), []).append((state, *rest))
    rnd = random.Random(1)
    return [one for several in alike.values() for one in rnd.sample(several, min(SOME, len(several)))]


def dies(n: int, disk: Disk) -> Watch:
    """A watch of a process that is killed at its n-th call: none of its later calls reaches the disk."""
    count = 0

    def watch(name: str, real: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        nonlocal count
        count += 1
        if count >= n:
            raise OSError(errno.EIO, "killed")
        return disk(name, real, arguments, options)

    return watch


def test_what_was_committed_is_there_after_a_kill_and_then_a_loss_of_power(memory):
    """The next process sees the files of the dead one, and relies on them, although they may not have been flushed."""
    found: set[tuple[State | None, tuple[int, ...], int]] = set()
    contents: dict[int, dict[int, Content]] = {}
    seen = set()
    n, died = 0, True
    while died:
        n += 1
        states = States(memory / str(n), n)
        with watched(dies(n, states.disk)):
            states.play.play(STEPS[:2], faults=True)
        before, died = states.play.last, bool(states.play.errors)
        with watched(states):
            states.play.take(Reopen())
            seen.add(states.play.last - before)
            states.play.take(Collect(1))
            states.play.take(Generate({"n": array(2, 8)}, ("a", "w", "r")))
            states.play.take(Collect(1))
        states.play.close()
        contents[n] = states.play.expected
        found |= {(state, allowed, n) for state, allowed in states.found}
    assert seen == {0, 1}, "no generation was seen that was not flushed"
    for state, allowed, number in some_of(found):
        check_state(memory / "after", state, allowed, contents[number])


def test_the_disk_keeps_what_was_flushed_and_any_part_of_the_rest(tmp_path):
    """The model itself."""
    disk = Disk(tmp_path / "d")
    with watched(disk):
        (tmp_path / "d").mkdir()
        parent, directory = (os.open(path, os.O_RDONLY) for path in (tmp_path, tmp_path / "d"))
        assert set(disk.after(random.Random(0))) == {None, ()}
        os.fsync(parent)
        fd = os.open("x", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=directory)
        os.write(fd, b"ab")
        found = {state for seed in range(99) for state in disk.after(random.Random(seed))}
        assert found == {(), *((("x", content),) for content in (b"", b"a", b"ab", b"\0\0", b"a\0"))}
        os.fsync(fd)
        assert set(disk.after(random.Random(0))) == {(), (("x", b"ab"),)}
        os.rename("x", "y", src_dir_fd=directory, dst_dir_fd=directory)
        assert set(disk.after(random.Random(0))) == {(), (("x", b"ab"),), (("y", b"ab"),)}
        os.fsync(directory)
        assert set(disk.after(random.Random(0))) == {(("y", b"ab"),)}
        os.unlink("y", dir_fd=directory)
        assert set(disk.after(random.Random(0))) == {(), (("y", b"ab"),)}
        for opened in (fd, directory, parent):
            os.close(opened)


def test_a_directory_that_was_never_flushed_begins_anew(tmp_path):
    path = tmp_path / "c"
    put(path, (("lock", b""), (".tensord-checkpoint-0123456789abcdef", b"\0\0")))
    with CheckpointDirectory.open(path, create=True) as directory:
        assert directory.latest() == (None, {})
