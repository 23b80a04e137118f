"""The receiving side of a link: the halves of values that the peer sends, and the memory for them."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from ....interpreter.errors import KernelError, MetadataError, ProtocolError, QuotaError, TensordError
from ....interpreter.types.meta import Meta
from ....interpreter.wire.limits import Limits
from ..failures import TransferFailures
from ..link import Array, Into, Merge, OnEnd
from .frames import PIECE_BYTES, Frame, HeaderKind
from .halves import RECEIVER, Call, HalfEvent, HalfState, TcpHalf, Violation, bytes_of
from .outgoing import OutgoingFrames
from .sender import WINDOW_BYTES, cost, under_way

MAX_ARRIVED: Final = (
    Limits().sessions * Limits().transfers
)  # offers without a receiver yet: sessions of a peer may have no more
OFFERED_STATES: Final = frozenset({HalfState.READY, HalfState.FAILED})


class Receiver:
    """The receiver. `receiving`: the halves, of which `arrived` were offered and not expected yet. `held`: bytes of
    small values that are not taken yet. `failed`: halves that the peer has failed before they began here. `declined`:
    halves that were refused here before the peer's offer, which may be on its way. `_buffer`: for a piece that is
    merged."""

    def __init__(self, outgoing: OutgoingFrames) -> None:
        self._outgoing = outgoing
        self.receiving: dict[bytes, TcpHalf] = {}
        self.arrived = 0
        self.held = 0
        self.failed, self.declined = TransferFailures(), TransferFailures()
        self._reading: TcpHalf | None = None
        self._buffer = memoryview(b"")

    def take(self, transfer: bytes, meta: Meta, into: Into, done: OnEnd) -> list[Call]:
        return self.expect(transfer, meta, done, into)

    def expect(self, transfer: bytes, meta: Meta, on_end: OnEnd, into: Into = None) -> list[Call]:
        error = self.failed.pop(transfer)
        if error is not None:
            return [(on_end, error)]
        half = self.receiving.get(transfer)
        if half is None:
            self.receiving[transfer] = TcpHalf(transfer, HalfState.EXPECTED, meta, on_end, into=into, table=RECEIVER)
            return []
        if half.state is not HalfState.ARRIVED:
            return [(on_end, under_way(transfer))]
        half.on(HalfEvent.EXPECT)
        half.on_end, half.into = on_end, into
        self.arrived -= 1
        return self._meet(half, half.meta, meta)

    def receive(self, transfer: bytes, array: Array, done: OnEnd) -> list[Call]:
        half = self.receiving.get(transfer)
        if half is None or half.state not in OFFERED_STATES:
            return [(done, ProtocolError(f"transfer {transfer.hex()} was not offered"))]
        half.on_end, half.into = done, array
        return self._fill(half)

    def refuse(self, transfer: bytes, error: TensordError) -> list[Call]:
        half = self.receiving.get(transfer)
        if half is None:
            if self.failed.pop(transfer) is None:
                self._decline(transfer, 0, error)
            return []
        before = half.state
        half.on(HalfEvent.WITHDRAWN)
        if half.state is not HalfState.ENDED:
            return []
        if before is HalfState.ARRIVED:
            self.arrived -= 1
        if before is not HalfState.FAILED:
            self._decline(transfer, half.number, error)
        return self._drop(half, error)

    def broken(self, error: TensordError) -> list[Call]:
        """End every half with the error, now or when the machine has memory."""
        self.arrived = 0
        calls: list[Call] = []
        for half in list(self.receiving.values()):
            if half.state in {HalfState.EXPECTED, HalfState.READY, HalfState.FILLING}:
                self._decline(half.transfer, 0, error)
                half.error = error
            half.on(HalfEvent.BROKEN)
            if half.state is HalfState.ENDED:
                calls += self._drop(half, error)
            else:
                self._forget_bytes(half)
        return calls

    # -- the peer's frames ---------------------------------------------------------------------------------------------

    def target(self, head: Frame) -> memoryview:
        """The memory for the bytes of a PIECE. The reader calls `filled` afterwards, or `let_go`."""
        half = self.receiving.get(head.transfer)
        if half is None or half.state is not HalfState.FILLING or half.number != head.number:
            raise Violation(f"a piece of transfer {head.transfer.hex()}, which takes none")
        left = half.meta.nbytes - half.moved
        if head.length > left or (left and not head.length) or head.length % half.meta.dtype.itemsize:
            raise Violation(f"a piece of {head.length} bytes where {left} are left of {half.meta}")
        half.busy, self._reading = True, half
        if callable(half.into):
            self._buffer = self._buffer or memoryview(bytearray(PIECE_BYTES))
            return self._buffer[: head.length]
        view: memoryview = half.view[half.moved : half.moved + head.length]
        return view

    def merge(self, nbytes: int) -> None:
        """Merge the piece in the buffer, if it was read there. Needs no lock, since only the reader uses the buffer."""
        half = self._reading
        if half is not None and callable(half.into) and half.fault is None:
            dtype = half.meta.dtype
            piece = np.frombuffer(self._buffer[:nbytes], dtype)
            half.fault = fault_of(half.into, half.moved // dtype.itemsize, piece)

    def filled(self, nbytes: int) -> list[Call]:
        """The piece has arrived."""
        half, calls = self._reading, self.let_go()
        if half is not None and half.state is HalfState.FILLING:
            half.moved += nbytes
            if half.moved == half.meta.nbytes:
                half.on(HalfEvent.LAST)
                self._outgoing.put(HeaderKind.DONE, half.transfer, half.number)
                calls += self._drop(half, half.fault)
        return calls

    def let_go(self) -> list[Call]:
        """The reader no longer uses an array."""
        half, self._reading = self._reading, None
        return [] if half is None else half.let_go()

    def offered(self, head: Frame, meta: Meta, values: bytes | None) -> list[Call]:
        """Take an OFFER, or a SMALL with its values."""
        if not head.number:
            raise Violation("an offer without a number")
        half, declined = self.receiving.get(head.transfer), self.declined.pop(head.transfer)
        if half is not None and half.state is not HalfState.EXPECTED:
            declined = under_way(head.transfer)  # the id is used again
        if declined is not None:
            self._outgoing.tell(HeaderKind.REFUSE, head.transfer, head.number, declined)
            return []
        if half is None:
            return self._arrive(head, meta, values)
        wanted, half.meta = half.meta, meta
        self._enter(half, head, values)
        half.on(HalfEvent.OFFER)
        return self._meet(half, meta, wanted)

    def _arrive(self, head: Frame, meta: Meta, values: bytes | None) -> list[Call]:
        """Keep an offer until the machine expects it; refuse it if too many are kept."""
        if self.arrived >= MAX_ARRIVED:
            error = QuotaError(f"{MAX_ARRIVED} values from one node to another wait, but no session has asked for them")
            self.failed.keep(head.transfer, error)
            self._outgoing.tell(HeaderKind.REFUSE, head.transfer, head.number, error)
            return []
        self.arrived += 1
        half = self.receiving[head.transfer] = TcpHalf(head.transfer, HalfState.ARRIVED, meta, table=RECEIVER)
        self._enter(half, head, values)
        return []

    def _enter(self, half: TcpHalf, head: Frame, values: bytes | None) -> None:
        """Note the peer's offer. Violation if too many bytes of small values are not taken yet."""
        half.number = head.number
        if values is not None:
            half.view, half.counted = values, cost(half.meta)
            self.held += half.counted
            if self.held > WINDOW_BYTES:
                raise Violation(f"more than {WINDOW_BYTES} bytes that no session has received")

    def failed_by(self, head: Frame, error: TensordError) -> list[Call]:
        """Take a FAIL: the half here ends, or gets the error when it begins. If it was refused, too, no half needs the
        error."""
        half = self.receiving.get(head.transfer)
        if half is not None and head.number in {0, half.number}:
            return self._end(half, error)
        if half is None and not head.number:
            declined = self.declined.pop(head.transfer)
            if declined is None and not self._outgoing.has_notice(HeaderKind.REFUSE, head.transfer):
                self.failed.keep(head.transfer, error)
        return []

    def _end(self, half: TcpHalf, error: TensordError) -> list[Call]:
        if half.state is HalfState.FAILED:
            return []
        if half.state is HalfState.ARRIVED:
            self.arrived -= 1
            self.failed.keep(half.transfer, error)
        half.on(HalfEvent.FAIL)
        if half.state is HalfState.ENDED:
            return self._drop(half, error)
        half.error = error
        self._forget_bytes(half)
        return []

    def _meet(self, half: TcpHalf, sent: Meta, wanted: Meta) -> list[Call]:
        """Both halves are there: call the machine back, unless it has memory already; fail both if their metas
        differ."""
        if sent is wanted:
            return half.call(None) if half.into is None else self._fill(half)
        error = MetadataError(f"a {sent} was sent where a {wanted} was expected")
        half.on(HalfEvent.WITHDRAWN)
        self._outgoing.tell(HeaderKind.REFUSE, half.transfer, half.number, error)
        return self._drop(half, error)

    def _fill(self, half: TcpHalf) -> list[Call]:
        """There is memory: take a small value, or ask the peer for the pieces."""
        if half.counted and half.state is HalfState.READY:
            return self._take_small(half)
        half.on(HalfEvent.RECEIVE)
        if half.state is HalfState.ENDED:
            return self._drop(half, half.error)
        half.view = None if callable(half.into) else bytes_of(half.into)
        self._outgoing.put(HeaderKind.GRANT, half.transfer, half.number)
        return []

    def _take_small(self, half: TcpHalf) -> list[Call]:
        """Copy or merge a small value, and tell the peer that it has arrived."""
        half.on(HalfEvent.SMALL_TAKEN)
        values = np.frombuffer(half.view, half.meta.dtype)
        if callable(half.into) and half.on_end is not None:
            half.on_end = partial(tell_merged, half.into, values, half.on_end)
        else:
            half.into[...] = values.reshape(half.meta.shape)
        self._outgoing.put(HeaderKind.DONE, half.transfer, half.number)
        return self._drop(half, None)

    def _decline(self, transfer: bytes, number: int, error: TensordError) -> None:
        """Tell the peer that nothing will be received. If its offer is not known here, the offer may be on its way."""
        self._outgoing.tell(HeaderKind.REFUSE, transfer, number, error)
        if not number:
            self.declined.keep(transfer, error)

    def _drop(self, half: TcpHalf, error: TensordError | None) -> list[Call]:
        del self.receiving[half.transfer]
        self._forget_bytes(half)
        return half.call(error)

    def _forget_bytes(self, half: TcpHalf) -> None:
        """Stop counting the bytes of a small value."""
        if half.counted:
            self.held -= half.counted
            half.counted, half.view = 0, None


def fault_of(merge: Merge, first: int, piece: Array) -> TensordError | None:
    """Merge a piece; returns the error of a failed merge."""
    try:
        merge(first, piece)
    except Exception as error:
        return KernelError(f"a chunk could not be merged: {type(error).__name__}: {error}")
    return None


def tell_merged(merge: Merge, values: Array, on_end: OnEnd, error: TensordError | None) -> None:
    """Merge a whole value unless there is an error, and call `on_end`."""
    on_end(error or fault_of(merge, 0, values))
