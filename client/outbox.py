"""The outbox: what a session has issued and not yet sent.

A batch leaves when it is full, before every wait, when a second heavy op joins it, or when it has lain idle for
10 ms. Handles that were dropped by then ride along: as a bit on the last call that uses them, else as a message
behind whatever else does.

Threads. `lock` guards the messages and the session's tables; it is re-entrant, since a signal handler may issue ops on
the very thread that holds it. (It may not send or wait while its thread drives the machine: that is a ProtocolError,
and the messages stay here. Nor may it raise there, but for Ctrl-C, which is kept back.) It is never held while waiting.
`Tensor.__del__` runs anywhere, also inside the lock, so all it does is put the id on a `queue.SimpleQueue`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from ..interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ..interpreter.messages import (
    CALL,
    EFFECT,
    FETCH,
    LOCATION,
    LOOKUP,
    PUBLISH,
    RELEASE,
    SIGNATURE,
    TO_DEVICE,
    UPLOAD,
    WAIT,
    Message,
)
from .locations import Locations, describe, user_frame
from .transport import ClosedTransport, Reply, session_closed

BATCH = 256
# Where the messages other than calls hold tensor ids, one or a tuple.
ID_FIELDS = {
    RELEASE: (1,),
    UPLOAD: (1,),
    FETCH: (1,),
    WAIT: (1,),
    EFFECT: (1,),
    PUBLISH: (2,),
    LOOKUP: (2,),
    TO_DEVICE: (1, 2),
}


class Outbox:
    """The unsent messages of one session, and its transport.

    `scalars` maps a signature's number to which of its operands are scalars: they are no ids.
    """

    __slots__ = (
        "_flushes",
        "_pid",
        "_seen_flushes",
        "drop",
        "dropped",
        "heavy",
        "ids",
        "locations",
        "lock",
        "messages",
        "scalars",
        "transport",
    )

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.lock = threading.RLock()
        self.messages: list[list[Any]] = []  # lists, since a release may still be marked on a call
        self.scalars: dict[int, Sequence[bool]] = {}
        self.locations = Locations(self.lock)
        self.ids = 0  # the newest id: they rise and are never reused
        self.heavy = False
        self.dropped: SimpleQueue[int] = SimpleQueue()
        self.drop = self.dropped.put
        self._flushes = 0
        self._seen_flushes = -1
        self._pid = os.getpid()

    def new_id(self) -> int:
        """The next id; the caller holds the lock."""
        self.ids += 1
        return self.ids

    def appended(self) -> None:
        """Something was added: send a full batch, have a lone message looked after."""
        size = len(self.messages)
        if size >= BATCH:
            self.flush()
        elif size:
            self.transport.rouse(self.idle_flush)

    def make_way(self) -> None:
        """A heavy op is to join: what is there leaves first, so that it starts while the next ones are prepared.

        The newest heavy op stays until the next one comes, since the handles it uses up are dropped only after the
        call; so their release can ride on it, and its result can take over their memory.
        """
        if self.heavy:
            self.flush()
        self.heavy = True

    def flush(self, *, patient: bool = True) -> None:
        """Send what is unsent. Never waits for results; a patient one waits until the machine takes more."""
        with self.lock:
            transport = self.transport
            sent = self.send()
        if sent and patient:
            transport.await_credit()

    def send(self) -> bool:
        """Hand over what is unsent, and say whether there was anything; the caller holds the lock.

        Under the transport's shield: Ctrl-C between taking the batch and handing it over would lose it.
        """
        self._check_process()
        with self.transport.shield:
            batch, self.messages = self.messages, type(self.messages)()
            self.heavy = False
            self._flushes += 1
            if not self.dropped.empty():
                self._release_dropped(batch)
            if self.locations.unsent:
                sites, self.locations.unsent = self.locations.unsent, []
                batch[:0] = [[LOCATION, number, text] for number, text in sites]
            if batch:
                try:
                    self.transport.send(batch)
                except ProtocolError:  # the machine is busy with us further up this stack: nothing is lost
                    self.messages[:0] = batch
                    raise
        return bool(batch)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ConnectionLost("this session belongs to another process; connect again after a fork")

    def _release_dropped(self, batch: list[list[Any]]) -> None:
        take = self.dropped.get_nowait
        dropped = {take() for _ in range(self.dropped.qsize())}
        for position in range(len(batch) - 1, -1, -1):
            message = batch[position]
            if message[0] == CALL:
                if not (dropped.isdisjoint(message[2]) and dropped.isdisjoint(message[3])):
                    ride(message, dropped, self.scalars[message[1]])
                    if not dropped:
                        return
            elif message[0] != SIGNATURE:
                used = {id_ for id_ in dropped if mentions(message, id_)}
                if used:
                    batch.insert(position + 1, [RELEASE, tuple(sorted(used))])
                    dropped -= used
        if dropped:  # nothing here uses them: their memory serves the first message already
            batch.insert(0, [RELEASE, tuple(sorted(dropped))])

    def idle_flush(self) -> bool:
        """Called now and then by the transport: send what nobody has sent since the last time."""
        if not self.messages and self.dropped.empty():
            return False
        if self._flushes == self._seen_flushes and self.lock.acquire(blocking=False):
            try:
                self.send()
            except ConnectionLost:
                return False
            finally:
                self.lock.release()
        self._seen_flushes = self._flushes
        return True

    def ask(self, build: Callable[[int, int], list[Any]]) -> Reply:
        """Send a message that asks for a reply, behind everything unsent. `build` gets request and location."""
        with self.lock:
            number, reply = self.transport.request()
            location = self.locations.number(user_frame(2))
            self.messages.append(build(number, location))
        self.flush(patient=False)  # a question needs no credit
        answer: Reply = reply
        return answer

    def await_reply(self, reply: Reply, timeout: float | None = None) -> Any:
        """The reply's value; raises its error, or TimeoutError."""
        if not reply.done and not self.transport.wait(reply, timeout):
            raise TimeoutError(f"no result within {timeout} s")
        try:
            return reply.result()
        except TensordError as error:
            if error.location is None:  # the request itself was at fault, not an earlier call
                error.location = describe(user_frame(2))
            raise

    def close(self) -> None:
        """End the session; everything afterwards raises ConnectionLost."""
        transport = self.transport
        with self.lock:
            self.transport = ClosedTransport(transport.devices)
            self.messages = Closed()
        transport.close()


class Closed(list[list[Any]]):
    """The messages of a closed session: it takes no more."""

    def append(self, _message: list[Any]) -> None:
        """Raise ConnectionLost at the user's line."""
        raise session_closed()


def ride(message: list[Any], dropped: set[int], scalars: Sequence[bool]) -> None:
    """Mark a call's operands whose handles were dropped; walking backwards, this is their last use."""
    inputs, outputs = message[2], message[3]
    for position, id_ in enumerate(inputs):
        if id_ in dropped and not scalars[position]:
            dropped.discard(id_)
            message[4] |= 1 << position
    for position, id_ in enumerate(outputs, len(inputs)):
        if id_ in dropped:
            dropped.discard(id_)
            message[4] |= 1 << position


def mentions(message: Message, id_: int) -> bool:
    """Does a message other than a call name that tensor?"""
    for field in ID_FIELDS.get(message[0], ()):
        ids = message[field]
        if ids == id_ if isinstance(ids, int) else id_ in ids:
            return True
    return False
