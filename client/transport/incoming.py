"""Decodes the daemon's frames, and gives each answer to the object that waits for it, by the number of the request:

- a `Reply`, which the thread or event loop that asked waits for (`replies`);
- a side effect, whose callback the transport runs later, without the lock (`effects`);
- a host call: the daemon asks this process to call a function, or says that a call is over (`callers`).

The daemon numbers its messages of answers. After a reconnect it sends those again that it does not know to have
arrived; numbers up to `received` are ignored. Each message also reports the daemon's progress, from which `credit`
computes how much more may be sent. Long answers come in several parts. An answer in the daemon's own memory keeps that
memory until the array is dropped (`memory`). When the session is lost, all open replies fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import (
    ConnectionLost,
    ProtocolError,
    TensordError,
    node_lost,
    without_frames,
)
from ...interpreter.wire.arrays import array_of, dtype_of
from ...interpreter.wire.codec import decode
from ...interpreter.wire.frames import AGAIN, ARRAY, ARRAYS, CALL, ERROR, PART, REPLIES, WELCOME, decode_error
from .callers import Callers
from .effects import EffectAnswer, SideEffectRunner
from .host_functions import HostFunction
from .link import MAX_HEADER, ending_error
from .memory import DaemonMemory
from .outgoing import OutgoingBatches
from .replies import Reply

ACK_EVERY = 8  # messages of answers between two acknowledgements, which `remote` sends
CLOSED_HERE = "the session was closed"


class Incoming:
    """Decodes frames and sets replies. Guarded by the transport's lock.

    `received`, `acknowledged`: the number of the latest message of answers, and the one that the daemon was told.
    `consumed`, `consumed_bytes`: the messages and bytes that the daemon has processed. `parts`: what has come of long
    answers. `lost`: the error that ended the session. `effects`: runs side effects, outside of the lock, since they are
    user code.
    """

    def __init__(self, outgoing: OutgoingBatches, memory: DaemonMemory) -> None:
        self._outgoing = outgoing
        self._memory = memory
        self.effects = SideEffectRunner(outgoing.effects, self._end_check)
        self.resumed: Callable[[int], None] = lambda _received: None  # the daemon has resumed the session
        self.tell_loss: Callable[[TensordError], None] = lambda _error: None
        self.callers: Callers  # set by the transport
        self.node = ""  # of the machine, if it belongs to a cluster
        self.replies: dict[int, Reply] = {}
        self.parts: dict[int, list[Any]] = {}
        self.received = 0
        self.acknowledged = 0
        self.consumed = 0
        self.consumed_bytes = 0
        self.lost: TensordError | None = None

    def take(self, frames: Sequence[Any]) -> None:
        """Handle one message: answers, a WELCOME after a reconnect, or the reason why the daemon ends the session."""
        header = decode(frames[0].buffer, MAX_HEADER, MAX_HEADER)
        kind = header[0]
        if kind == REPLIES:
            self._take_replies(header, frames[1:])
        elif kind == WELCOME:
            self.resumed(header[6])  # the number of messages that the daemon has received
        else:
            self.lost = ending_error(header) or self.lost

    def _take_replies(self, header: Sequence[Any], payloads: Sequence[Any]) -> None:
        _, number, consumed, consumed_bytes, answers, free = header
        if number <= self.received:
            return  # sent again after a reconnect, but received before
        self.received = number
        self.consumed, self.consumed_bytes = consumed, consumed_bytes
        self._outgoing.consumed(consumed)
        if free:  # upload segments that the daemon has freed
            self._memory.freed(free)
        for request, kind, body in answers:
            self._answer(request, kind, body, payloads)

    def _answer(self, request: int, kind: int, body: Any, payloads: Sequence[Any]) -> None:
        export = self._outgoing.exports.pop(request, 0)
        value: Any = body
        error: TensordError | None = None
        mapped = False
        try:
            if kind == PART:
                self.parts.setdefault(request, []).extend(body)
                return
            if kind == ERROR:
                value, error = None, decode_error(body)
            elif kind == ARRAY:
                value, mapped = self._array(body, payloads, export)
            elif kind == CALL:
                self._call(request, body, payloads)
                return
            elif kind in (ARRAYS, AGAIN):
                value = [self._array(one, payloads, 0)[0] if len(one) == 4 else decode_error(one) for one in body]
            elif request in self.parts:
                value = self.parts.pop(request)
        except TensordError as failure:
            value, error = None, failure
        if export and not mapped:
            self._memory.release(export)
        self._set(request, value, error, again=kind == AGAIN)

    def _set(self, request: int, value: Any, error: TensordError | None, *, again: bool) -> None:
        """Give an answer to its side effect or reply. `again`: the side effect gets further answers."""
        if request in self._outgoing.effects:
            self.effects.answers.append(EffectAnswer(request, value, error, again))
            return
        reply = self.replies.pop(request, None)
        if reply is not None:
            reply.set(value, error)

    def _end_check(self, request: int, error: TensordError | None) -> None:
        """End the check of a chain."""
        reply = self.replies.pop(request, None)
        if reply is not None:
            reply.set(None, error)

    def _call(self, request: int, body: Any, payloads: Sequence[Any]) -> None:
        """A host call that the daemon asks for, or one that is over."""
        number, values = body
        effect = self._outgoing.effects.get(request)
        if effect is None or not effect.repeats:
            self._outgoing.effects.pop(request, None)
        if values is None:
            self._outgoing.returns.pop(number, None)
            self.callers.end_call(number)
        elif effect is not None and isinstance(effect.callback, HostFunction):
            self.callers.call(number, effect.callback, [self._array(one, payloads, 0)[0] for one in values])

    def _array(self, body: Sequence[Any], payloads: Sequence[Any], export: int) -> tuple[NDArray[Any], bool]:
        """The array, and whether it lies in the daemon's memory."""
        name, shape, strides, place = body
        dtype = dtype_of(name)
        if type(place) is bytes:
            return array_of(bytearray(place), shape, dtype), False
        if type(place) is int:
            return array_of(payloads[place].buffer, shape, dtype), False
        mapped = self._memory.mapped
        if mapped is None:
            raise ConnectionLost("the daemon answered with memory that was never shared")
        try:
            array: NDArray[Any] = mapped.array(place, np.dtype(dtype), shape, strides, export)
        except ProtocolError:
            if not mapped.is_alive():
                raise ConnectionLost("the daemon is gone, and the value with it") from None
            raise
        return array, True

    def fail(self, error: TensordError) -> None:
        """Fail all open replies: no more answers will come."""
        self.lost = without_frames(self._named(self.lost or error))
        self.callers.close()
        self.tell_loss(self.lost)
        replies, self.replies = self.replies, {}
        for reply in replies.values():
            reply.set(None, self.lost)

    def _named(self, error: TensordError) -> TensordError:
        """The error; NodeLost in place of ConnectionLost if the daemon is a node of a cluster."""
        if not self.node or type(error) is not ConnectionLost or error.message == CLOSED_HERE:
            return error
        return node_lost(self.node, error.message)
