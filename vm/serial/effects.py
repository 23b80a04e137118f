"""Side effects of a serial machine, in the order of their chains.

A chain is a value that side effects read and write; it keeps the errors of the side effect that stopped it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CancelledError, ProtocolError, TensordError
from ...interpreter.wire.messages import Chain, Effect
from .state import State
from .values import Host, SerialSession, Value, denial, describe, refuse_cancelled, tensor_of


class Effects:
    """The handlers of messages about side effects."""

    def __init__(self, state: State) -> None:
        self.state = state

    def chain(self, session: SerialSession, message: Chain) -> None:
        """A chain is a value that side effects read and write."""
        session.chains[message.chain] = Value(())

    def effect(self, session: SerialSession, message: Effect) -> None:
        """Call the callback, unless an operand or an earlier side effect of the chain failed."""
        ids, chain, callback, request, location, tolerant, _ = message
        try:
            refuse_cancelled(session)
            link = session.chains.get(chain)
            if link is None:
                raise ProtocolError("a side effect needs a chain")
            operands = [tensor_of(session, id_).value for id_ in ids]
            read = [link] if tolerant else [*operands, link]
        except TensordError as error:
            self.refuse(session, error, chain, request, location)
            return
        errors = tuple(dict.fromkeys(error for value in read for error in value.errors))
        self.state.mark(link, errors, stopped=any(value.array is None for value in read))
        arrays = [value.first if value.array is None else value.array for value in operands]
        if link.array is not None and callback is not None:
            self.call_back(session, callback, arrays, link, location)
        session.answer(request, Value(arrays, errors) if callback is None and link.array is not None else link)

    def refuse(self, session: SerialSession, error: TensordError, chain: int, request: int, location: int) -> None:
        """Refuse a side effect, which stops its chain unless the session was cancelled."""
        self.state.deny(session, error, request, location, "effect")
        link = session.chains.get(chain)
        if link is not None and not isinstance(error, CancelledError):
            refused = denial(session, error, location, "effect").errors
            self.state.mark(link, (*link.errors, *refused), stopped=True)

    def call_back(
        self,
        session: SerialSession,
        callback: Callable[..., Any],
        arrays: Sequence[Host | TensordError],
        link: Value,
        location: int,
    ) -> None:
        """Call the user's function; an exception stops the chain."""
        self.state.ids += 1
        try:
            with SHIELD.calling:
                callback(*[one if isinstance(one, TensordError) else one.copy() for one in arrays])
        except BaseException as error:
            link.array = None
            link.add(describe(session, error, "effect", "effect", location, self.state.ids))
            self.state.tell(session, link.first)
