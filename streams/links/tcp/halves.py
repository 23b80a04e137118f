"""The halves of a transfer: their states, and every event that may happen in each.

The sender's half begins as QUEUED with the machine's offer. The receiver's begins as EXPECTED with the machine's call,
or as ARRIVED with the peer's offer. An event that is not in the table is a bug, or a `Violation` if the peer caused it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import numpy as np

from ....interpreter.errors import ProtocolError, TensordError
from ....interpreter.types.meta import Meta
from ..link import Array, Into, OnEnd

Call: TypeAlias = tuple[OnEnd, TensordError | None]


class ByIdentity(Enum):
    """An enumeration whose members are often looked up in tables: the hash of an Enum calls a Python function."""

    __hash__ = object.__hash__


class HalfState(ByIdentity):
    """The state of a half."""

    QUEUED = auto()  # offered by the machine; not sent, since there is no connection yet
    OFFERED = auto()  # the peer knows of the offer
    GIVEN = auto()  # small: the peer's link has the bytes, and the peer's machine has not taken them
    SENDING = auto()  # the peer has memory; pieces go out
    SENT = auto()  # the writer has all pieces
    EXPECTED = auto()  # the machine waits for an offer
    ARRIVED = auto()  # the peer's offer waits for the machine
    READY = auto()  # both; the machine is about to provide memory
    FAILED = auto()  # as READY, and the machine gets the error once it has memory
    FILLING = auto()  # pieces arrive
    ENDED = auto()


class HalfEvent(ByIdentity):
    """An event of a half. `PEER_EVENTS` has the events that the peer causes."""

    ANNOUNCED = auto()  # the offer was put in a frame
    HANDED = auto()  # the small value was put in a frame
    LAST = auto()  # the writer has taken the last piece, or the last piece has come
    WITHDRAWN = auto()  # the machine has failed or refused the half
    BROKEN = auto()  # the connection has broken
    EXPECT = auto()
    RECEIVE = auto()
    SMALL_TAKEN = auto()  # `RECEIVE` of a value whose bytes have arrived
    OFFER = auto()
    GRANT = auto()
    DONE = auto()
    FAIL = auto()
    REFUSE = auto()


S, E = HalfState, HalfEvent

SENDER: Final[dict[HalfState, dict[HalfEvent, HalfState]]] = {
    S.QUEUED: {E.ANNOUNCED: S.OFFERED, E.HANDED: S.GIVEN, E.WITHDRAWN: S.ENDED, E.REFUSE: S.ENDED, E.BROKEN: S.ENDED},
    S.OFFERED: {E.GRANT: S.SENDING, E.WITHDRAWN: S.ENDED, E.REFUSE: S.ENDED, E.BROKEN: S.ENDED},
    S.GIVEN: {E.DONE: S.ENDED, E.WITHDRAWN: S.ENDED, E.REFUSE: S.ENDED, E.BROKEN: S.ENDED},
    # Once the peer has memory, the value arrives in finite time, so a withdrawal comes too late.
    S.SENDING: {E.LAST: S.SENT, E.WITHDRAWN: S.SENDING, E.BROKEN: S.ENDED},
    S.SENT: {E.DONE: S.ENDED, E.WITHDRAWN: S.SENT, E.BROKEN: S.ENDED},
}

RECEIVER: Final[dict[HalfState, dict[HalfEvent, HalfState]]] = {
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

PEER_EVENTS: Final = frozenset({E.OFFER, E.GRANT, E.DONE, E.FAIL, E.REFUSE})


class Violation(ProtocolError):  # noqa: N818 - named for the event
    """The peer has sent something that the protocol forbids. The connection is cut."""


@dataclass(slots=True, eq=False)
class TcpHalf:
    """One half. `on_end`: the machine's next callback; None while the machine has to act. `view`: the bytes of the
    machine's array, or of a small value; `moved` of them were sent or received. While a thread reads or writes them
    (`busy`), no callback is called; that thread calls it afterwards, with `error`. `counted`: the half's bytes in the
    window of small values. `into`: of a receiver that had memory before the offer, its array or merge function;
    `fault`: a failed merge."""

    transfer: bytes
    state: HalfState
    meta: Meta
    on_end: OnEnd | None = None
    number: int = 0
    view: Any = None
    moved: int = 0
    counted: int = 0
    busy: bool = False
    error: TensordError | None = None
    into: Into = None
    fault: TensordError | None = None
    table: dict[HalfState, dict[HalfEvent, HalfState]] = field(default_factory=lambda: SENDER)

    def on(self, event: HalfEvent) -> None:
        """Change the state as the table says."""
        after = self.table[self.state].get(event)
        if after is None:
            text = f"{event.name} while {self.state.name} of transfer {self.transfer.hex()}"
            raise (Violation if event in PEER_EVENTS or event is HalfEvent.LAST else ProtocolError)(text)
        self.state = after

    def call(self, error: TensordError | None) -> list[Call]:
        """The due call, now, or after the thread that is busy."""
        if self.busy:
            self.error = error
            return []
        on_end, self.on_end = self.on_end, None
        return [] if on_end is None else [(on_end, error)]

    def let_go(self) -> list[Call]:
        """The thread that was busy with the bytes is done; returns the call that had to wait."""
        self.busy = False
        return self.call(self.error) if self.state is HalfState.ENDED else []


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array in row-major order; a copy only if the array is not laid out like that."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bytes_: Any = flat.view(np.uint8)
    return memoryview(bytes_) if flat.size else memoryview(b"")
