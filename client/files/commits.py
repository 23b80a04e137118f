"""Gives files their names: one thread for all sessions of the process, while there is something to do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ..process.forks import FORKS

Place: TypeAlias = tuple[int, int, str]  # device and inode of a directory, and a name in it


class Commits:
    """Gives files their names, one after the other in the order in which their values were there.

    One that would replace the file of a later save is left out. `_open` has the saves to each place, in program order,
    that may still be given their names: those behind the last one that was.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may save, too
        self._waiting: deque[Callable[[], None]] = deque()
        self._open: dict[Place, list[object]] = {}
        self._running = False

    def expect(self, place: Place, saving: object) -> None:
        """Note a save, behind all earlier ones."""
        with self._lock:
            self._open.setdefault(place, []).append(saving)

    def is_overtaken(self, place: Place, saving: object) -> bool:
        """Has a later save to that place succeeded?"""
        with self._lock:
            return saving not in self._open.get(place, ())

    def overtake(self, place: Place, saving: object) -> None:
        """Note that a file has its name, which earlier saves must not replace."""
        with self._lock:
            there = self._open[place]
            del there[: there.index(saving)]

    def forget(self, place: Place, saving: object) -> None:
        """Note that a save has ended, successfully or not."""
        with self._lock:
            there = self._open.get(place, [])
            if saving in there:
                there.remove(saving)
            if not there:
                self._open.pop(place, None)

    def add(self, commit: Callable[[], None]) -> None:
        """Run a commit on a thread that lives while there are some."""
        with self._lock:
            self._waiting.append(commit)
            if self._running:
                return
            self._running = True
        try:
            threading.Thread(target=self._work, name="tensord save").start()
        except RuntimeError:  # the process ends
            self._work()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                commit = self._waiting.popleft()
            commit()

    def forked(self) -> None:
        """Forget everything in a forked child: the files are the parent's."""
        self.__init__()  # type: ignore[misc]


COMMITS = Commits()
FORKS.anew.append(COMMITS.forked)
