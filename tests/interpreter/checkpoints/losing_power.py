"""A disk that loses its power: calls are logged, and replayed as a file system may have stored them.

Flushed data are there. Of the rest, each change of a directory may be there or not, independently of others; and of a
file's bytes that were not flushed, there may be any prefix, all, or zeros in their place. A file system that keeps the
order of changes has one of these states afterwards; POSIX allows all of them.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

MOST: Final = 6  # up to this many changes, every subset is tried; of more changes, some subsets
SOME: Final = 64  # subsets

State = tuple[tuple[str, bytes], ...]  # files by name


class Change(NamedTuple):
    """A change of a directory: `name` becomes the name of a file, or, with None, is removed, as is the name `gone`."""

    name: str
    file: int | None
    gone: str = ""


@dataclass
class File:
    """A file: its flushed bytes, and its present bytes."""

    flushed: bytes = b""
    now: bytes = b""


@dataclass
class Disk:
    """A directory within another one. `made`: whether it was made, and whether its name is flushed."""

    path: Path
    files: dict[int, File] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)  # the changes that are not flushed
    made: tuple[bool, bool] = (False, False)
    present: dict[int, int] = field(default_factory=dict)  # the file that has an inode

    # -- as a watch of calls: see calls.py -------------------------------------------------------------------------

    def __call__(self, name: str, real: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        result = real(*arguments, **options)
        getattr(self, f"_{name}")(result, *arguments)
        return result

    def _mkdir(self, _result: Any, path: Any, *_: Any) -> None:
        assert Path(path) == self.path
        self.made = (True, False)

    def _open(self, fd: int, name: str, flags: int, *_: Any) -> None:
        if flags & os.O_EXCL or name not in self._current():
            number = len(self.files)
            self.files[number] = File()
            self.present[os.fstat(fd).st_ino] = number
            self.changes.append(Change(name, number))

    def _write(self, count: int, fd: int, view: Any) -> None:
        self._file(fd).now += bytes(view)[:count]

    def _pwrite(self, count: int, fd: int, view: bytes, at: int) -> None:
        file = self._file(fd)
        file.now = file.now[:at].ljust(at, b"\0") + view[:count] + file.now[at + count :]

    def _ftruncate(self, _result: Any, fd: int, size: int) -> None:
        file = self._file(fd)
        file.now = file.now[:size].ljust(size, b"\0")

    def _fsync(self, _result: Any, fd: int) -> None:
        status = os.fstat(fd)
        if not stat.S_ISDIR(status.st_mode):
            file = self._file(fd)
            file.flushed = file.now
        elif os.path.samestat(status, self.path.stat()):
            self.names = self._current()
            self.changes.clear()
        else:
            assert os.path.samestat(status, self.path.parent.stat())
            self.made = (self.made[0], True)

    def _rename(self, _result: Any, old: str, new: str) -> None:
        self.changes.append(Change(new, self._current()[old], old))

    def _unlink(self, _result: Any, name: str) -> None:
        self.changes.append(Change(name, None))

    def _file(self, fd: int) -> File:
        return self.files[self.present[os.fstat(fd).st_ino]]

    def _current(self) -> dict[str, int]:
        return applied(self.names, self.changes)

    # -- possible states afterwards --------------------------------------------------------------------------------

    def after(self, rnd: random.Random) -> Iterator[State | None]:
        """The states that the directory may have if the power is lost now. None: the directory itself is lost."""
        if not all(self.made):
            yield None
        if not self.made[0]:
            return
        for kept in subsets(len(self.changes), rnd):
            names = applied(self.names, [change for change, there in zip(self.changes, kept, strict=True) if there])
            loose = sorted({n for n in names.values() if self.files[n].flushed != self.files[n].now})
            for _ in range(4 if loose else 1):
                contents = {n: self._content(n, rnd) if n in loose else self.files[n].flushed for n in names.values()}
                yield tuple(sorted((name, contents[n]) for name, n in names.items()))

    def _content(self, number: int, rnd: random.Random) -> bytes:
        file = self.files[number]
        common = file.flushed if file.now.startswith(file.flushed) else b""
        end = rnd.randrange(len(common), len(file.now) + 1)
        kept = rnd.choice((file.flushed, file.now, file.now[:end], file.now[:end].ljust(len(file.now), b"\0")))
        return kept if rnd.random() < 0.8 else common.ljust(len(file.now), b"\0")


def applied(names: dict[str, int], changes: list[Change]) -> dict[str, int]:
    """The names after these changes."""
    names = dict(names)
    for name, file, gone in changes:
        names.pop(gone, None)
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file
    return names


def subsets(count: int, rnd: random.Random) -> Iterator[tuple[bool, ...]]:
    """Subsets of `count` changes: all of them; if there are too many, the prefixes, the suffixes and some others."""
    if count <= MOST:
        yield from itertools.product((False, True), repeat=count)
        return
    for n in range(count + 1):
        yield (True,) * n + (False,) * (count - n)
        yield (False,) * n + (True,) * (count - n)
    for _ in range(SOME):
        yield tuple(rnd.random() < 0.5 for _ in range(count))
