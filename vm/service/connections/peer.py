"""A connection to the daemon: its state, its unprocessed messages, its unsent answers.

    HANDSHAKE  --greeted-->  OPEN  --lost, resumable-->  AWAY  --resumed-->  OPEN
       any state  --ended-->  CLOSED

A peer in HANDSHAKE may only send HELLO. OPEN: the peer has a session. AWAY: the connection broke, and the client may
resume the session with its token until the lease is over. Only tcp connections can be AWAY, since a disconnect on ipc
ends the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from ....interpreter.errors import ProtocolError, TensordError
from ....interpreter.wire.limits import Limits
from ....interpreter.wire.segments import MemorySegment
from .listener import Listener, PeerCredentials

if TYPE_CHECKING:
    from ...model.session import VmSession


class ConnectionState(Enum):
    """The state of a connection."""

    HANDSHAKE = "unauthenticated"
    OPEN = "open"
    AWAY = "away"
    CLOSED = "closed"


class ConnectionEvent(Enum):
    """An event in the life of a connection."""

    GREETED = "greeted"
    LOST = "lost"
    RESUMED = "resumed"
    ENDED = "ended"


TRANSITIONS: dict[ConnectionState, dict[ConnectionEvent, ConnectionState]] = {
    ConnectionState.HANDSHAKE: {
        ConnectionEvent.GREETED: ConnectionState.OPEN,
        ConnectionEvent.ENDED: ConnectionState.CLOSED,
    },
    ConnectionState.OPEN: {ConnectionEvent.LOST: ConnectionState.AWAY, ConnectionEvent.ENDED: ConnectionState.CLOSED},
    ConnectionState.AWAY: {
        ConnectionEvent.RESUMED: ConnectionState.OPEN,
        ConnectionEvent.ENDED: ConnectionState.CLOSED,
    },
    ConnectionState.CLOSED: {},
}


class PendingAnswer(NamedTuple):
    """An answer to a request, not yet encoded."""

    request: int
    value: Any
    error: TensordError | None


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Peer:
    """One connection and its session.

    For receiving: `inbox` holds received messages that are not admitted, and `taken` counts all received messages.
    `uploads` has (message number, bytes) of the uploads among them, for credit, and `admitted` counts the bytes of
    admitted uploads. `packed`: later frames, not yet decoded, with `packed_bytes` of headers and `packed_payload` of
    payloads. `reported`, `reported_bytes`: the credit that the peer was last told of.

    For sending: `answers` go into the next REPLIES. `unsent` are frames for which the socket's queue had no room.
    `unacknowledged`: REPLIES that a resumable session may have missed. `parts` are long answers, sent slice by slice.
    `outstanding` counts the bytes that libzmq has not sent, or the client has not acknowledged; `released` holds the
    sizes of frames that libzmq has sent since.
    """

    listener: Listener
    identity: bytes
    credentials: PeerCredentials
    limits: Limits
    since: float
    state: ConnectionState = ConnectionState.HANDSHAKE
    session: VmSession | None = None
    name: str = ""
    is_command_line: bool = False  # a session of the command line
    leaving: bool = False  # the peer has sent BYE, after messages that are not admitted yet
    token: bytes | None = None
    shared: bool = False
    away_since: float = 0.0
    pidfd: int = -1
    batch: int = 0  # the last one received
    number: int = 0  # of the last REPLIES sent
    inbox: deque[Sequence[Any]] = field(default_factory=deque)
    packed: deque[Sequence[Any]] = field(default_factory=deque)
    packed_bytes: int = 0
    packed_payload: int = 0
    taken: int = 0
    reported: int = 0
    reported_bytes: int = 0
    uploaded: int = 0
    admitted: int = 0
    uploads: deque[tuple[int, int]] = field(default_factory=deque)
    answers: list[PendingAnswer] = field(default_factory=list)
    parts: deque[tuple[int, Iterator[list[Any]]]] = field(default_factory=deque)
    unsent: deque[list[Any]] = field(default_factory=deque)
    unacknowledged: deque[tuple[int, list[Any]]] = field(default_factory=deque)
    outstanding: int = 0
    released: deque[int] = field(default_factory=deque)
    segments: dict[int, MemorySegment] = field(default_factory=dict)
    mappings: WeakSet[MemorySegment] = field(default_factory=WeakSet)  # including closed segments in which arrays lie

    def on(self, event: ConnectionEvent) -> None:
        """Make the transition; ProtocolError, with the state unchanged, if there is none."""
        after = TRANSITIONS[self.state].get(event)
        if after is None:
            raise ProtocolError(f"a connection that is {self.state.value} cannot be {event.value}")
        self.state = after

    @property
    def resumable(self) -> bool:
        """Whether another connection may resume the session."""
        return self.token is not None

    def consumed(self) -> int:
        """The number of the peer's messages that are finished, which never decreases."""
        session = self.session
        unfinished = len(self.inbox) + (len(session.live) if session is not None else 0)
        return max(self.taken - unfinished, self.reported)

    def consumed_bytes(self) -> int:
        """The number of bytes of the peer's uploads that are consumed."""
        admitted = self.taken - len(self.inbox)
        while self.uploads and self.uploads[0][0] <= admitted:
            self.admitted += self.uploads.popleft()[1]
        return self.admitted - (self.session.payload if self.session is not None else 0)

    @property
    def unfolding(self) -> bool:
        """Whether a run of the session is being admitted op by op."""
        return self.session is not None and self.session.unfolding is not None

    @property
    def waits(self) -> bool:
        """Whether the session's messages must wait (`VmSession.waits`)."""
        return self.session is not None and self.session.waits()

    @property
    def has_more(self) -> bool:
        """Whether the peer has messages that are not admitted yet."""
        return bool(self.inbox or self.packed or self.unfolding)

    def may_be_served(self) -> bool:
        """Whether the peer's messages may be admitted.

        They may not while the peer does not read its answers, so that `outstanding` stays bounded, nor while a window
        of ops of its run is unfinished, since a run may have any number of ops.
        """
        while self.released:
            self.outstanding -= self.released.popleft()
        making = self.session.answering if self.session is not None else 0
        if self.session is not None and self.unfolding and len(self.session.live) > self.limits.window:
            return False
        return (
            not self.unsent
            and self.outstanding + making <= self.limits.window_bytes
            and self.state is not ConnectionState.CLOSED
        )

    def drop_packed(self) -> None:
        """Drop the frames that are not decoded yet."""
        self.packed.clear()
        self.packed_bytes = self.packed_payload = 0

    def __repr__(self) -> str:
        return f"<peer {self.name or self.identity.hex()} {self.state.value}>"


def session_of(peer: Peer) -> VmSession:
    """The peer's session; ProtocolError if it has none."""
    if peer.session is None:
        raise ProtocolError("this connection has no session")
    return peer.session


def fields(header: Sequence[Any], count: int) -> Sequence[Any]:
    """The header; ProtocolError unless it has `count` fields."""
    if len(header) != count:
        raise ProtocolError(f"a header of kind {header[0]} has {count} fields, not {len(header)}")
    return header
