"""The ids of a session in a replay.

Tensors and programs that a session had when the recording began appear in any order, but ids must rise. So these get
new ids, from 1. All later ids grow by a constant, so that the gaps for the inner values of runs remain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEW_ID_OFFSET: Final = 1 << 40  # added to the ids of tensors made while the recording ran


class ReplayIds:
    """The ids of one session. `newest`: its newest id when the recording began; `last`: the newest in the replay."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.last = 0
        self._old: dict[int, int] = {}

    def of(self, id_: int) -> int:
        """The id of an existing tensor or program."""
        return 0 if not id_ else self._old.get(id_, id_ + NEW_ID_OFFSET)

    def all_of(self, ids: Iterable[int]) -> tuple[int, ...]:
        return tuple([self.of(id_) for id_ in ids])

    def new(self, id_: int) -> int:
        """The id of a new tensor or program."""
        if 0 < id_ <= self.newest and id_ not in self._old:
            self._old[id_] = len(self._old) + 1
        found = self.of(id_)
        self.last = max(self.last, found)
        return found
