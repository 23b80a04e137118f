"""One link as a state machine: the machine's calls and the peer's frames go in, frames and callbacks come out.

Theory of operation
    `Protocol` has no threads and no sockets. Its owner calls it under one lock, makes the calls that it returns without
    that lock, writes what `next` gives, and says when that is `written`. Bytes of values are never held but those of
    small ones: pieces are views of the arrays. While there is no connection, what begins is queued.

Guarantees
    As in `..link`. A break ends all halves on both sides. Since the other half of some may still come, each side tells
    the other one which transfers it has ended. Such notices are kept until the peer has noted them, and are the first
    that is sent at the next connection.

Bounds
    Values that nobody has asked for yet: `WINDOW` bytes of small ones, which both sides count, and `ARRIVED` offers.
    Failures of halves whose other half has not come: `KEPT`, then the oldest are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Final, NamedTuple

import numpy as np

from ....interpreter.errors import MetadataError, ProtocolError, TensordError
from ....interpreter.types.meta import Meta
from ..link import SMALL, Array, Told
from .frames import (
    NO_TRANSFER,
    PIECE_BYTES,
    Frame,
    Kind,
    error_payload,
    frame,
    meta_payload,
    read_error,
    read_meta,
    read_small,
    small_payload,
)
from .halves import RECEIVER, SENDER, Call, Event, Half, State, Violation, bytes_of

WINDOW: Final = 16 << 20  # bytes of small values that the receiver has not taken
OVERHEAD: Final = 512  # that a small value counts besides
ARRIVED: Final = 1 << 16  # offers for which nobody has asked yet
KEPT: Final = 1 << 16
OFFERED_STATES: Final = frozenset({State.READY, State.FAILED})
TOGETHER: Final = 64  # frames that are written at once


class Out(NamedTuple):
    """What to write next. `half`: the one of which a piece is the last buffer."""

    buffers: list[Any]
    half: Half | None


class Failures(OrderedDict[bytes, TensordError]):
    """Errors of halves that the other half has still to hear of; the oldest are forgotten."""

    def keep(self, transfer: bytes, error: TensordError) -> None:
        self[transfer] = error
        if len(self) > KEPT:
            self.popitem(last=False)


class Notice(NamedTuple):
    """That a half has ended here, until the peer has noted it."""

    kind: Kind
    transfer: bytes
    error: TensordError

    def frame(self, notice: int, number: int) -> bytes:
        return frame(self.kind, self.transfer, number, error_payload(self.error, notice))


class Protocol:
    """A link to one node. `piece`: the bytes of a piece. `notice`: the number before that of the first notice, which is
    higher than all that an earlier link to that daemon has used."""

    def __init__(self, piece: int = PIECE_BYTES, notice: int = 0) -> None:
        self.piece = piece
        self.up = False
        self.sending: dict[bytes, Half] = {}
        self.receiving: dict[bytes, Half] = {}
        self.control: deque[bytes] = deque()  # frames to write
        self.active: deque[Half] = deque()  # whose pieces are to be written, in turns
        self.failed, self.refused = Failures(), Failures()  # by the peer, of halves that have not begun here
        self.declined = Failures()  # refused here, before the peer's offer, which may be on its way
        self.notices: OrderedDict[int, Notice] = OrderedDict()
        self._noticed: dict[tuple[Kind, bytes], int] = {}  # their numbers
        self._newest = notice
        self._heard = 0  # the newest notice of the peer's
        self._noted = 0  # the one up to which it was told so
        self.given = 0  # bytes of small values that the peer has not taken
        self.held = 0  # bytes of the peer's that nobody has taken here
        self.arrived = 0
        self._offers = 0
        self._reading: Half | None = None

    # -- the machine's calls -------------------------------------------------------------------------------------------

    def offer(self, transfer: bytes, meta: Meta, array: Array, done: Told) -> list[Call]:
        error = self.refused.pop(transfer, None)
        if error is None and transfer in self.sending:
            error = under_way(transfer)
        if error is not None:
            return [(done, error)]
        half = self.sending[transfer] = Half(transfer, State.QUEUED, meta, done, view=bytes_of(array), table=SENDER)
        if self.up:
            self._announce(half)
        return []

    def fail(self, transfer: bytes, error: TensordError) -> list[Call]:
        half = self.sending.get(transfer)
        if half is None:
            if self.refused.pop(transfer, None) is None:  # else both have failed
                self._tell(Kind.FAIL, transfer, 0, error)
            return []
        half.on(Event.WITHDRAWN)
        if half.state is not State.ENDED:
            return []
        self._tell(Kind.FAIL, transfer, half.number, error)
        return self._drop_sender(half, error)

    def expect(self, transfer: bytes, meta: Meta, offered: Told) -> list[Call]:
        error = self.failed.pop(transfer, None)
        if error is not None:
            return [(offered, error)]
        half = self.receiving.get(transfer)
        if half is None:
            self.receiving[transfer] = Half(transfer, State.EXPECTED, meta, offered, table=RECEIVER)
            return []
        if half.state is not State.ARRIVED:
            return [(offered, under_way(transfer))]
        half.on(Event.EXPECT)
        half.told = offered
        self.arrived -= 1
        return self._meet(half, half.meta, meta)

    def receive(self, transfer: bytes, array: Array, done: Told) -> list[Call]:
        half = self.receiving.get(transfer)
        if half is None or half.state not in OFFERED_STATES:
            return [(done, ProtocolError(f"transfer {transfer.hex()} was not offered"))]
        half.told = done
        if half.counted and half.state is State.READY:
            return self._take_small(half, array)
        half.on(Event.RECEIVE)
        if half.state is State.ENDED:
            return self._drop_receiver(half, half.error)
        half.view = bytes_of(array)
        self.control.append(frame(Kind.GRANT, transfer, half.number))
        return []

    def refuse(self, transfer: bytes, error: TensordError) -> list[Call]:
        half = self.receiving.get(transfer)
        if half is None:
            if self.failed.pop(transfer, None) is None:
                self._decline(transfer, 0, error)
            return []
        before = half.state
        half.on(Event.WITHDRAWN)
        if half.state is not State.ENDED:
            return []
        if before is State.ARRIVED:
            self.arrived -= 1
        if before is not State.FAILED:
            self._decline(transfer, half.number, error)
        return self._drop_receiver(half, error)

    # -- the connection ------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Both connections are there: first come notices, then what was queued."""
        self.up, self._noted = True, 0
        self.control += [notice.frame(number, 0) for number, notice in self.notices.items()]
        for half in list(self.sending.values()):
            self._announce(half)

    def broken(self, error: TensordError) -> list[Call]:
        """The connection is gone, or does not come: everything that has begun ends with the error."""
        self.up = False
        self.control.clear()
        self.active.clear()
        self.arrived = 0
        calls: list[Call] = []
        for half in list(self.sending.values()):
            half.on(Event.BROKEN)
            self._tell(Kind.FAIL, half.transfer, 0, error)
            calls += self._drop_sender(half, error)
        for half in list(self.receiving.values()):
            if half.state in {State.EXPECTED, State.READY, State.FILLING}:
                self._decline(half.transfer, 0, error)
                half.error = error
            half.on(Event.BROKEN)
            if half.state is State.ENDED:
                calls += self._drop_receiver(half, error)
            else:
                self._forget_bytes(half)
        return calls

    # -- frames out ----------------------------------------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        return bool(self.control or self.active or self._heard > self._noted)

    def next(self) -> Out | None:
        """What to write next: some frames, and a piece of one value."""
        if self._heard > self._noted:
            self._noted = self._heard
            self.control.append(frame(Kind.NOTED, NO_TRANSFER, self._noted))
        some = min(len(self.control), TOGETHER)
        buffers: list[Any] = [b"".join([self.control.popleft() for _ in range(some)])] if some else []
        half = self.active.popleft() if self.active else None
        if half is not None:
            piece = half.view[half.moved : half.moved + self.piece]
            half.busy = True
            half.moved += len(piece)
            if half.moved == len(half.view):
                half.on(Event.LAST)
            buffers += [Frame(Kind.PIECE, len(piece), half.number, half.transfer).header(), piece]
        return Out(buffers, half) if buffers else None

    def written(self, half: Half | None) -> list[Call]:
        """The piece was written, or the connection has broken meanwhile."""
        if half is None:
            return []
        calls = half.let_go()
        if half.state is State.SENDING:
            self.active.append(half)
        return calls

    # -- frames in -----------------------------------------------------------------------------------------------------

    def target(self, head: Frame) -> memoryview:
        """Where the bytes of a PIECE go. Its reader calls `filled` afterwards, or `let_go`."""
        half = self.receiving.get(head.transfer)
        if half is None or half.state is not State.FILLING or half.number != head.number:
            raise Violation(f"a piece of transfer {head.transfer.hex()}, which takes none")
        left = len(half.view) - half.moved
        if head.length > left or (left and not head.length):
            raise Violation(f"a piece of {head.length} bytes where {left} are left")
        half.busy, self._reading = True, half
        view: memoryview = half.view[half.moved : half.moved + head.length]
        return view

    def filled(self, nbytes: int) -> list[Call]:
        """The piece is there."""
        half, calls = self._reading, self.let_go()
        if half is not None and half.state is State.FILLING:
            half.moved += nbytes
            if half.moved == len(half.view):
                half.on(Event.LAST)
                self.control.append(frame(Kind.DONE, half.transfer, half.number))
                calls += self._drop_receiver(half, None)
        return calls

    def let_go(self) -> list[Call]:
        """The reader touches no array any more."""
        half, self._reading = self._reading, None
        return [] if half is None else half.let_go()

    def take(self, head: Frame, payload: bytes) -> list[Call]:
        """A frame of the peer that is no PIECE. ProtocolError for what no peer sends."""
        if head.kind is Kind.OFFER:
            return self._offered(head, read_meta(payload), None)
        if head.kind is Kind.SMALL:
            return self._offered(head, *read_small(payload))
        if head.kind in {Kind.FAIL, Kind.REFUSE}:
            return self._notified(head, *read_error(payload))
        if head.kind is Kind.BEAT:
            return []
        if head.kind is Kind.NOTED:
            self._forget_notices(head.number)
            return []
        half = self.sending.get(head.transfer)
        if half is None or half.number != head.number:  # it has ended meanwhile
            return []
        if head.kind is Kind.GRANT:
            half.on(Event.GRANT)
            self.active.append(half)
            return []
        half.on(Event.DONE)
        return self._drop_sender(half, None)

    def _offered(self, head: Frame, meta: Meta, values: bytes | None) -> list[Call]:
        if not head.number:
            raise Violation("an offer without a number")
        half, declined = self.receiving.get(head.transfer), self.declined.pop(head.transfer, None)
        if half is not None and half.state is not State.EXPECTED:
            declined = under_way(head.transfer)  # an id that is used again
        if declined is not None:
            self._tell(Kind.REFUSE, head.transfer, head.number, declined)
            return []
        if half is None:
            return self._arrive(head, meta, values)
        wanted, half.meta = half.meta, meta
        self._enter(half, head, values)
        half.on(Event.OFFER)
        return self._meet(half, meta, wanted)

    def _arrive(self, head: Frame, meta: Meta, values: bytes | None) -> list[Call]:
        """Keep an offer until the machine asks."""
        self.arrived += 1
        if self.arrived > ARRIVED:
            raise Violation(f"more than {ARRIVED} offers that nobody has asked for")
        half = self.receiving[head.transfer] = Half(head.transfer, State.ARRIVED, meta, table=RECEIVER)
        self._enter(half, head, values)
        return []

    def _enter(self, half: Half, head: Frame, values: bytes | None) -> None:
        """Note what the peer offers. Violation if it has given too much that nobody has taken."""
        half.number = head.number
        if values is not None:
            half.view, half.counted = values, cost(half.meta)
            self.held += half.counted
            if self.held > WINDOW:
                raise Violation(f"more than {WINDOW} bytes that nobody has taken")

    def _notified(self, head: Frame, error: TensordError, notice: int) -> list[Call]:
        """FAIL or REFUSE, unless it has come before, over the connection that broke."""
        if notice <= self._heard:
            return []
        self._heard = notice
        return self._failed(head, error) if head.kind is Kind.FAIL else self._refused(head, error)

    def _failed(self, head: Frame, error: TensordError) -> list[Call]:
        """FAIL: the half here ends, or hears of it when it begins."""
        half = self.receiving.get(head.transfer)
        if half is not None and head.number in {0, half.number}:
            return self._end_receiver(half, error)
        if half is None and not head.number and not self._has_ended(head.transfer, Kind.REFUSE):
            self.failed.keep(head.transfer, error)
        return []

    def _end_receiver(self, half: Half, error: TensordError) -> list[Call]:
        if half.state is State.FAILED:
            return []
        if half.state is State.ARRIVED:
            self.arrived -= 1
            self.failed.keep(half.transfer, error)
        half.on(Event.FAIL)
        if half.state is State.ENDED:
            return self._drop_receiver(half, error)
        half.error = error
        self._forget_bytes(half)
        return []

    def _refused(self, head: Frame, error: TensordError) -> list[Call]:
        """REFUSE: the half here ends, or hears of it when it begins."""
        half = self.sending.get(head.transfer)
        if half is not None and head.number in {0, half.number}:
            half.on(Event.REFUSE)
            return self._drop_sender(half, error)
        if half is None and not head.number and not self._has_ended(head.transfer, Kind.FAIL):
            self.refused.keep(head.transfer, error)
        return []

    def _has_ended(self, transfer: bytes, kind: Kind) -> bool:
        """Has the half here ended, too, and told so without the other one? Then nobody is left to hear of it."""
        declined = kind is Kind.REFUSE and self.declined.pop(transfer, None) is not None
        return declined or (kind, transfer) in self._noticed

    def _forget_notices(self, noted: int) -> None:
        while self.notices and next(iter(self.notices)) <= noted:
            _, notice = self.notices.popitem(last=False)
            del self._noticed[notice.kind, notice.transfer]

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _announce(self, half: Half) -> None:
        """Put the offer in a frame: with the bytes, if they are few and there is room in the window."""
        self._offers += 1
        half.number, meta = self._offers, half.meta
        if meta.nbytes <= SMALL and self.given + cost(meta) <= WINDOW:
            half.on(Event.HANDED)
            half.counted = cost(meta)
            self.given += half.counted
            self.control.append(frame(Kind.SMALL, half.transfer, half.number, small_payload(meta, bytes(half.view))))
        else:
            half.on(Event.ANNOUNCED)
            self.control.append(frame(Kind.OFFER, half.transfer, half.number, meta_payload(meta)))

    def _meet(self, half: Half, sent: Meta, wanted: Meta) -> list[Call]:
        """Both halves are there: tell the machine; both ends, if they do not fit."""
        if sent is wanted:
            return half.call(None)
        error = MetadataError(f"a {sent} was sent to where a {wanted} was expected")
        half.on(Event.WITHDRAWN)
        self._tell(Kind.REFUSE, half.transfer, half.number, error)
        return self._drop_receiver(half, error)

    def _take_small(self, half: Half, array: Array) -> list[Call]:
        """Copy a small value, and say that it has arrived."""
        half.on(Event.SMALL_TAKEN)
        array[...] = np.frombuffer(half.view, half.meta.dtype).reshape(half.meta.shape)
        self.control.append(frame(Kind.DONE, half.transfer, half.number))
        return self._drop_receiver(half, None)

    def _tell(self, kind: Kind, transfer: bytes, number: int, error: TensordError) -> None:
        """Tell the peer that a half has ended, now or at the next connection."""
        self._newest += 1
        notice = self.notices[self._newest] = Notice(kind, transfer, error)
        self.notices.pop(self._noticed.get((kind, transfer), 0), None)
        self._noticed[kind, transfer] = self._newest
        if len(self.notices) > KEPT:
            self._forget_notices(next(iter(self.notices)))
        if self.up:
            self.control.append(notice.frame(self._newest, number))

    def _decline(self, transfer: bytes, number: int, error: TensordError) -> None:
        """Tell the peer that nothing will be received. If that does not know its offer, one may be on its way."""
        self._tell(Kind.REFUSE, transfer, number, error)
        if not number:
            self.declined.keep(transfer, error)

    def _drop_sender(self, half: Half, error: TensordError | None) -> list[Call]:
        """Take an ended half out of the table."""
        del self.sending[half.transfer]
        self.given -= half.counted
        return half.call(error)

    def _drop_receiver(self, half: Half, error: TensordError | None) -> list[Call]:
        del self.receiving[half.transfer]
        self._forget_bytes(half)
        return half.call(error)

    def _forget_bytes(self, half: Half) -> None:
        """The bytes of a small value are not held any more."""
        if half.counted:
            self.held -= half.counted
            half.counted, half.view = 0, None


def cost(meta: Meta) -> int:
    """What a small value counts of the window."""
    return meta.nbytes + OVERHEAD


def under_way(transfer: bytes) -> ProtocolError:
    return ProtocolError(f"transfer {transfer.hex()} is under way already")
