"""A recorded session: its messages are recorded when admission takes them, its fetched values when they are sent.

Messages are recorded in the order in which the messages of all sessions are admitted. The bytes of uploads are
copied, since their memory may become a tensor's, and be written. Some values come from outside: tensors that are
looked up, received or loaded, results of host calls, arrays of a GPU. Such a value is read by a FETCH, which is
inserted into the session's messages after the message that brings the value. The request numbers of these FETCHes
are above those of clients, and their answers go only to the recorder.

For a session that is not recorded, the cost is one check per batch: whether `VmSession.tapped` is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from operator import length_hint
from typing import Any, Final

import numpy as np

from ...interpreter.errors import TensordError
from ...interpreter.programs.program import HOST_CALL, effects_of
from ...interpreter.recordings.entries import ANSWER, BEGIN, END, IMPORT, MESSAGE
from ...interpreter.wire.fields import Role, is_natural
from ...interpreter.wire.forms import has_kind, name_fields
from ...interpreter.wire.frames import encode_error
from ...interpreter.wire.message_kinds import (
    ATOMIC,
    COLLECTIVE,
    EFFECT,
    FETCH,
    FILE,
    FLUSH,
    LOAD,
    LOOKUP,
    NAMES,
    QUERY,
    RECV,
    RESTORE,
    RUN,
    SEND,
    SHARE,
    SYNC,
    UPLOAD,
    WAIT,
    WRITE,
)
from ...interpreter.wire.messages import Atomic, Effect, Message, Upload, encode_message, with_payload
from ...interpreter.wire.node_messages import Collective
from ...interpreter.wire.program_messages import Run
from ...interpreter.wire.roles import ids_of, number_of
from ..model.linked import SessionProgram
from ..model.session import VmSession
from .tap import Tap

OWN: Final = 1 << 62  # requests of recorders are from here on
# Messages that change no value of the session, or have effects outside of it alone.
LEFT_OUT: Final = frozenset({WAIT, SYNC, NAMES, QUERY, FILE, WRITE, FLUSH, RESTORE, SEND, SHARE})
ARRIVING: Final = frozenset({LOOKUP, LOAD, RECV})  # messages that define tensors with values from outside
_NEW: Final = frozenset({Role.NEW})


class Tapped:
    """A recorded session. `waiting`: ids of tensors that must be read before the session continues."""

    def __init__(self, session: VmSession, tap: Tap) -> None:
        self.session = session
        self.tap = tap
        self.waiting: deque[int] = deque()
        # The ids that the last message defines, if it is admitted, with values from outside.
        self._arrived: Sequence[int] = ()
        self._fetches: set[int] = set()
        self._reads: dict[int, int] = {}  # requests of the recorder -> the bytes that are reserved for the value
        self._own = count(OWN)
        self._reply = session.reply
        session.reply = self.reply
        session.tapped = self
        tap.put(BEGIN, session.id, session.name, session.strict, session.newest)

    def leave(self) -> None:
        """End the recording of the session."""
        self.waiting.clear()
        self._arrived = ()
        self.session.tapped = None
        self._restore_reply()

    def _restore_reply(self) -> None:
        """Restore the session's own reply function, once the recorder has all of its answers."""
        if not self._reads and self.session.reply == self.reply:
            self.session.reply = self._reply

    def unread(self) -> int:
        """The number of values that are still to be read."""
        self._settle()
        return len(self.waiting) + len(self._reads)

    def ended(self) -> None:
        """Record the end of the session."""
        self.tap.put(END, self.session.id)
        self.tap.reserved -= sum(self._reads.values())
        self._reads.clear()
        self.waiting.clear()

    # -- messages --------------------------------------------------------------------------------------------------

    def through(self, messages: Iterable[Message]) -> Iterator[Message]:
        """The messages of a batch, each recorded when it is taken."""
        return Noted(self, iter(messages))

    def inbox(self, inbox: deque[Message]) -> Inbox:
        """An inbox whose messages are recorded when they are taken."""
        return Inbox(self, inbox)

    def next_read(self, *, forced: bool = True) -> Message | None:
        """The next FETCH for the recorder; None if there is none.

        A value for which there is no room is lost if `forced`, and waits otherwise.
        """
        self._settle()
        while self.waiting:
            id_ = self.waiting[0]
            tensor = self.session.tensors.get(id_)
            if tensor is None:
                self.waiting.popleft()
                continue
            nbytes = tensor.meta.nbytes if tensor.meta is not None else 0
            if not self.tap.has_room(nbytes) and not forced:
                return None
            self.waiting.popleft()
            request = next(self._own)
            self.tap.put(IMPORT, self.session.id, self.tap.clock(), id_, tensor.home.name, request)
            if self.tap.has_room(nbytes):
                self.tap.reserved += nbytes
                self.tap.requested_bytes += nbytes
                self._reads[request] = nbytes
                return (FETCH, id_, request, 0, 0)
            what = f"tensor {id_} of session {self.session.id}: there was no room for {nbytes} bytes"
            lost = self.tap.lose(what, tensor.meta)
            self.tap.put(ANSWER, self.session.id, request, lost, None)
        return None

    def _settle(self) -> None:
        """Queue the values from outside that the last message has brought, now that it is admitted."""
        arrived, self._arrived = self._arrived, ()
        self.waiting += [id_ for id_ in arrived if id_ in self.session.tensors]

    def note(self, message: Message) -> None:
        """Record a message, as far as a replay needs it."""
        if self.tap.over:
            return
        if self._arrives(message):
            self._arrived = ids_of(message, _NEW)
            return
        values: list[int] = []
        arrived: list[int] = []
        plain = self._plain(message, values, arrived)
        if plain is not None:
            self.tap.put(MESSAGE, self.session.id, self.tap.clock(), plain, values)
        self._arrived = arrived
        if has_kind(message) and message[0] == FETCH:
            self._fetches.add(number_of(message, Role.REQUEST))

    def _arrives(self, message: Any) -> bool:
        """Whether all values that the message defines come from outside."""
        if not has_kind(message):
            return False
        if message[0] in ARRIVING:
            return True
        if message[0] == EFFECT:
            effect = name_fields(message, Effect)
            return effect is not None and bool(effect.outputs)
        if message[0] == COLLECTIVE:
            collective = name_fields(message, Collective)
            return collective is not None and bool(collective.homes)
        run = name_fields(message, Run)
        return run is not None and self._has_host_calls(run)

    def _has_host_calls(self, run: Run) -> bool:
        routine = self.session.routines.get(run.routine) if is_natural(run.routine) else None
        return isinstance(routine, SessionProgram) and any(
            step.op == HOST_CALL for step, _ in effects_of(routine.program)
        )

    def _plain(self, message: Any, values: list[int], arrived: list[int]) -> Any:
        """The message without objects of this process; None for the upload of a GPU array.

        Arrays of other uploads are recorded as `values`.
        """
        if not has_kind(message):
            return message
        kind = message[0]
        if kind == ATOMIC:
            group = name_fields(message, Atomic)
            if group is None or type(group.messages) not in {list, tuple}:
                return message
            inner = [self._plain(one, values, arrived) for one in group.messages]
            return [ATOMIC, [one for one in inner if one is not None]]
        if kind == UPLOAD:
            return self._upload(message, values, arrived)
        if kind == EFFECT and (effect := name_fields(message, Effect)) is not None:
            return encode_message(effect._replace(callback=None, request=0))
        if kind == RUN and (run := name_fields(message, Run)) is not None and type(run.effects) in {list, tuple}:
            return encode_message(run._replace(effects=[without_callback(one) for one in run.effects]))
        return message

    def _upload(self, message: Any, values: list[int], arrived: list[int]) -> Any:
        upload = name_fields(message, Upload)
        if upload is None:
            return message
        if isinstance(upload.payload, np.ndarray):
            values.append(self.tap.value(upload.payload, f"the upload of tensor {upload.output!r:.20}"))
            return with_payload(message, None)
        arrived += ids_of(message, _NEW)
        return None

    # -- answers ---------------------------------------------------------------------------------------------------

    def reply(self, request: int, value: Any, error: TensordError | None) -> None:
        """Record the answer to a FETCH. Pass each answer to the client, except those to the recorder's own FETCHes."""
        if request >= OWN:
            self.tap.reserved -= self._reads.pop(request, 0)
            self._answer(request, value, error)
            if error is not None:
                error.is_reported = True
            if self.session.tapped is not self:
                self._restore_reply()
            return
        if request in self._fetches:
            self._fetches.discard(request)
            self._answer(request, value, error)
        self._reply(request, value, error)

    def _answer(self, request: int, value: Any, error: TensordError | None) -> None:
        if self.tap.over:
            return
        number = self.tap.value(value, f"the answer to request {request}") if isinstance(value, np.ndarray) else 0
        self.tap.put(ANSWER, self.session.id, request, number, None if error is None else encode_error(error))


class Noted:
    """The messages of a batch, each preceded by the FETCHes that must run before it.

    A message that changes no value needs no FETCH before it.
    """

    def __init__(self, tapped: Tapped, rest: Iterator[Message]) -> None:
        self.tapped = tapped
        self.rest = rest
        self.held: Message | None = None  # the next message, while reads come before it

    def __iter__(self) -> Noted:
        return self

    def __next__(self) -> Message:
        message = next(self.rest) if self.held is None else self.held
        if changes_nothing(message):
            return message
        self.held = message
        read = self.tapped.next_read()
        if read is not None:
            return read
        self.held = None
        self.tapped.note(message)
        return message

    def __length_hint__(self) -> int:
        """The number of remaining messages, so that it is 0 only at the end. FETCHes are not counted."""
        return length_hint(self.rest) + (self.held is not None)


class Inbox:
    """A deque of messages, as far as admission uses one, with FETCHes in between as in `Noted`."""

    def __init__(self, tapped: Tapped, inbox: deque[Message]) -> None:
        self.tapped = tapped
        self.rest = inbox

    def __bool__(self) -> bool:
        return bool(self.rest)

    def popleft(self) -> Message:
        if changes_nothing(self.rest[0]):
            return self.rest.popleft()
        read = self.tapped.next_read()
        if read is not None:
            return read
        message = self.rest.popleft()
        self.tapped.note(message)
        return message


def changes_nothing(message: Any) -> bool:
    """Whether messages of this kind do not change a value of their session."""
    return has_kind(message) and message[0] in LEFT_OUT


def without_callback(effect: Any) -> Any:
    """The fields [chain, callback, request] of an effect, without callback and request."""
    return [effect[0], None, 0] if type(effect) in {list, tuple} and len(effect) == 3 else effect
