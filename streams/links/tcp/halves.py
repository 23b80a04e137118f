"""The halves of a transfer: their states, and every event that may happen in each.

The sender's half begins as QUEUED with the machine's offer. The receiver's begins as EXPECTED, with the machine's call,
or as ARRIVED, with the peer's offer. An event that a table lacks is a violation: `Violation` if the peer has caused it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import numpy as np

from ....interpreter.errors import ProtocolError, TensordError
from ....interpreter.types.meta import Meta
from ..link import Array, Into, Told

Call: TypeAlias = tuple[Told, TensordError | None]


class HalfState(Enum):
    """Of a half."""

    QUEUED = auto()  # offered by the machine; the connection is not there yet
    OFFERED = auto()  # the peer knows of it
    GIVEN = auto()  # small: the peer has the bytes, but nobody has taken them there
    SENDING = auto()  # the peer has memory; pieces go out
    SENT = auto()  # all pieces are with the writer
    EXPECTED = auto()  # the machine waits for an offer
    ARRIVED = auto()  # the peer's offer waits for the machine
    READY = auto()  # both; the machine is about to have memory
    FAILED = auto()  # as READY, and the machine will hear of the error when it has
    FILLING = auto()  # pieces come in
    ENDED = auto()


class Event(Enum):
    """What happens to a half. The peer's: `HEARD` of them."""

    ANNOUNCED = auto()  # the offer was put in a frame
    HANDED = auto()  # the small value was
    LAST = auto()  # the last piece was taken by the writer, or has come
    WITHDRAWN = auto()  # the machine has failed or refused it
    BROKEN = auto()  # the connection
    EXPECT = auto()
    RECEIVE = auto()
    SMALL_TAKEN = auto()  # `RECEIVE` of a value whose bytes are here
    OFFER = auto()
    GRANT = auto()
    DONE = auto()
    FAIL = auto()
    REFUSE = auto()


S, E = HalfState, Event

SENDER: Final[dict[HalfState, dict[Event, HalfState]]] = {
    S.QUEUED: {E.ANNOUNCED: S.OFFERED, E.HANDED: S.GIVEN, E.WITHDRAWN: S.ENDED, E.REFUSE: S.ENDED, E.BROKEN: S.ENDED},
    S.OFFERED: {E.GRANT: S.SENDING, E.WITHDRAWN: S.ENDED, E.REFUSE: S.ENDED, E.BROKEN: S.ENDED},
    S.GIVEN: {E.DONE: S.ENDED, E.WITHDRAWN: S.ENDED, E.REFUSE: S.ENDED, E.BROKEN: S.ENDED},
    # What the peer has memory for arrives in finite time, so a withdrawal comes too late.
    S.SENDING: {E.LAST: S.SENT, E.WITHDRAWN: S.SENDING, E.BROKEN: S.ENDED},
    S.SENT: {E.DONE: S.ENDED, E.WITHDRAWN: S.SENT, E.BROKEN: S.ENDED},
}

RECEIVER: Final[dict[HalfState, dict[Event, HalfState]]] = {
    S.EXPECTED: {E.OFFER: S.READY, E.FAIL: S.ENDED, E.WITHDRAWN: S.ENDED, E.BROKEN: S.ENDED},
    S.ARRIVED: {E.EXPECT: S.READY, E.FAIL: S.ENDED, E.WITHDRAWN: S.ENDED, E.BROKEN: S.ENDED},
    S.READY: {
        E.RECEIVE: S.FILLING,
        E.SMALL_TAKEN: S.ENDED,
        E.FAIL: S.FAILED,
        E.WITHDRAWN: S.ENDED,
        E.BROKEN: S.FAILED,
    },
    S.FAILED: {E.RECEIVE: S.ENDED, E.SMALL_TAKEN: S.ENDED, E.WITHDRAWN: S.ENDED, E.BROKEN: S.FAILED},
    S.FILLING: {E.LAST: S.ENDED, E.FAIL: S.ENDED, E.WITHDRAWN: S.FILLING, E.BROKEN: S.ENDED},
}

HEARD: Final = frozenset({E.OFFER, E.GRANT, E.DONE, E.FAIL, E.REFUSE})


class Violation(ProtocolError):  # noqa: N818 - named for the event
    """The peer has sent what no peer sends. The connection is cut."""


@dataclass(slots=True, eq=False)
class TcpHalf:
    """One half. `told` is the machine's callback that is due, None while it is the machine's turn. `view`: the bytes of
    the machine's array, or of a small value; `moved` of them are through. While a thread reads or writes them (`busy`),
    nothing is told: that thread does so, with `error`. `counted`: its bytes in the window of small values.
    `into`: of a receiver that had memory before the offer, its array, or what merges; `fault`: a piece could not be."""

    transfer: bytes
    state: HalfState
    meta: Meta
    told: Told | None = None
    number: int = 0
    view: Any = None
    moved: int = 0
    counted: int = 0
    busy: bool = False
    error: TensordError | None = None
    into: Into = None
    fault: TensordError | None = None
    table: dict[HalfState, dict[Event, HalfState]] = field(default_factory=lambda: SENDER)

    def on(self, event: Event) -> None:
        """Go where the table says."""
        after = self.table[self.state].get(event)
        if after is None:
            text = f"{event.name} while {self.state.name} of transfer {self.transfer.hex()}"
            raise (Violation if event in HEARD or event is Event.LAST else ProtocolError)(text)
        self.state = after

    def call(self, error: TensordError | None) -> list[Call]:
        """The call that is due, now or, while it is busy, later."""
        if self.busy:
            self.error = error
            return []
        told, self.told = self.told, None
        return [] if told is None else [(told, error)]

    def let_go(self) -> list[Call]:
        """The thread that was busy with its bytes is no longer: the call that had to wait."""
        self.busy = False
        return self.call(self.error) if self.state is HalfState.ENDED else []


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array, in the order of its rows; a copy only if they do not lie like that."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bytes_: Any = flat.view(np.uint8)
    return memoryview(bytes_) if flat.size else memoryview(b"")
