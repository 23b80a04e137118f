"""The frames that a link has to write, and its notices, which outlive a connection. `sender` has the pieces of values.

A notice says that a half has ended here while its other half may still begin. A notice is kept until the peer has noted
it, and is sent again on the next connection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from ....interpreter.errors import TensordError
from .. import failures
from ..failures import ByClient
from .frames import NO_TRANSFER, HeaderKind, error_payload, frame

FRAMES_PER_WRITE: Final = 64  # frames in one write


class Notice(NamedTuple):
    """The message that a half has ended here."""

    kind: HeaderKind
    transfer: bytes
    error: TensordError

    def frame(self, notice: int, number: int) -> bytes:
        return frame(self.kind, self.transfer, number, error_payload(self.error, notice))


class OutgoingFrames:
    """Frames to write. `notice`: the number before the first notice; higher than all that an earlier link to that
    daemon has used."""

    def __init__(self, notice: int) -> None:
        self.up = False
        self.frames: deque[bytes] = deque()
        self.notices: OrderedDict[int, Notice] = OrderedDict()
        self._numbers: dict[tuple[HeaderKind, bytes], int] = {}
        self._by_client: ByClient[int] = ByClient()
        self._newest = notice
        self._heard = 0  # the peer's newest notice
        self._noted = 0  # the newest notice that the peer was told we noted

    def owes_note(self) -> bool:
        """Return whether the peer must still be told that its newest notices have arrived."""
        return self._heard > self._noted

    def connected(self) -> None:
        """There is a new connection: queue the notices first."""
        self.up, self._noted = True, 0
        self.frames += [notice.frame(number, 0) for number, notice in self.notices.items()]

    def broken(self) -> None:
        self.up = False
        self.frames.clear()

    def put(self, kind: HeaderKind, transfer: bytes, number: int, payload: bytes = b"") -> None:
        """Queue a frame for the present connection."""
        self.frames.append(frame(kind, transfer, number, payload))

    def take(self) -> bytes:
        """The next frames."""
        if self.owes_note():
            self._noted = self._heard
            self.put(HeaderKind.NOTED, NO_TRANSFER, self._noted)
        return b"".join([self.frames.popleft() for _ in range(min(len(self.frames), FRAMES_PER_WRITE))])

    def tell(self, kind: HeaderKind, transfer: bytes, number: int, error: TensordError) -> None:
        """Tell the peer that a half has ended, now or on the next connection."""
        self._newest += 1
        former = self._numbers.get((kind, transfer))
        if former is not None:
            self._drop(former)
        notice = self.notices[self._newest] = Notice(kind, transfer, error)
        self._numbers[kind, transfer] = self._newest
        self._by_client.add(self._newest, transfer)
        oldest = self._by_client.to_forget(failures.MAX_FAILURES)
        if oldest is not None:
            self._drop(oldest)
        if self.up:
            self.frames.append(notice.frame(self._newest, number))

    def has_notice(self, kind: HeaderKind, transfer: bytes) -> bool:
        """Return whether the peer has not noted such a notice yet."""
        return (kind, transfer) in self._numbers

    def noted(self, number: int) -> None:
        """The peer has noted all notices up to that number."""
        while self.notices and (oldest := next(iter(self.notices))) <= number:
            self._drop(oldest)

    def _drop(self, number: int) -> None:
        notice = self.notices.pop(number)
        del self._numbers[notice.kind, notice.transfer]
        self._by_client.remove(number)

    def is_new(self, number: int) -> bool:
        """Return whether a notice of the peer's is new. It may have come before, over a connection that broke."""
        if number <= self._heard:
            return False
        self._heard = number
        return True
