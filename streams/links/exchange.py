"""Links within one process: a table in which both halves of each transfer meet.

Theory of operation
    An exchange is the link of both ends. The half that comes first waits in the table, where the second one finds it.
    Once the receiver has memory, `carry` runs the copy; by default at once.

Guarantees
    As in `link`. Nothing is called under the lock. A transfer that is being copied can no longer be failed or refused;
    if the link is cut meanwhile, both halves get that error at the end of the copy.

Who owns what
    Any thread may call; the lock guards the table and the failures. `carry` decides which thread copies.

Rejected
    A table for each end, as on two machines with a socket between them: the same rules twice, and messages besides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...interpreter.errors import KernelError, MetadataError, ProtocolError, TensordError
from ...interpreter.types.meta import Meta
from .failures import TransferFailures
from .link import Array, Into, OnEnd

Carry: TypeAlias = Callable[[int, Callable[[], None]], None]  # runs a step that copies this number of bytes
Call: TypeAlias = tuple[OnEnd, TensordError | None]


@dataclass(slots=True)
class LocalHalf:
    """One half. `on_end`: the next callback; None while the machine has to act. `array`: of a receiver, its array or
    merge function, None before the receiver has one."""

    meta: Meta
    array: Into
    on_end: OnEnd | None

    def call(self, error: TensordError | None) -> list[Call]:
        """The next call, if one is due."""
        on_end, self.on_end = self.on_end, None
        return [] if on_end is None else [(on_end, error)]


@dataclass(slots=True)
class Transfer:
    """The halves of a transfer that have begun. `copying`: the bytes are being copied; `cut`: the error that then ends
    it."""

    sender: LocalHalf | None = None
    receiver: LocalHalf | None = None
    copying: bool = False
    cut: TensordError | None = None


def at_once(_nbytes: int, step: Callable[[], None]) -> None:
    """Run a step on the calling thread."""
    step()


class Exchange:
    """The link of two machines in one process, or of one machine to itself."""

    def __init__(self, carry: Carry = at_once) -> None:
        self._carry = carry
        self._lock = threading.Lock()
        self._open: dict[bytes, Transfer] = {}
        self._failed = TransferFailures()  # for halves that have not begun

    def offer(self, transfer: bytes, meta: Meta, array: Array, done: OnEnd) -> None:
        self._begin(transfer, LocalHalf(meta, array, done), sends=True)

    def expect(self, transfer: bytes, meta: Meta, offered: OnEnd) -> None:
        self._begin(transfer, LocalHalf(meta, None, offered), sends=False)

    def take(self, transfer: bytes, meta: Meta, into: Into, done: OnEnd) -> None:
        self._begin(transfer, LocalHalf(meta, into, done), sends=False)

    def receive(self, transfer: bytes, array: Array, done: OnEnd) -> None:
        with self._lock:
            error, state = self._failed.pop(transfer), self._open.get(transfer)
            sender, receiver = (None, None) if state is None else (state.sender, state.receiver)
            if state is not None and sender is not None and receiver is not None and receiver.on_end is None:
                receiver.array, receiver.on_end, state.copying = array, done, True
            elif error is None:
                error = ProtocolError(f"transfer {transfer.hex()} was not offered")
        if error is not None or sender is None or receiver is None:
            done(error)
        else:
            self._carry(receiver.meta.nbytes, lambda: self._copy(transfer, sender, receiver))

    def fail(self, transfer: bytes, error: TensordError) -> None:
        self._end(transfer, error, sends=True)

    def refuse(self, transfer: bytes, error: TensordError) -> None:
        self._end(transfer, error, sends=False)

    def cut(self, error: TensordError) -> None:
        """Break the connection: everything that has begun fails with the error, now or when its other half begins."""
        with self._lock:
            calls = [call for transfer in list(self._open) for call in self._drop(transfer, error)]
        make_calls(calls)

    def pending(self) -> int:
        """The number of transfers that have begun and not ended."""
        return len(self._open)

    # -- under the lock ------------------------------------------------------------------------------------------------

    def _begin(self, transfer: bytes, half: LocalHalf, *, sends: bool) -> None:
        """Enter a half, unless the other one has failed."""
        with self._lock:
            error = self._failed.pop(transfer)
            calls = self._enter(transfer, half, sends=sends) if error is None else half.call(error)
        make_calls(calls)

    def _enter(self, transfer: bytes, half: LocalHalf, *, sends: bool) -> list[Call]:
        state = self._open.setdefault(transfer, Transfer())
        if (state.sender if sends else state.receiver) is not None:
            return half.call(ProtocolError(f"transfer {transfer.hex()} is under way already"))
        if sends:
            state.sender = half
        else:
            state.receiver = half
        return self._meet(transfer, state)

    def _meet(self, transfer: bytes, state: Transfer) -> list[Call]:
        """Call the receiver back once both halves are there; fail both if their metas differ."""
        sender, receiver = state.sender, state.receiver
        if sender is None or receiver is None:
            return []
        if sender.meta == receiver.meta and receiver.array is None:
            return receiver.call(None)
        if sender.meta == receiver.meta:
            state.copying = True
            return [(lambda _: self._carry(receiver.meta.nbytes, lambda: self._copy(transfer, sender, receiver)), None)]
        del self._open[transfer]
        error = MetadataError(f"a {sender.meta} was sent where a {receiver.meta} was expected")
        return sender.call(error) + receiver.call(error)

    def _end(self, transfer: bytes, error: TensordError, *, sends: bool) -> None:
        """End a half, entered or not."""
        with self._lock:
            state = self._open.get(transfer)
            if state is not None:
                calls = self._drop(transfer, error, but=sends) if not state.copying else []
            else:
                calls = []
                if self._failed.pop(transfer) is None:  # otherwise both halves have failed
                    self._failed.keep(transfer, error)
        make_calls(calls)

    def _drop(self, transfer: bytes, error: TensordError, but: bool | None = None) -> list[Call]:
        """Take a transfer out of the table. A half that has no callback due gets the error when it begins. `but`: the
        half that ended the transfer, and gets no error: True for the sender's, False for the receiver's."""
        state = self._open[transfer]
        if state.copying:
            state.cut = error
            return []
        del self._open[transfer]
        calls: list[Call] = []
        for half, sends in ((state.sender, True), (state.receiver, False)):
            due = [] if half is None else half.call(error)
            calls += due
            if not due and but is not sends:
                self._failed.keep(transfer, error)
        return calls

    # -- without the lock ----------------------------------------------------------------------------------------------

    def _copy(self, transfer: bytes, sender: LocalHalf, receiver: LocalHalf) -> None:
        """Copy the bytes, and call both halves back."""
        failed: TensordError | None = None
        try:
            if callable(receiver.array):
                receiver.array(0, sender.array.reshape(-1))
            else:
                np.copyto(receiver.array, sender.array)
        except Exception as error:
            failed = KernelError(f"a value could not be copied: {type(error).__name__}: {error}")
        with self._lock:
            cut = self._open.pop(transfer).cut
            failed = failed or cut
            calls = receiver.call(failed) + sender.call(failed)
        make_calls(calls)


def make_calls(calls: list[Call]) -> None:
    """Make calls that became due under the lock."""
    for on_end, error in calls:
        on_end(error)
