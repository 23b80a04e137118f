"""The socket front end: connections, what they send, what they are told. Used by the loop's thread alone.

A header is decoded and checked here; messages of a batch go to the peer's inbox as they are, and from there to
admission, which checks each (`forms`). What is wrong with a header ends the connection with REFUSED; what is wrong with
one message is refused there and ends nothing. What a peer sends beyond one large header waits as it came: decoded, a
header may be ninety times its size.

Fairness. Each peer has its inbox. Those that had nothing to do until now are fed before those that still have, one
quantum of time each; so a lone op overtakes a flood, and floods share. Source: the two lists of fq_codel (RFC 8290).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...interpreter.errors import ProtocolError, QuotaError, TensordError
from ...interpreter.wire.fields import is_natural
from ...interpreter.wire.frames import ACK, BATCH, BYE, CANCEL, PING, PONG, REFUSED, SEGMENT
from ..engine import Engine
from ..log import log
from ..model.session import ReplySink
from .inbound import decode_header, place_uploads, take_segment
from .listener import Door
from .outbound import acknowledge, encode, resend, send, send_answers, send_part, try_send
from .peer import Answer, Peer, State, fields, session_of
from .registry import LEAVES, Lobby

QUANTUM_NS = 100_000  # of one peer, before the socket and the others are looked at again
PATIENCE = 4  # windows that a peer may have unfinished before it is cut off
PACKED = 64  # largest headers that a peer may have waiting in frames, beside what is decoded
QUEUED = frozenset({BATCH, SEGMENT})  # kinds whose order matters
UNREAD = 64  # messages that wait for a peer's queue, from which its PINGs are not answered any more


class Front:
    """All connections of the daemon."""

    def __init__(self, engine: Engine, lobby: Lobby, end_connection: Callable[[Door, int], None]) -> None:
        self.engine = engine
        self.lobby = lobby
        self.limits = limits = lobby.limits
        self.end_connection = end_connection  # cut the connection with that fd, once what it was told has left
        self.fresh: deque[Peer] = deque()  # have something to do, and had nothing before
        self.busy: deque[Peer] = deque()  # still have
        self.dirty: dict[Peer, None] = {}  # are to be told something
        self.owing: dict[Peer, None] = {}  # have sent much since they were told how much of it was consumed
        self.stuck: dict[Peer, bool] = {}  # do not take what they are told; True: and were taken out of the ring for it
        self.freed: deque[tuple[weakref.ref[Any], int]] = deque()  # (peer, upload segment); appended by any thread
        self.step, self.step_bytes = max(limits.window // 8, 1), max(limits.window_bytes // 8, 1)
        self.handlers: dict[int, Callable[[Peer, Sequence[Any], Sequence[Any]], None]] = {
            BATCH: self.batch,
            CANCEL: self.cancel,
            PING: self.ping,
            ACK: self.acknowledge,
            BYE: self.bye,
            SEGMENT: self.segment,
        }
        self.heard: Callable[[int], None] = lambda _fd: None  # a connection has completed a message
        lobby.sink, lobby.tell, lobby.changed, lobby.forget = self.sink, self.tell, self.changed, self.forget

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive(self, door: Door, frames: Sequence[Any]) -> None:
        """A ZeroMQ message: routing id, header, payloads."""
        identity = bytes(frames[0].buffer)
        peer = self.lobby.peers.get((door, identity))
        try:
            if len(frames) < 2 or len(frames) > self.limits.frames + 2:
                raise_too_many(frames, self.limits.frames)
            if peer is not None:
                self.receive_from(peer, frames[1:])
            elif not self.lobby.has_left(door, identity, frames[1]):
                self.lobby.hello(door, identity, decode_header(frames[1], self.limits), frames[1])
        except TensordError as error:
            self.refuse(door, identity, frames, error)
        except Exception as error:
            self.refuse(door, identity, frames, unexpected(error))

    def receive_from(self, peer: Peer, frames: Sequence[Any]) -> None:
        """Header and payloads of somebody who has said HELLO."""
        header = decode_header(frames[0], self.limits)
        kind = header[0]
        handler = self.handlers.get(kind)
        if handler is None:
            raise ProtocolError(f"a connection that is {peer.state.value} cannot send a header of kind {kind}")
        self.heard(peer.credentials.fd)
        if kind in QUEUED and (peer.packed or peer.decoded > self.limits.header):
            self.keep_packed(peer, frames)
            return
        handler(peer, header, frames[1:])
        if kind == BATCH and peer.inbox:
            peer.decoded += len(frames[0])

    def keep_packed(self, peer: Peer, frames: Sequence[Any]) -> None:
        """Leave frames as they are for now: what is decoded is many times larger. QuotaError if these are too many."""
        peer.packed.append(frames)
        peer.packed_bytes += len(frames[0])
        peer.packed_payload += sum(map(len, frames[1:]))
        limits = self.limits
        if peer.packed_bytes > PACKED * limits.header or len(peer.packed) > PATIENCE * limits.window:
            raise QuotaError(f"{peer.packed_bytes} bytes of batches unfinished; wait for credit")
        if peer.packed_payload > PATIENCE * limits.window_bytes:
            raise QuotaError(f"{peer.packed_payload} bytes of payloads unfinished; wait for credit")

    def unpack(self, peer: Peer) -> None:
        """Everything that was decoded is admitted: take the next frames."""
        peer.decoded = 0
        while peer.packed and not peer.inbox:
            frames = peer.packed.popleft()
            peer.packed_bytes -= len(frames[0])
            peer.packed_payload -= sum(map(len, frames[1:]))
            try:
                header = decode_header(frames[0], self.limits)
                self.handlers[header[0]](peer, header, frames[1:])
                peer.decoded += len(frames[0])
            except TensordError as error:
                self.refuse(peer.door, peer.identity, frames, error)
            except Exception as error:
                self.refuse(peer.door, peer.identity, frames, unexpected(error))

    def refuse(self, door: Door, identity: bytes, frames: Sequence[Any], error: TensordError) -> None:
        """Tell why, and end the connection."""
        peer = self.lobby.peers.get((door, identity))
        log.warning("connection refused", error=str(error), peer=peer.name if peer else None)
        stranger = peer or Peer(door, identity, door.credentials(frames[-1]), self.limits, self.lobby.clock())
        try_send(stranger, [encode([REFUSED, type(error).__name__, error.message])])
        if peer is not None:
            self.lobby.end(peer, error.message)
        self.lobby.left(door, identity)
        self.end_connection(door, stranger.credentials.fd)

    def batch(self, peer: Peer, header: Sequence[Any], payloads: Sequence[Any]) -> None:
        """BATCH: messages for the inbox. One that was resent and had arrived before is dropped."""
        _, number, messages, uploads = fields(header, 4)
        if not is_natural(number) or type(messages) is not tuple or type(uploads) is not tuple:
            raise ProtocolError("a BATCH is [1, number, messages, uploads]")
        if number <= peer.batch and peer.resumable:
            return
        if number != peer.batch + 1:
            raise ProtocolError(f"batch {number} after batch {peer.batch}")
        if len(messages) > self.limits.batch:
            raise ProtocolError(f"a batch of {len(messages)} messages; {self.limits.batch} are allowed")
        peer.batch = number
        if self.lobby.closing:
            return  # what was admitted is finished; the goodbye tells of the rest
        found: Sequence[Any] = messages
        before = peer.uploaded
        if uploads:
            found = place_uploads(peer, messages, uploads, payloads, self.freed)
        if not peer.inbox:
            (self.busy if peer.packed else self.fresh).append(peer)
        peer.inbox.extend(found)
        peer.taken += len(found)
        if peer.taken - peer.told >= self.step or peer.uploaded - peer.told_bytes >= self.step_bytes:
            self.owing[peer] = None
            self.check_patience(peer, before)

    def check_patience(self, peer: Peer, before: int) -> None:
        """Credit is the client's to keep; one that ignores it is cut off before it costs memory."""
        unfinished = peer.taken - peer.consumed()
        if unfinished > PATIENCE * self.limits.window:
            raise QuotaError(f"{unfinished} messages unfinished; wait for credit beyond {self.limits.window}")
        unread = before - peer.consumed_bytes()  # without the newest batch: one array may be larger than every window
        if unread > PATIENCE * self.limits.window_bytes:
            raise QuotaError(f"{unread} bytes of uploads unconsumed; wait for credit beyond {self.limits.window_bytes}")

    def cancel(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """CANCEL overtakes what is in the inbox. A RESTART that was sent before it has an older generation."""
        _, generation = fields(header, 2)
        if not is_natural(generation):
            raise ProtocolError("a CANCEL is [2, generation]")
        session = session_of(peer)
        if generation > session.generation:  # else it was sent again after a reconnect
            self.engine.cancel(session)
            session.generation = generation

    def ping(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """PING: here we are."""
        _, number = fields(header, 2)
        if not is_natural(number):
            raise ProtocolError("a PING is [3, number]")
        if len(peer.unsent) >= UNREAD:
            raise QuotaError(f"PING although {len(peer.unsent)} messages to you wait to be read")
        self.tell(peer, [PONG, number])

    def acknowledge(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """ACK: these replies need not be kept."""
        _, number = fields(header, 2)
        if not is_natural(number):
            raise ProtocolError("an ACK is [4, number]")
        acknowledge(peer, number)

    def bye(self, peer: Peer, _header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """BYE: the client closes its session. The connection is good for nothing any more."""
        self.lobby.end(peer, LEAVES)
        self.end_connection(peer.door, peer.credentials.fd)

    def segment(self, peer: Peer, header: Sequence[Any], _payloads: Sequence[Any]) -> None:
        """SEGMENT: an upload segment, or the end of one."""
        take_segment(peer, fields(header, 4))

    def tell(self, peer: Peer, header: list[Any]) -> None:
        """Send a header of its own."""
        if not send(peer, [encode(header)]):
            self.stuck.setdefault(peer, False)

    # -- admission -------------------------------------------------------------------------------------------------

    def feed(self, now_ns: Callable[[], int]) -> bool:
        """Admit a quantum of one peer's messages; False if nobody has any that may be admitted."""
        while self.fresh or self.busy:
            peer = (self.fresh or self.busy).popleft()
            if not peer.inbox:
                continue
            if not peer.may_go_on():
                self.stuck[peer] = True  # comes back into the ring once it takes its answers
                continue
            self.admit(peer, now_ns)
            if peer.inbox:
                self.busy.append(peer)
            else:
                self.unpack(peer)
            return True
        return False

    def admit(self, peer: Peer, now_ns: Callable[[], int]) -> None:
        """Admit what is in the inbox until the quantum is over."""
        inbox, handle, session = peer.inbox, self.engine.handle, session_of(peer)
        most = self.limits.window_bytes
        started = now_ns()
        self.engine.scheduler.stamp(started)
        until = started + QUANTUM_NS
        while inbox:
            handle(session, inbox.popleft())
            if now_ns() > until or session.answering > most:
                return

    # -- telling ---------------------------------------------------------------------------------------------------

    def sink(self, peer: Peer) -> ReplySink:
        """Where the answers to a session's requests go."""

        def reply(request: int, value: Any, error: TensordError | None) -> None:
            if not request or peer.state is State.CLOSED:
                return
            if error is None and hasattr(value, "__next__"):
                peer.parts.append((request, value))
            else:
                peer.answers.append(Answer(request, value, error))
            self.dirty[peer] = None

        return reply

    def changed(self, peer: Peer) -> None:
        """It is to be told something."""
        self.dirty[peer] = None

    def forget(self, peer: Peer) -> None:
        """Drop what is kept for a connection that has ended."""
        self.dirty.pop(peer, None)
        self.stuck.pop(peer, None)
        self.owing.pop(peer, None)
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
            if peer is not None and peer.state is not State.CLOSED:
                free.setdefault(peer, []).append(number)
                self.dirty[peer] = None
        if self.dirty:
            dirty, self.dirty = self.dirty, {}
            for peer in dirty:
                self.flush_peer(peer, free.get(peer, ()))

    def flush_peer(self, peer: Peer, free: Sequence[int]) -> None:
        """Tell one peer what there is, and a slice of its long answer."""
        if peer.state is State.CLOSED:
            return
        if peer.answers or free or not peer.parts:
            send_answers(peer, free)
        if peer.unsent or (peer.parts and not peer.may_go_on()):
            self.stuck.setdefault(peer, False)
        elif peer.parts:
            self.send_slice(peer)
            self.dirty[peer] = None

    def send_slice(self, peer: Peer) -> None:
        """Send the next slice of a long answer, or its end. It is made now, from what may have changed since."""
        request, parts = peer.parts[0]
        try:
            part = next(parts, None)
        except Exception as error:
            peer.parts.popleft()
            failure = error if isinstance(error, TensordError) else unexpected(error)
            peer.answers.append(Answer(request, None, failure))
            return
        if part is None:
            peer.parts.popleft()
            peer.answers.append(Answer(request, None, None))
        else:
            send_part(peer, request, part)

    def grant(self) -> None:
        """Tell those whose credit has grown by a lot since they were told last."""
        for peer in list(self.owing):
            if peer.consumed() - peer.told >= self.step or peer.consumed_bytes() - peer.told_bytes >= self.step_bytes:
                self.dirty[peer] = None
            elif peer.taken - peer.told < self.step and peer.uploaded - peer.told_bytes < self.step_bytes:
                del self.owing[peer]

    def unstick(self) -> None:
        """Try again to send to those that did not take what they were told, and feed them again once they do."""
        for peer in list(self.stuck):
            resend(peer)
            if peer.may_go_on() or peer.state is State.CLOSED:
                if self.stuck.pop(peer) and peer.inbox:
                    self.busy.append(peer)
                if peer.parts:
                    self.dirty[peer] = None


def raise_too_many(frames: Sequence[Any], allowed: int) -> NoReturn:
    """A message has a header, and not too many payloads."""
    raise ProtocolError(f"a message of {len(frames) - 1} frames; {allowed + 1} are allowed")


def unexpected(error: Exception) -> ProtocolError:
    """What nobody thought of is our fault and stops nobody: it is logged, and ends the connection that led to it."""
    log.exception("a fault of the daemon", error=repr(error))
    return ProtocolError(f"the daemon did not expect this: {type(error).__name__}")
