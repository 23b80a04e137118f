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
        outbox = self._outbox
        if known.heavy:
            outbox.make_way()
        with outbox.lock:
            if not all(entry.alive for entry in known.entries) or not all_living(operands, out):
                return None
            calls, made = [], []
            newest = outbox.ids
            for part, entry in enumerate(known.entries):
                ids = tuple([one._parts[part]._id if type(one) is GlobalTensor else one for one in operands])
                if out is None:
                    results = [Tensor(core, newest + n, meta, entry.home) for n, meta in enumerate(entry.outputs, 1)]
                    newest += len(results)
                    outbox.ids = newest
                else:
                    results = [one._parts[part] for one in out]
                calls.append([CALL, entry.number, ids, tuple([one._id for one in results]), 0, location])
                made.append(results)
            for results in made if out is not None else ():
                for part_written in results:
                    forget(part_written)
            messages = outbox.messages
            for message in calls if outbox.depth else ([ATOMIC, calls],):
                messages.append(message)
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        if out is not None:
            return list(out)
        return [GlobalTensor(core, form, [results[n] for results in made]) for n, form in enumerate(known.outputs)]


def all_living(operands: Sequence[Any], out: Sequence[Any] | None) -> bool:
    """Was no part released?"""
    return all(part._id > 0 for one in (*operands, *(out or ())) if type(one) is GlobalTensor for part in one._parts)
