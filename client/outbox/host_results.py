"""Finds the results to copy to the host: those of ops issued in a block, `with session.host_results():`.

The hint for a result follows the op one batch later. By then the temporaries of an expression have been released, so
they are not copied; and the next ops, with which the transfer is to overlap, have been sent. Results are found in
the batches when they are sent, so ops cost the same as outside of blocks, and the results of a run that replaces calls
are found, too. Only new ids count: an op that writes in place makes none.

Guarded by the outbox's lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ...interpreter.wire.fields import HOST
from ...interpreter.wire.message_kinds import ATOMIC, CALL, RUN
from ...interpreter.wire.messages import Hint, encode_message

OUTPUTS = {CALL: 3, RUN: 4}  # the position of the result ids in a message; its location is the last field


class HostResultHints:
    """The hints of one session. `due`: results whose hints are sent next."""

    def __init__(self) -> None:
        self.due: dict[int, int] = {}  # id -> location of the op
        self._open = 0  # open blocks, in any thread
        self._blocks: list[list[int]] = []  # the newest id before a block, and its last id; -1 while the block is open
        self._newest = 0  # among the results that were sent
        self._excluded: set[int] = set()  # results not to copy
        self._released: set[int] = set()  # ids that the batch being sent releases

    def begin(self, newest: int) -> None:
        """Begin a block: results with later ids are copied to the host."""
        self._open += 1
        if self._open == 1:
            self._blocks.append([newest, -1])

    def end(self, newest: int) -> None:
        self._open -= 1
        if not self._open:
            self._blocks[-1][1] = newest

    def leave(self, id_: int) -> None:
        """Do not copy a result, unless its hint has been sent."""
        if self.due.pop(id_, None) is None and self._is_inside(id_):
            self._excluded.add(id_)

    def released(self, ids: Collection[int]) -> None:
        """Note the ids that the next batch releases."""
        self._released.update(ids)

    def hints(self, batch: Sequence[Any], whole: bool) -> list[list[Any]]:
        """The hints to send after a batch. `whole`: the batch holds everything issued before."""
        due, released = self.due, self._released
        self.due, self._released = {}, set()
        for id_, location in self._made(batch):
            if id_ in self._excluded:
                self._excluded.remove(id_)
            elif id_ not in released:
                self.due[id_] = location
        if whole and not self._open:
            self._blocks.clear()
            self._excluded.clear()
        return [
            encode_message(Hint(id_, "prefetch", HOST, location))
            for id_, location in due.items()
            if id_ not in released
        ]

    def _made(self, batch: Sequence[Any]) -> Iterator[tuple[int, int]]:
        """The results made in a batch inside of blocks, with the locations of their ops."""
        if not self._blocks:
            return
        for message in batch:
            kind = message[0]
            if kind == ATOMIC:
                yield from self._made(message[1])
            elif kind in OUTPUTS:
                for id_ in message[OUTPUTS[kind]]:
                    if id_ > self._newest:
                        self._newest = id_
                        if self._is_inside(id_):
                            yield id_, message[-1]

    def _is_inside(self, id_: int) -> bool:
        return any(before < id_ and (last < 0 or id_ <= last) for before, last in self._blocks)
