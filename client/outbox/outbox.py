"""The outbox: what a session has issued and not yet sent.

A batch leaves when it is full, before every wait, when a second heavy op joins it, or when it has lain idle for some
milliseconds. To another process batches clock themselves: what is issued into silence leaves at once, and the more
follows it without a pause, the more of it travels together (1, 8, 64, 256 messages). Who asks for an answer right after
that, again and again, would pay for two messages where one does: his first few small ops travel with the question
(docs/decisions/0012). Handles that were dropped by then ride along: as a bit on the last call that uses them, else as a
message behind whatever else does. A group (`atomic`) leaves as one message when its block ends.

Threads. `lock` guards the messages and the session's tables; it is re-entrant, since a signal handler may issue ops on
the very thread that holds it. (It may not send or wait while its thread drives the machine: that is a ProtocolError,
and the messages stay here. Nor may it raise there, but for Ctrl-C, which is kept back.) It is never held while waiting.
An atomic block holds it from its first line to its last: what other threads issue meanwhile comes after the group.
`Tensor.__del__` runs anywhere, also inside the lock, so all it does is put the id on a `queue.SimpleQueue`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from time import monotonic
from typing import Any

from ...interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ...interpreter.wire.limits import Limits
from ...interpreter.wire.messages import (
    ATOMIC,
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
from ..forks import FORKS
from ..locations import Locations, describe, user_frame
from ..transport.interface import CLOSED, FORKED, ClosedTransport, Reply, session_closed

BATCH = 256
GROWTH = 8
PROMPT = 0.0005  # seconds after which a question is no longer asked right after what was issued
RELEASED = 4096  # ids in one message
RIDERS = 64  # operands that a call has bits for: the integers of the wire
GROUP = Limits().batch  # messages in an atomic group
LONGEST = Limits().text  # characters of a location
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
        "__weakref__",
        "_depth",
        "_expects",
        "_first",
        "_flushes",
        "_left",
        "_riding",
        "_seen_flushes",
        "drop",
        "dropped",
        "heavy",
        "ids",
        "limit",
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
        transport.let_go_with(self.drop)
        self._first = 1 if transport.eager else BATCH
        self.limit = self._first  # messages that the next batch waits for
        self._expects = False  # a question, before anything leaves
        self._left = 0.0  # when something last left because it was issued
        self._flushes = 0
        self._seen_flushes = -1
        FORKS.outboxes.add(self)
        self._depth = 0  # of atomic blocks, one inside the other
        self._riding = True  # may releases be marked on the calls of this batch?
        if transport.eager:  # nothing is unsent, but handles will be dropped
            transport.rouse(self.idle_flush)

    def new_id(self) -> int:
        """The next id; the caller holds the lock."""
        self.ids += 1
        return self.ids

    def appended(self) -> None:
        """Something was added: send a full batch, have a lone message looked after."""
        size = len(self.messages)
        if self._depth:
            return
        if size >= self.limit and not (self._expects and size < GROWTH and not self.heavy):
            self.limit = min(self.limit * GROWTH, BATCH)
            self.flush()
            self._left = monotonic()
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
        """Hand over what is unsent, and say whether there was anything; the caller holds the lock. Not half of a group.

        Under the transport's shield: Ctrl-C between taking the batch and handing it over would lose it.
        """
        if self._depth:
            return False
        with self.transport.shield:
            batch, self.messages = self.messages, Closed(self.messages.why) if type(self.messages) is Closed else []
            self.heavy = self._expects = False
            self._flushes += 1
            if not self.dropped.empty():
                self._release_dropped(batch)
            if self.locations.unsent:
                sites, self.locations.unsent = self.locations.unsent, []
                batch[:0] = [[LOCATION, number, text[-LONGEST:]] for number, text in sites]
            if batch:
                try:
                    self.transport.send(batch)
                except ProtocolError:  # the machine is busy with us further up this stack: nothing is lost
                    self.messages[:0] = batch
                    raise
        return bool(batch)

    def renumber(self) -> None:
        """A signature's number is to mean another one; the unsent calls still mean the old one. Holding the lock."""
        self._riding = not self._depth  # in a group nobody could tell any more which of their operands are scalars
        self.send()

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """What is issued inside leaves as one message at the end, also if the block raises."""
        with self.lock:
            if not self._depth:
                self.send()
                self.messages = self.messages if type(self.messages) is Closed else Group()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                whole = not self._depth and type(self.messages) is Group  # else the session was closed inside
                if whole:
                    self._send_group()
        if whole:
            self.transport.await_credit()

    def _send_group(self) -> None:
        group = self.messages
        if not self.dropped.empty():
            self._release_dropped(group)
        releases = [message for message in group if message[0] == RELEASE]
        inside = [message for message in group if message[0] != RELEASE]
        self._riding = True
        self.messages = [[ATOMIC, inside], *releases] if inside else releases
        self.send()

    def _release_dropped(self, batch: list[list[Any]]) -> None:
        take = self.dropped.get_nowait
        dropped = {take() for _ in range(self.dropped.qsize())}
        if not self._riding:
            for message in releases(dropped):
                list.append(batch, message)
            return
        for position in range(len(batch) - 1, -1, -1):
            message = batch[position]
            if message[0] == CALL:
                if not (dropped.isdisjoint(message[2]) and dropped.isdisjoint(message[3])):
                    behind = ride(message, dropped, self.scalars[message[1]])
                    batch[position + 1 : position + 1] = releases(behind)
                    if not dropped:
                        return
            elif message[0] != SIGNATURE:
                used = {id_ for id_ in dropped if mentions(message, id_)}
                if used:
                    batch[position + 1 : position + 1] = releases(used)
                    dropped -= used
        if dropped:  # nothing here uses them: their memory serves the first message already
            batch[:0] = releases(dropped)

    def idle_flush(self) -> bool:
        """Called now and then by the transport: send what nobody has sent since the last time."""
        if not self.messages and self.dropped.empty():
            self.limit = self._first
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

    def tell(self, build: Callable[[int], list[Any]]) -> Reply | None:
        """Like `ask`, without location; but inside an atomic block nobody is to answer, and there is no reply."""
        with self.lock:
            if self._depth:
                self.messages.append(build(0))
                return None
            return self.ask(lambda request, _: build(request), located=False)

    def ask(self, build: Callable[[int, int], list[Any]], *, located: bool = True) -> Reply:
        """Send a message that asks for a reply, behind everything unsent. `build` gets request and location, if any."""
        return self.ask_all([build], located=located)[0]

    def ask_all(self, builds: Sequence[Callable[[int, int], list[Any]]], *, located: bool = True) -> list[Reply]:
        """`ask` several things at once."""
        replies: list[Reply] = []
        expects = self._expects or monotonic() - self._left < PROMPT
        with self.lock:
            self.refuse_inside()
            location = self.locations.number(user_frame(3)) if located else 0
            for build in builds:
                number, reply = self.transport.request()
                self.messages.append(build(number, location))
                replies.append(reply)
        self.flush(patient=False)  # a question needs no credit
        self.limit = self._first
        self._expects = expects
        return replies

    def answers(self) -> bool:
        """Can something be asked now? Not inside an atomic block, and not once the session has ended."""
        return not (self._depth or self.transport.lost)

    def refuse_inside(self) -> None:
        """ProtocolError at the user's line inside an atomic block; holding the lock."""
        if self._depth:
            where = describe(user_frame(2))
            raise ProtocolError(
                "inside atomic() nothing has been sent yet, so nothing can be asked or waited for: "
                "do that behind the block",
                location=where,
            )

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

    def orphan(self) -> None:
        """In a forked child: whoever held the lock is not here to give it back, and the session is the parent's."""
        self.lock = self.locations.lock = threading.RLock()
        self.transport = ClosedTransport(self.transport.devices, FORKED)
        self.messages = Closed(FORKED)


def releases(ids: set[int]) -> list[list[Any]]:
    """RELEASE messages for these ids, none of them so long that it could not be sent."""
    ordered = sorted(ids)
    return [[RELEASE, tuple(ordered[n : n + RELEASED])] for n in range(0, len(ordered), RELEASED)]


class Closed(list[list[Any]]):
    """The messages of a closed session: it takes no more."""

    def __init__(self, why: str = CLOSED) -> None:
        super().__init__()
        self.why = why

    def append(self, _message: list[Any]) -> None:
        """Raise ConnectionLost at the user's line."""
        raise session_closed(self.why)


class Group(list[list[Any]]):
    """The messages of an atomic block: they leave together, so they must not be too many."""

    def append(self, message: list[Any]) -> None:
        """Raise ProtocolError at the user's line for one too many; it is not in the group then."""
        if len(self) >= GROUP:
            where = describe(user_frame(2))
            raise ProtocolError(f"an atomic block holds at most {GROUP} messages; make several of it", location=where)
        super().append(message)


def ride(message: list[Any], dropped: set[int], scalars: Sequence[bool]) -> set[int]:
    """Mark a call's operands whose handles were dropped; walking backwards, this is their last use.

    Returns those of them that it has no bit for: they are to be released behind it.
    """
    inputs, outputs = message[2], message[3]
    behind = set()
    for position, id_ in enumerate((*inputs, *outputs)):
        if id_ in dropped and not (position < len(inputs) and scalars[position]):
            dropped.discard(id_)
            if position < RIDERS:
                message[4] |= 1 << position
            else:
                behind.add(id_)
    return behind


def mentions(message: Message, id_: int) -> bool:
    """Does a message other than a call name that tensor? A group that could not be sent yet: may it?"""
    if message[0] == ATOMIC:
        return any(
            id_ in inner[2] or id_ in inner[3] if inner[0] == CALL else mentions(inner, id_) for inner in message[1]
        )
    for field in ID_FIELDS.get(message[0], ()):
        ids = message[field]
        if ids == id_ if isinstance(ids, int) else id_ in ids:
            return True
    return False
