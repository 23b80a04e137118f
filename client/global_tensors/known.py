"""Calls that were made before, and box nothing: one lookup, one message.

The rule is that of `calls`, without the general case: the signatures of the parts' calls have numbers, and all calls go
into one ATOMIC message. As in `calls`, `operate` is the hot path, and written for speed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ...interpreter.wire.message_kinds import ATOMIC, CALL
from ..calls.signatures import MAX_UNCHECKED_INT, KnownSignature
from ..core.core import Core
from ..outbox.outbox import Outbox
from ..tensor.reading import forget
from ..tensor.tensor import Tensor
from .form import Form
from .tensor import GlobalTensor, of_ids

KNOWN: Final = 4096  # kinds of calls

new = object.__new__


class KnownCall:
    """The signatures of one kind of call, one for each part, and the forms of its results."""

    __slots__ = ("count", "entries", "heavy", "integers", "output", "outputs")

    def __init__(self, entries: Sequence[KnownSignature], outputs: tuple[Form, ...]) -> None:
        self.entries = tuple(entries)
        self.count = len(entries)
        self.outputs = outputs
        self.output: Any = outputs[0] if outputs else None  # of ops with one result
        self.heavy = any(entry.heavy for entry in entries)
        self.integers = any(entry.integers for entry in entries)


class KnownCalls:
    """The known calls of one session, by the keys that their callers make."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._known: dict[Any, KnownCall] = {}
        self._sites = outbox.locations.sites
        self._span = outbox.locations.spans.get

    def get(self, core: Core, key: Any) -> KnownCall | None:
        """The known call of that key. None also while a handler takes calls, or a thread captures a routine."""
        return self._known.get(key) if core.calls.known else None

    def add(self, key: Any, known: KnownCall) -> None:
        while len(self._known) >= KNOWN:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = known

    # -- the hot path ---------------------------------------------------------------------------------------------

    def operate(
        self, op: OpDef, x: Any, y: Any = None, in_place: bool = False, attributes: FrozenAttributes = ()
    ) -> Tensor:
        """An op of a global tensor, and of another operand unless that is None: `Calls.operate` for all parts."""
        # Find the signatures of the parts.
        core: Core = x._core
        ids = x._ids or x._part_ids()
        if type(y) is GlobalTensor:
            key: Any = (op, x._form, y._form, in_place)
            others: Any = y._core is core and (y._ids or y._part_ids())
            operands: Any = others and zip(ids, others)  # noqa: B905 - equally long, and `strict` costs more
        elif y is None:
            key, operands = (op, x._form, attributes), zip(ids)
        else:
            key, operands = (op, x._form, type(y), in_place), zip(ids, repeat(y))
        known = self._known.get(key)
        if (
            known is None
            or not (operands and ids and core.calls.known)
            or (known.integers and not 0 <= y <= MAX_UNCHECKED_INT)
        ):
            return core.global_calls.operate_anew(op, x, y, attributes, in_place, key)

        # Find the line of the user's code.
        outbox = self._outbox
        if known.heavy:
            outbox.make_way()
        location: Any = 0
        try:
            frame = sys._getframe(2)  # noqa: SLF001 - the interpreter's own
        except ValueError:  # called from C, with no Python frame below
            pass
        else:
            location = self._sites.get((id(frame.f_code), frame.f_lasti))
            if type(location) is not int:  # unknown, or dependent on its callers
                location = outbox.locations.site(frame)
        span = self._span()
        if span is not None:
            location |= span.bits or outbox.locations.spans.number(span)

        # Make the handle, and append one message for all parts.
        if in_place:
            made: GlobalTensor = x
        else:
            made = new(GlobalTensor)  # `of_ids`, without its call
            made._core = core
            made._form = known.output
            made._handles = None
        if not self._append(known, operands, made, ids if in_place else (), location):
            return core.global_calls.operate_anew(op, x, y, attributes, in_place, key)
        if core.opened and not in_place:
            hold(core, made)
        return made

    def _append(self, known: KnownCall, operands: Any, made: GlobalTensor, ids: tuple[int, ...], location: int) -> bool:
        """Append one message with the calls of all parts; False if the number of a signature was given away.

        `ids`: of the parts of `made` that the calls overwrite; empty for a new tensor, which gets its ids here.
        """
        outbox = self._outbox
        with outbox.lock:
            if ids:
                if made._handles is not None:
                    for part in made._handles:
                        forget(part)
            else:
                newest = outbox.ids
                outbox.ids = newest + known.count
                made._ids = ids = tuple(range(newest + 1, newest + 1 + known.count))  # before the calls are appended
            calls: list[Any] = []
            for entry, given, id_ in zip(known.entries, operands, ids):  # noqa: B905
                if not entry.alive:
                    return False
                calls.append([CALL, entry.number, given, (id_,), 0, location])
            messages = outbox.messages
            if outbox.depth:
                outbox.join(calls)
            else:
                messages.append([ATOMIC, calls])
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        return True

    # -- by name ---------------------------------------------------------------------------------------------------

    def issue(
        self, core: Core, known: KnownCall, operands: Sequence[Any], out: Sequence[Any] | None, location: int
    ) -> list[Any] | None:
        """Issue one call for each part; None if the call has to take the general path."""
        if known.integers and any(type(one) is int and not 0 <= one <= MAX_UNCHECKED_INT for one in operands):
            return None
        outbox, entries = self._outbox, known.entries
        columns = [one._part_ids() if type(one) is GlobalTensor else (one,) * known.count for one in operands]
        targets = None if out is None else [one._part_ids() for one in out]
        if not all(columns) or not all(targets or ()):
            return None  # a part was released
        if known.heavy:
            outbox.make_way()
        with outbox.lock:
            if not all(entry.alive for entry in entries):
                return None
            made = new_tensors(core, known, outbox) if out is None else forgotten(out)
            results = zip(*(targets or [each._ids for each in made]), strict=True) if made else repeat(())
            inputs = zip(*columns, strict=True) if columns else repeat(())
            calls: list[Any] = [
                [CALL, entry.number, given, ids, 0, location]
                for entry, given, ids in zip(entries, inputs, results)  # noqa: B905 - `repeat` has no end
            ]
            if outbox.depth:
                outbox.join(calls)
            else:
                outbox.messages.append([ATOMIC, calls])
        outbox.appended()
        if core.opened and out is None:
            for each in made:
                hold(core, each)
        return made


def new_tensors(core: Core, known: KnownCall, outbox: Outbox) -> list[GlobalTensor]:
    """New tensors for the results of the parts' calls. The caller holds the lock."""
    first, count = outbox.ids + 1, len(known.outputs)
    outbox.ids = last = outbox.ids + count * known.count
    return [of_ids(core, form, tuple(range(first + n, last + 1, count))) for n, form in enumerate(known.outputs)]


def forgotten(out: Sequence[Any]) -> list[Any]:
    """Targets, whose values are no longer known. The caller holds the lock."""
    for each in out:
        for part in each._handles or ():
            forget(part)
    return list(out)


def hold(core: Core, made: GlobalTensor) -> None:
    """Make the innermost context hold the parts of a new tensor."""
    scope = core.innermost()
    if scope is not None:
        for part in made._parts:
            scope.hold(part)
