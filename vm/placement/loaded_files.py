"""The files that tensors lie in, and those of them that have changed underneath.

The value of a tensor that was loaded is the file's. Once the file has changed, nobody can say what that was, so the
tensor fails with an error that names the file, whether its value happens to be in memory or not: else it would depend
on what was evicted. What was computed from it before stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from weakref import WeakSet

from ...interpreter.errors import FileError
from ...interpreter.files.open_file import OpenFile
from ...streams.disk.stored import LoadedStretch
from ..memory.replicas import forget
from ..model.device_state import DeviceState
from ..model.tensor import Storage


class LoadedFiles:
    """The files of one engine. `open`: those that tensors lie in, and `changed`, those of them that are not what they
    were. `storages`: gives all that there are."""

    def __init__(self, storages: Callable[[], Iterable[Storage]], store: DeviceState | None) -> None:
        self.open: WeakSet[OpenFile] = WeakSet()
        self.changed: WeakSet[OpenFile] = WeakSet()
        self._storages = storages
        self._store = store

    def look(self) -> None:
        """A read has failed: perhaps since a file has changed."""
        self.give_up(changed_among(self.open))

    def give_up(self, changed: Sequence[OpenFile]) -> int:
        """Poison the values that lie in files which have changed; how many there are."""
        if self._store is None or not changed:
            return 0
        for file in changed:
            self.open.discard(file)
            self.changed.add(file)
        return give_up_values(self._storages(), self._store, changed)


def changed_among(files: Iterable[OpenFile]) -> list[OpenFile]:
    """The files that are not what they were; each is looked at."""
    found = []
    for file in files:
        try:
            file.check()
        except FileError:
            found.append(file)
    return found


def give_up_values(storages: Iterable[Storage], store: DeviceState, files: Iterable[OpenFile]) -> int:
    """Poison the values that lie in these files, which have changed; how many there are."""
    changed, count = set(files), 0
    for storage in storages:
        copy = storage.copies.get(store)
        stretch = None if copy is None or copy.buffer is None else copy.buffer.raw
        if copy is None or not isinstance(stretch, LoadedStretch) or stretch.file not in changed:
            continue
        for other in storage.current():
            if other is not copy:
                forget(other, storage)
        if copy.poison is None:
            copy.poison = stretch.file.changed
            count += 1
    return count
