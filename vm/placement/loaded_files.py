"""The files in which loaded tensors lie, and the poisoning of tensors whose file has changed.

A loaded tensor has the value of its file. Once the file has changed, the value is unknown, so the tensor fails with an
error that names the file, even if a copy of the value is still in memory; otherwise the outcome would depend on
evictions. Results computed before stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from weakref import WeakSet

from ...interpreter.errors import FileError
from ...interpreter.files.open_file import OpenFile
from ...streams.disk.stored import LoadedStretch
from ..memory.replicas import forget_others
from ..model.device_state import DeviceState
from ..model.tensor import Storage


class LoadedFiles:
    """The files of one engine.

    `open`: the files in which tensors lie; `changed`: those found to have changed. `storages`: yields all storages.
    """

    def __init__(self, storages: Callable[[], Iterable[Storage]], store: DeviceState | None) -> None:
        self.open: WeakSet[OpenFile] = WeakSet()
        self.changed: WeakSet[OpenFile] = WeakSet()
        self._storages = storages
        self._store = store

    def look(self) -> None:
        """Check all open files after a failed read, and poison the values of those that have changed."""
        self.give_up(changed_among(self.open))

    def give_up(self, changed: Sequence[OpenFile]) -> int:
        """Poison the values that lie in changed files; return their number."""
        if self._store is None or not changed:
            return 0
        for file in changed:
            self.open.discard(file)
            self.changed.add(file)
        return give_up_values(self._storages(), self._store, changed)


def changed_among(files: Iterable[OpenFile]) -> list[OpenFile]:
    """The files that have changed since they were opened; checks each file on disk."""
    changed = []
    for file in files:
        try:
            file.check()
        except FileError:
            changed.append(file)
    return changed


def give_up_values(storages: Iterable[Storage], store: DeviceState, files: Iterable[OpenFile]) -> int:
    """Poison the values that lie in these files; return their number."""
    changed, count = set(files), 0
    for storage in storages:
        copy = storage.copies.get(store)
        stretch = None if copy is None or copy.buffer is None else copy.buffer.raw
        if copy is None or not isinstance(stretch, LoadedStretch) or stretch.file not in changed:
            continue
        forget_others(copy, storage)
        if copy.poison is None:
            copy.poison = stretch.file.changed
            count += 1
    return count
