"""The socket front end: receives from connections and sends to them. Used by the loop's thread alone.

A header is decoded and checked here. The messages of a batch go unchecked to the peer's inbox, and from there to
admission, which checks each (`forms`). A malformed header ends the connection with REFUSED; a malformed message is
refused by admission and does not end the connection. While a batch is being admitted, later batches wait undecoded: a
decoded batch may take ninety times its bytes, and a batch decoded just before its admission is still in the processor's
caches.

Fairness. Each peer has an inbox. A peer whose inbox was empty is served before busy peers, for one quantum of time; so
a single op overtakes a flood, and floods take turns, of several quanta if no other peer has sent anything in the
meantime. Source: the two lists of fq_codel (RFC 8290).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ....interpreter.errors import ProtocolError, QuotaError, TensordError
from ....interpreter.types.sizes import exact_size
from ....interpreter.wire.fields import is_natural
from ....interpreter.wire.frames import ACK, BATCH, BYE, CANCEL, PING, PONG, REFUSED, RETURN, SEGMENT
from ...admission.turns import turn_of
from ...engine import Engine
from ...log import log
from ...model.session import ReplySink
from ..access.refusals import RefusalLog
from .inbound import decode_header, fill_uploads, kind_of, returned_array, returned_error, take_segment
from .listener import Listener, PeerCredentials
from .outbound import acknowledge, encode, resend, send, send_answers, send_part, try_send
from .peer import ConnectionState, Peer, PendingAnswer, fields, session_of
from .registry import CLOSED_BY_CLIENT, ConnectionRegistry

QUANTUM_NS = 100_000  # of one peer, before peers that have just sent something
QUANTA_PER_PEER = 4  # of one peer, before the other busy peers
MAX_WINDOWS = 4  # windows that a peer may have unfinished before its connection is cut
MAX_PACKED_HEADERS = 64  # headers of the largest size that a peer may have waiting undecoded
ORDERED_KINDS = frozenset({BATCH, SEGMENT})  # kinds whose order matters
MAX_UNSENT = 64  # messages waiting for room in a peer's queue; from that many on its PING is refused


class Front:
    """All connections of the daemon."""

    def __init__(
        self, engine: Engine, registry: ConnectionRegistry, end_connection: Callable[[Listener, PeerCredentials], None]
    ) -> None:
        self.engine = engine
        self.registry = registry
        self.limits = limits = registry.limits
        self.end_connection = end_connection  # cuts the connection once its last messages have left
        self.fresh: deque[Peer] = deque()  # peers whose inbox was empty until now
        self.busy: deque[Peer] = deque()  # peers with messages left after their quantum
        self.dirty: dict[Peer, None] = {}  # peers to which something must be sent
        self.credit_due: deque[Peer] = deque()  # peers that have sent much since their credit was last reported
        self.not_reading: dict[Peer, bool] = {}  # by peer: whether it was removed from `fresh` and `busy`
        self.waiting: dict[Peer, None] = {}  # peers whose messages must wait, removed from `fresh` and `busy`
        self.freed: deque[tuple[weakref.ref[Any], int]] = deque()  # (peer, upload segment); appended by any thread
        # The least credit that a peer is told of at once, since each time wakes a waiting client.
        self.step, self.step_bytes = max(limits.window // 2, 1), max(limits.window_bytes // 8, 1)
        self.handlers: dict[int, Callable[[Peer, Sequence[Any], Sequence[Any]], None]] = {
            BATCH: self.batch,
            CANCEL: self.cancel,
            PING: self.ping,
            ACK: self.acknowledge,
            BYE: self.bye,
            SEGMENT: self.segment,
            RETURN: self.returned,
        }
        self.refusals = RefusalLog()
        self.message_completed: Callable[[int], None] = lambda _fd: None  # a connection has completed a message
        self.has_news: Callable[[], bool] = lambda: True  # whether the loop has other work
        registry.sink, registry.tell = self.sink, self.tell
        registry.changed, registry.forget = self.changed, self.forget

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive(self, listener: Listener, identity: bytes, frames: Sequence[Any]) -> None:
        """Handle a ZeroMQ message, which is a header and payloads, from the sender with this routing id."""
        peer = self.registry.peers.get((listener, identity))
        try:
            self.check_frames(frames)
            if peer is not None:
                self.receive_from(peer, frames)
            elif not self.registry.has_left(listener, identity, frames[0]):
                self.registry.hello(listener, identity, decode_header(frames[0], self.limits), frames[0])
        except Exception as error:
            self.refuse(listener, identity, frames, error)

    def check_frames(self, frames: Sequence[Any]) -> None:
        """ProtocolError for a message with too many payloads."""
        if len(frames) > self.limits.frames + 1:
            raise ProtocolError(f"a message of {len(frames)} frames; {self.limits.frames + 1} are allowed")

    def receive_from(self, peer: Peer, frames: Sequence[Any]) -> None:
        """Handle header and payloads of a peer that has sent HELLO."""
        self.message_completed(peer.credentials.fd)
        if self.registry.closing and kind_of(frames[0], self.limits) in ORDERED_KINDS:
            return  # earlier messages still finish; GOODBYE ends the rest
        if not peer.has_more:
            self.handle(peer, frames)
            if peer.inbox:
                self.fresh.append(peer)
        elif kind_of(frames[0], self.limits) in ORDERED_KINDS:
            self.keep_packed(peer, frames)
        else:
            self.handle(peer, frames)

    def handle(self, peer: Peer, frames: Sequence[Any]) -> None:
        """Decode a header, and call the handler of its kind."""
        header = decode_header(frames[0], self.limits)
        handler = self.handlers.get(header[0])
        if handler is None:
            raise ProtocolError(f"a connection that is {peer.state.value} cannot send a header of kind {header[0]}")
        handler(peer, header, frames[1:])

    def keep_packed(self, peer: Peer, frames: Sequence[Any]) -> None:
        """Keep frames undecoded for now; QuotaError if there are too many."""
        before = peer.packed_payload  # without the newest batch, since a single array may exceed the window
        peer.packed.append(frames)
        peer.packed_bytes += len(frames[0])
        peer.packed_payload += sum(map(len, frames[1:]))
        limits = self.limits
        if peer.packed_bytes > MAX_PACKED_HEADERS * limits.header or len(peer.packed) > MAX_WINDOWS * limits.window:
            raise QuotaError(f"{exact_size(peer.packed_bytes)} of batches unfinished; wait for credit")
        if peer.packed_payload > before > MAX_WINDOWS * limits.window_bytes:
            raise QuotaError(f"{exact_size(before)} of payloads unfinished; wait for credit")

    def unpack(self, peer: Peer) -> None:
        """Decode the next frames, once every decoded message is admitted. A resent batch may add no messages."""
        frames = peer.packed.popleft()
        peer.packed_bytes -= len(frames[0])
        peer.packed_payload -= sum(map(len, frames[1:]))
        try:
            self.handle(peer, frames)
        except Exception as error:
            self.refuse(peer.listener, peer.identity, frames, error)

    def refuse(self, listener: Listener, identity: bytes, frames: Sequence[Any], failure: Exception) -> None:
        """Report the error to the peer, and end the connection."""
        error = failure if isinstance(failure, TensordError) else self.unexpected(failure)
        peer = self.registry.peers.get((listener, identity))
        addressee = peer or Peer(
            listener, identity, listener.credentials(frames[-1]), self.limits, self.registry.clock()
        )
        fd = addressee.credentials.fd
        self.refusals.tell(
            "a connection was refused", error=str(error), peer=listener.origins.get(fd, ""), **named(peer)
        )
        try_send(addressee, [encode([REFUSED, type(error).__name__, error.message])])
        if peer is not None:
            self.registry.end(peer, error.message)
        self.registry.left(listener, identity)
        self.end_connection(listener, addressee.credentials)

    def unexpected(self, error: Exception) -> ProtocolError:
        """Log an unexpected exception, which is a bug of the daemon; return the error that ends its connection.

        A fault of the engine is raised again, since ending a connection needs the engine.
        """
        if self.engine.fault is not None:
            raise error
        log.exception("a fault of the daemon", error=repr(error))
        return ProtocolError(f"the daemon did not expect this: {type(error).__name__}")

    def batch(self, peer: Peer, header: Sequence[Any], payloads: Sequence[Any]) -> None:
        """BATCH: messages for the inbox. A resent batch that had arrived before is dropped."""
        _, number, messages, uploads = fields(header, 4)
        if type(number) is not int or type(messages) is not tuple or type(uploads) is not tuple:
            raise ProtocolError("a BATCH is [1, number, messages, uploads]")
        if number != peer.batch + 1:
            if peer.resumable and 0 <= number <= peer.batch:
                return
            raise ProtocolError(f"batch {number} after batch {peer.batch}")
        if len(messages) > self.limits.batch:
            raise ProtocolError(f"a batch of {len(messages)} messages; {self.limits.batch} are allowed")
        peer.batch = number
        filled: Sequence[Any] = messages
        before = peer.uploaded
        if uploads:
            filled = fill_uploads(peer, messages, uploads, payloads, self.freed)
        peer.inbox.extend(filled)
        peer.taken += len(filled)
        if peer.taken - peer.reported >= self.step or peer.uploaded - peer.reported_bytes >= self.step_bytes:
            if peer not in self.credit_due:
                self.credit_due.append(peer)
            self.check_credit(peer, before)

    def check_credit(self, peer: Peer, before: int) -> None:
        """QuotaError, which ends the connection before it costs memory, for a client that exceeds its credit by far."""
        unfinished = peer.taken - peer.consumed()
        if unfinished > MAX_WINDOWS * self.limits.window:
            raise QuotaError(f"{unfinished} messages unfinished; wait for credit beyond {self.limits.window}")
        unread = before - peer.consumed_bytes()  # without the newest batch, as in `keep_packed`
        if peer.uploaded > before and unread > MAX_WINDOWS * self.limits.window_bytes:
            allowed = exact_size(self.limits.window_bytes)
            raise QuotaError(f"{exact_size(unread)} of uploads unconsumed; wait for credit beyond {allowed}")

    def cancel(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """CANCEL: cancel the session, ahead of its inbox. A RESTART sent before the CANCEL has an older generation."""
        _, generation = fields(header, 2)
        if not is_natural(generation):
            raise ProtocolError("a CANCEL is [2, generation]")
        session = session_of(peer)
        if generation > session.generation:  # else the CANCEL was resent after a reconnect
            self.engine.cancel(session)
            session.generation = generation

    def returned(self, peer: Peer, header: Sequence[Any], payloads: Sequence[Any]) -> None:
        """RETURN: accept the results of a host call, ahead of the inbox, whose messages may wait for them.

        Results of a call that has ended are dropped, since its client may not know of the end yet.
        """
        _, number, error, results = fields(header, 4)
        if not is_natural(number) or type(results) is not tuple:
            raise ProtocolError("a RETURN is [7, number, error, results]")
        session = session_of(peer)
        failure = returned_error(error)
        if number in session.calls:
            arrays = [] if failure is not None else [returned_array(peer, one, payloads) for one in results]
            self.engine.returned(session, number, failure, arrays)

    def ping(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """PING: answered with PONG."""
        _, number = fields(header, 2)
        if not is_natural(number):
            raise ProtocolError("a PING is [3, number]")
        if len(peer.unsent) >= MAX_UNSENT:
            raise QuotaError(f"PING although {len(peer.unsent)} messages to you wait to be read")
        self.tell(peer, [PONG, number])

    def acknowledge(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """ACK: drop the unacknowledged replies up to a number."""
        _, number = fields(header, 2)
        if not is_natural(number):
            raise ProtocolError("an ACK is [4, number]")
        acknowledge(peer, number)

    def bye(self, peer: Peer, _header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """BYE: close the session and its connection.

        Earlier messages are admitted first, since others may hold the tensors that they write; but not messages behind
        a run, which may be an endless loop, and not if the peer does not read its answers.
        """
        if peer.has_more and not peer.unfolding and peer not in self.not_reading:
            peer.leaving = True
        else:
            self.disconnect(peer)

    def disconnect(self, peer: Peer) -> None:
        """End the session and the connection of a peer that has sent BYE."""
        self.registry.end(peer, CLOSED_BY_CLIENT)
        self.end_connection(peer.listener, peer.credentials)

    def segment(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """SEGMENT: the client opens or closes an upload segment."""
        take_segment(peer, fields(header, 4))

    def tell(self, peer: Peer, header: list[Any]) -> None:
        """Send a message that consists of one header."""
        if not send(peer, [encode(header)]):
            self.not_reading.setdefault(peer, False)

    # -- admission -------------------------------------------------------------------------------------------------

    def admit_next(self) -> bool:
        """Admit a quantum of one peer's messages; False if no peer has messages that may be admitted."""
        while self.fresh or self.busy:
            peer = (self.fresh or self.busy).popleft()
            if not peer.has_more:
                continue
            if peer.leaving and (peer.unfolding or not peer.may_be_served()):
                self.disconnect(peer)
                continue
            if not peer.may_be_served():
                self.not_reading[peer] = True  # `retry_sending` puts the peer back once it reads its answers
                continue
            if peer.waits:
                self.waiting[peer] = None  # `resume_waiting` puts the peer back
                continue
            if not (peer.inbox or peer.unfolding):
                self.unpack(peer)
            if peer.inbox or peer.unfolding:
                self.admit(peer)
            if peer.has_more:
                self.busy.append(peer)
            elif peer.leaving:
                self.disconnect(peer)
            return True
        return False

    def resume_waiting(self) -> None:
        """Serve peers again whose runs have got their values, or whose devices have caught up."""
        for peer in [peer for peer in self.waiting if not peer.waits]:
            del self.waiting[peer]
            if peer.has_more:
                self.busy.append(peer)

    def admit(self, peer: Peer) -> None:
        """Admit messages from the inbox until the quantum is over.

        If nothing else has happened, the peer gets some more quanta, since checking costs less than another turn.
        """
        session, scheduler, most = session_of(peer), self.engine.scheduler, self.limits.window_bytes
        started = scheduler.clock()
        scheduler.stamp(started)
        until, last = started + QUANTUM_NS, started + QUANTA_PER_PEER * QUANTUM_NS
        while peer.inbox or peer.unfolding:
            self.engine.take(session, turn_of(session, peer.inbox, scheduler, until, most))
            if peer.waits or session.answering > most:
                return
            if scheduler.latest > until:
                if self.fresh or scheduler.latest > last or self.has_news():
                    return
                until = scheduler.latest + QUANTUM_NS

    # -- sending ---------------------------------------------------------------------------------------------------

    def sink(self, peer: Peer) -> ReplySink:
        """The reply function of a peer's session."""

        def reply(request: int, value: Any, error: TensordError | None) -> None:
            if not request or peer.state is ConnectionState.CLOSED:
                return
            if error is not None:
                error.is_reported = True
                peer.answers.append(PendingAnswer(request, None, error))
            elif hasattr(value, "__next__"):
                peer.parts.append((request, value))
            else:
                peer.answers.append(PendingAnswer(request, value, None))
            self.dirty[peer] = None

        return reply

    def changed(self, peer: Peer) -> None:
        """Note that something must be sent to the peer."""
        self.dirty[peer] = None

    def forget(self, peer: Peer) -> None:
        """Drop the front's state of an ended connection."""
        self.dirty.pop(peer, None)
        self.not_reading.pop(peer, None)
        self.waiting.pop(peer, None)
        with suppress(ValueError):
            self.credit_due.remove(peer)
        peer.inbox.clear()
        peer.drop_packed()
        peer.answers.clear()
        peer.parts.clear()
        peer.unsent.clear()
        peer.unacknowledged.clear()
        peer.segments.clear()

    def flush(self) -> None:
        """Send answers, credit and freed segments."""
        free: dict[Peer, list[int]] = {}
        while self.freed:
            reference, number = self.freed.popleft()
            peer = reference()
            if peer is not None and peer.state is not ConnectionState.CLOSED:
                free.setdefault(peer, []).append(number)
                self.dirty[peer] = None
        if self.dirty:
            dirty, self.dirty = self.dirty, {}
            for peer in dirty:
                try:
                    self.flush_peer(peer, free.get(peer, ()))
                except Exception as fault:  # the client must not wait for its lost answers
                    error = self.unexpected(fault)
                    if peer.state is ConnectionState.OPEN:
                        self.refuse(peer.listener, peer.identity, (), error)
                    else:
                        self.registry.end(peer, error.message)

    def flush_peer(self, peer: Peer, free: Sequence[int]) -> None:
        """Send a peer its answers, and a slice of its long answer."""
        if peer.state is ConnectionState.CLOSED:
            return
        if peer.answers or free or not peer.parts:
            send_answers(peer, free)
        if peer.unsent or (peer.parts and not peer.may_be_served()):
            self.not_reading.setdefault(peer, False)
        elif peer.parts:
            self.send_slice(peer)
            self.dirty[peer] = None

    def send_slice(self, peer: Peer) -> None:
        """Send the next slice of a long answer, computed from the present state, or the answer's end."""
        request, parts = peer.parts[0]
        try:
            part = next(parts, None)
        except Exception as error:
            peer.parts.popleft()
            failure = error if isinstance(error, TensordError) else self.unexpected(error)
            peer.answers.append(PendingAnswer(request, None, failure))
            return
        if part is None:
            peer.parts.popleft()
            peer.answers.append(PendingAnswer(request, None, None))
        else:
            send_part(peer, request, part)

    def report_credit(self, *, everybody: bool) -> None:
        """Mark peers whose credit has grown by a `step`, so that they are told: all of them, or the next in turn."""
        due = self.credit_due
        for _ in range(len(due) if everybody else 1):
            peer = due.popleft()
            if (
                peer.consumed() - peer.reported >= self.step
                or peer.consumed_bytes() - peer.reported_bytes >= self.step_bytes
            ):
                self.dirty[peer] = None
            if peer.taken - peer.reported >= self.step or peer.uploaded - peer.reported_bytes >= self.step_bytes:
                due.append(peer)

    def retry_sending(self) -> None:
        """Retry sending to peers that did not read, and serve those again that do."""
        for peer in list(self.not_reading):
            resend(peer)
            if peer.may_be_served() or peer.state is ConnectionState.CLOSED:
                if self.not_reading.pop(peer) and peer.has_more:
                    self.busy.append(peer)
                if peer.parts:
                    self.dirty[peer] = None


def named(peer: Peer | None) -> dict[str, Any]:
    """The log fields of a peer with a session."""
    return {} if peer is None else {"name": peer.name, "session": session_of(peer).id}
