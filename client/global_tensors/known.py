"""Calls that were made before, and box nothing: one lookup, one message.

The rule is that of `calls`, with the general case cut away: the signatures of the parts' calls have numbers, and all of
them go into one ATOMIC message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...interpreter.wire.messages import ATOMIC, CALL
from ..calls.signatures import SMALL, Entry
from ..core.core import Core
from ..outbox.outbox import Outbox
from ..tensor.reading import forget
from ..tensor.tensor import Tensor
from .form import Form
from .tensor import GlobalTensor

KNOWN: Final = 4096  # kinds of calls


class Known:
    """The signatures of one kind of call, one for each part, and the forms of its results."""

    __slots__ = ("entries", "heavy", "integers", "outputs")

    def __init__(self, entries: Sequence[Entry], outputs: tuple[Form, ...]) -> None:
        self.entries = tuple(entries)
        self.outputs = outputs
        self.heavy = any(entry.heavy for entry in entries)
        self.integers = any(entry.integers for entry in entries)


class KnownCalls:
    """The known calls of one session, by whatever keys their callers make."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._known: dict[Any, Known] = {}
        self.get = self._known.get

    def add(self, key: Any, known: Known) -> None:
        while len(self._known) >= KNOWN:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = known

    def issue(
        self, core: Core, known: Known, operands: Sequence[Any], out: Sequence[Any] | None, location: int
    ) -> list[Any] | None:
        """Issue one call for each part; None if it has to go the long way."""
        if known.integers and any(type(one) is int and not 0 <= one <= SMALL for one in operands):
            return None
        outbox, entries = self._outbox, known.entries
        if known.heavy:
            outbox.make_way()
        with outbox.lock:
            ids = ids_of(operands, len(entries))
            if ids is None or not all(entry.alive for entry in entries):
                return None
            made = self._new_parts(core, entries) if out is None else targets_of(out)
            if made is None:
                return None
            calls = [
                [CALL, entry.number, given, tuple([part._id for part in results]), 0, location]
                for entry, given, results in zip(entries, ids, made, strict=True)
            ]
            messages = outbox.messages
            for message in calls if outbox.depth else ([ATOMIC, calls],):  # a group refuses more than it may hold
                messages.append(message)
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        if out is not None:
            return list(out)
        return [
            GlobalTensor(core, form, parts) for form, parts in zip(known.outputs, zip(*made, strict=True), strict=True)
        ]

    def _new_parts(self, core: Core, entries: Sequence[Entry]) -> list[list[Tensor]]:
        """New tensors for the results of each part's call. The caller holds the lock."""
        outbox = self._outbox
        newest, made = outbox.ids, []
        for entry in entries:
            made.append([Tensor(core, newest + n, meta, entry.home) for n, meta in enumerate(entry.outputs, 1)])
            newest += len(entry.outputs)
            outbox.ids = newest
        return made


def ids_of(operands: Sequence[Any], count: int) -> list[tuple[Any, ...]] | None:
    """The operands of each part's call: ids, or numbers as they are. None if a part was released."""
    columns: list[Sequence[Any]] = []
    for one in operands:
        if type(one) is GlobalTensor:
            ids = [part._id for part in one._parts]
            if min(ids) <= 0:
                return None
            columns.append(ids)
        else:
            columns.append((one,) * count)
    return list(zip(*columns, strict=True)) if columns else [()] * count


def targets_of(out: Sequence[Any]) -> list[tuple[Tensor, ...]] | None:
    """The targets of each part's call, whose values are known no more. None if a part was released."""
    parts = [part for one in out for part in one._parts]
    if any(part._id <= 0 for part in parts):
        return None
    for part in parts:
        forget(part)
    return list(zip(*[one._parts for one in out], strict=True))
