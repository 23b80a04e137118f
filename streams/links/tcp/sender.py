"""The sending side of a link: the halves of values that go to the peer, and the pieces of values that the peer has
memory for.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ....interpreter.errors import ProtocolError, TensordError
from ....interpreter.types.meta import Meta
from ..failures import TransferFailures
from ..link import SMALL_BYTES, Array, OnEnd
from .frames import Frame, HeaderKind, meta_payload, small_payload
from .halves import SENDER, Call, HalfEvent, HalfState, TcpHalf, bytes_of
from .outgoing import OutgoingFrames

WINDOW_BYTES: Final = 16 << 20  # bytes of small values that the receiver has not taken
OVERHEAD_BYTES: Final = 512  # bytes that a small value counts in addition


class Sender:
    """The sender. `sending`: the halves. `active`: halves with pieces to write, in turns. `given`: bytes of small
    values that the peer has not taken. `refused`: halves that the peer has refused before they began here."""

    def __init__(self, outgoing: OutgoingFrames, piece: int) -> None:
        self._outgoing = outgoing
        self._piece = piece
        self.sending: dict[bytes, TcpHalf] = {}
        self.active: deque[TcpHalf] = deque()
        self.refused = TransferFailures()
        self.given = 0
        self._offers = 0

    def offer(self, transfer: bytes, meta: Meta, array: Array, done: OnEnd) -> list[Call]:
        error = self.refused.pop(transfer)
        if error is None and transfer in self.sending:
            error = under_way(transfer)
        if error is not None:
            return [(done, error)]
        half = self.sending[transfer] = TcpHalf(
            transfer, HalfState.QUEUED, meta, done, view=bytes_of(array), table=SENDER
        )
        if self._outgoing.up:
            self._announce(half)
        return []

    def fail(self, transfer: bytes, error: TensordError) -> list[Call]:
        half = self.sending.get(transfer)
        if half is None:
            if self.refused.pop(transfer) is None:  # otherwise both halves have failed
                self._outgoing.tell(HeaderKind.FAIL, transfer, 0, error)
            return []
        half.on(HalfEvent.WITHDRAWN)
        if half.state is not HalfState.ENDED:
            return []
        self._outgoing.tell(HeaderKind.FAIL, transfer, half.number, error)
        return self._drop(half, error)

    def connected(self) -> None:
        """There is a connection: offer the queued values."""
        for half in list(self.sending.values()):
            self._announce(half)

    def broken(self, error: TensordError) -> list[Call]:
        """End every half with the error."""
        self.active.clear()
        calls: list[Call] = []
        for half in list(self.sending.values()):
            half.on(HalfEvent.BROKEN)
            self._outgoing.tell(HeaderKind.FAIL, half.transfer, 0, error)
            calls += self._drop(half, error)
        return calls

    def next(self) -> TcpHalf | None:
        """The half whose piece is written next, if any. Its bytes must not change until `written`."""
        if not self.active:
            return None
        half = self.active.popleft()
        half.busy = True
        return half

    def piece_of(self, half: TcpHalf) -> list[bytes | memoryview]:
        """The header and the bytes of the half's next piece."""
        size = self._piece - self._piece % half.meta.dtype.itemsize  # whole elements, since a piece may be merged
        piece = half.view[half.moved : half.moved + size]
        half.moved += len(piece)
        if half.moved == len(half.view):
            half.on(HalfEvent.LAST)
        return [Frame(HeaderKind.PIECE, len(piece), half.number, half.transfer).header(), piece]

    def written(self, half: TcpHalf) -> list[Call]:
        """The piece was written, or the connection has broken meanwhile."""
        calls = half.let_go()
        if half.state is HalfState.SENDING:
            self.active.append(half)
        return calls

    def answered(self, head: Frame) -> list[Call]:
        """Take a GRANT or DONE."""
        half = self.sending.get(head.transfer)
        if half is None or half.number != head.number:  # the half has ended meanwhile
            return []
        if head.kind is HeaderKind.GRANT:
            half.on(HalfEvent.GRANT)
            self.active.append(half)
            return []
        half.on(HalfEvent.DONE)
        return self._drop(half, None)

    def refused_by(self, head: Frame, error: TensordError) -> list[Call]:
        """Take a REFUSE: the half here ends, or gets the error when it begins. If it has failed, too, no half needs the
        error."""
        half = self.sending.get(head.transfer)
        if half is not None and head.number in {0, half.number}:
            half.on(HalfEvent.REFUSE)
            return self._drop(half, error)
        if half is None and not head.number and not self._outgoing.has_notice(HeaderKind.FAIL, head.transfer):
            self.refused.keep(head.transfer, error)
        return []

    def _announce(self, half: TcpHalf) -> None:
        """Put the offer in a frame; with the bytes, if they are few and fit into the window."""
        self._offers += 1
        half.number, meta = self._offers, half.meta
        if meta.nbytes <= SMALL_BYTES and self.given + cost(meta) <= WINDOW_BYTES:
            half.on(HalfEvent.HANDED)
            half.counted = cost(meta)
            self.given += half.counted
            self._outgoing.put(HeaderKind.SMALL, half.transfer, half.number, small_payload(meta, bytes(half.view)))
        else:
            half.on(HalfEvent.ANNOUNCED)
            self._outgoing.put(HeaderKind.OFFER, half.transfer, half.number, meta_payload(meta))

    def _drop(self, half: TcpHalf, error: TensordError | None) -> list[Call]:
        """Take an ended half out of the table."""
        del self.sending[half.transfer]
        self.given -= half.counted
        return half.call(error)


def cost(meta: Meta) -> int:
    """The bytes that a small value counts in the window."""
    return meta.nbytes + OVERHEAD_BYTES


def under_way(transfer: bytes) -> ProtocolError:
    return ProtocolError(f"transfer {transfer.hex()} is under way already")
