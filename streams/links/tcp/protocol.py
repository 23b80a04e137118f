"""One link as a state machine: calls of the machine and frames of the peer go in, frames and callbacks come out.

Theory of operation
    `Protocol` has no threads and no sockets. Its owner calls it under one lock, makes the returned calls without that
    lock, writes what `next` returns, and reports when that is `written`. Only bytes of small values are held: pieces
    are views of the arrays. Without a connection, transfers that begin are queued. The two sides of the link (`sender`,
    `receiver`) share the outgoing frames (`outgoing`), and nothing else.

Guarantees
    As in `..link`. A break ends all halves on both sides. Since the other half of some may still begin, each side tells
    the other one which transfers it has ended. Such notices are kept until the peer has noted them, and are sent first
    on the next connection.

Bounds
    Values without a receiver yet: `WINDOW_BYTES` bytes of small ones, which both sides count, and `MAX_ARRIVED`
    offers. Each offer beyond that is refused by itself, so transfers of other sessions go on. Failures of halves whose
    other half has not begun: `failures.MAX_FAILURES`; then the oldest are forgotten.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....interpreter.errors import TensordError
from ....interpreter.types.meta import Meta
from ..link import Array, Into, OnEnd
from .frames import PIECE_BYTES, Frame, HeaderKind, read_error, read_meta, read_small
from .halves import Call, TcpHalf
from .outgoing import OutgoingFrames
from .receiver import Receiver
from .sender import Sender


class Out(NamedTuple):
    """The next bytes to write. `half`: the half whose piece is the last buffer."""

    buffers: list[Any]
    half: TcpHalf | None


class Protocol:
    """A link to one node. `piece`: the bytes of a piece. `notice`: as for `OutgoingFrames`."""

    def __init__(self, piece: int = PIECE_BYTES, notice: int = 0) -> None:
        self.outgoing = OutgoingFrames(notice)
        self.sender = Sender(self.outgoing, piece)
        self.receiver = Receiver(self.outgoing)
        self._frames, self._active = self.outgoing.frames, self.sender.active

    @property
    def up(self) -> bool:
        """Return whether there is a connection."""
        return self.outgoing.up

    # -- the machine's calls -------------------------------------------------------------------------------------------

    def offer(self, transfer: bytes, meta: Meta, array: Array, done: OnEnd) -> list[Call]:
        return self.sender.offer(transfer, meta, array, done)

    def fail(self, transfer: bytes, error: TensordError) -> list[Call]:
        return self.sender.fail(transfer, error)

    def expect(self, transfer: bytes, meta: Meta, offered: OnEnd) -> list[Call]:
        return self.receiver.expect(transfer, meta, offered)

    def receive(self, transfer: bytes, array: Array, done: OnEnd) -> list[Call]:
        return self.receiver.receive(transfer, array, done)

    def take_value(self, transfer: bytes, meta: Meta, into: Into, done: OnEnd) -> list[Call]:
        return self.receiver.take(transfer, meta, into, done)

    def refuse(self, transfer: bytes, error: TensordError) -> list[Call]:
        return self.receiver.refuse(transfer, error)

    # -- the connection ------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Both connections are there: queue notices first, then the queued transfers."""
        self.outgoing.connected()
        self.sender.connected()

    def broken(self, error: TensordError) -> list[Call]:
        """The connection has broken, or does not come: everything that has begun ends with the error."""
        self.outgoing.broken()
        return self.sender.broken(error) + self.receiver.broken(error)

    # -- frames out ----------------------------------------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        return bool(self._frames or self._active or self.outgoing.owes_note())

    def next(self) -> Out | None:
        """The next bytes to write: some frames, and a piece of one value."""
        frames, half = self.outgoing.take(), self.sender.next()
        buffers: list[Any] = [frames] if frames else []
        if half is not None:
            buffers += self.sender.piece_of(half)
        return Out(buffers, half) if buffers else None

    def written(self, half: TcpHalf | None) -> list[Call]:
        """The piece was written, or the connection has broken meanwhile."""
        return [] if half is None else self.sender.written(half)

    # -- frames in -----------------------------------------------------------------------------------------------------

    def target(self, head: Frame) -> memoryview:
        """The memory for the bytes of a PIECE. The reader calls `merge` and `filled` afterwards, or `let_go`."""
        return self.receiver.target(head)

    def merge(self, nbytes: int) -> None:
        """Merge the bytes that were read, if the half merges. The only method that is called without the lock."""
        self.receiver.merge(nbytes)

    def filled(self, nbytes: int) -> list[Call]:
        """The bytes of the piece have arrived."""
        return self.receiver.filled(nbytes)

    def let_go(self) -> list[Call]:
        """The reader no longer uses an array."""
        return self.receiver.let_go()

    def take(self, head: Frame, payload: bytes) -> list[Call]:
        """Take a frame of the peer other than a PIECE. ProtocolError if the protocol forbids it."""
        kind = head.kind
        if kind is HeaderKind.OFFER:
            return self.receiver.offered(head, read_meta(payload), None)
        if kind is HeaderKind.SMALL:
            return self.receiver.offered(head, *read_small(payload))
        if kind in {HeaderKind.FAIL, HeaderKind.REFUSE}:
            return self._notified(head, *read_error(payload))
        if kind in {HeaderKind.GRANT, HeaderKind.DONE}:
            return self.sender.answered(head)
        if kind is HeaderKind.NOTED:
            self.outgoing.noted(head.number)
        return []

    def _notified(self, head: Frame, error: TensordError, notice: int) -> list[Call]:
        """Take a FAIL or REFUSE."""
        if not self.outgoing.is_new(notice):
            return []
        if head.kind is HeaderKind.FAIL:
            return self.receiver.failed_by(head, error)
        return self.sender.refused_by(head, error)
