"""Side effects on the serial engine, in the order of their chains.

A chain is a value that side effects read and write. It keeps the errors of the side effect that stopped it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CancelledError, KernelError, ProtocolError, TensordError
from ...interpreter.types.device_names import kind_of
from ...interpreter.types.meta import Meta
from ...interpreter.wire.host_calls import LABEL, metas_of, refusal_of
from ...interpreter.wire.messages import Chain, Effect
from .state import SerialState
from .values import (
    Errors,
    Host,
    SerialSession,
    SerialTensor,
    Value,
    check_new,
    define,
    denial,
    describe,
    refuse_cancelled,
    tensor_of,
)


class SerialEffects:
    """The handlers of messages about side effects."""

    def __init__(self, state: SerialState) -> None:
        self.state = state

    def chain(self, session: SerialSession, message: Chain) -> None:
        """Make a chain."""
        session.chains[message.chain] = Value(())

    def effect(self, session: SerialSession, message: Effect) -> None:
        """Call the callback, unless an operand or an earlier side effect of the chain failed."""
        ids, chain, callback, request, location, tolerant, _, outputs, metas, _ = message
        if outputs or metas:
            self.host_call(session, message)
            return
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

    def host_call(self, session: SerialSession, message: Effect) -> None:
        """Call the function, unless an operand failed. Its results become tensors."""
        state, metas = self.state, []
        home: str | None = None
        try:
            refuse_cancelled(session)
            check_new(session, message.outputs)
            metas = metas_of(message)
            if not any(kind_of(name) == "cpu" for name in state.devices):
                raise ProtocolError("a host call needs a cpu device, and this machine has none")
            home = state.device_of(message.device)
            operands = [tensor_of(session, id_).value for id_ in message.ids]
        except TensordError as error:
            state.reject(session, error, message.outputs, message.location, LABEL, tuple(metas), home)
            return
        errors = tuple(dict.fromkeys(error for value in operands for error in value.errors))
        values = self.returned(session, message, metas, operands, errors)
        for id_, meta, value in zip(message.outputs, metas, values, strict=True):
            define(session, id_, SerialTensor(value, meta, home))

    def returned(
        self, session: SerialSession, message: Effect, metas: Sequence[Meta], operands: Sequence[Value], errors: Errors
    ) -> list[Value]:
        """The results of the function, or in their place the errors of the operands or of the function."""
        arrays = [value.array for value in operands]
        if any(array is None for array in arrays):
            return [Value(None, errors) for _ in metas]
        self.state.ids += 1
        try:
            found = checked(metas, self.call_function(message, arrays))
            return [Value(np.array(array)) for array in found]
        except BaseException as error:
            failure = describe(session, error, LABEL, LABEL, message.location, self.state.ids)
            self.state.report_error(session, failure)
            return [Value(None, (failure,)) for _ in metas]

    def call_function(self, message: Effect, arrays: Sequence[Any]) -> Sequence[Any]:
        """Call the message's function. Tests override this."""
        function: Any = message.callback
        with SHIELD.calling:
            return list(function(*[array.copy() for array in arrays]))

    def refuse(self, session: SerialSession, error: TensordError, chain: int, request: int, location: int) -> None:
        """Refuse a side effect. This stops its chain, unless the session was cancelled."""
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
        """Call the user's function. An exception stops the chain."""
        self.state.ids += 1
        try:
            with SHIELD.calling:
                callback(*[one if isinstance(one, TensordError) else one.copy() for one in arrays])
        except BaseException as error:
            link.array = None
            link.add(describe(session, error, "effect", "effect", location, self.state.ids))
            self.state.report_error(session, link.first)


def checked(metas: Sequence[Meta], arrays: Sequence[Any]) -> Sequence[Any]:
    """Check that arrays have these metas. KernelError if they do not."""
    why = refusal_of(metas, arrays)
    if why:
        raise KernelError(f"{LABEL}: {why}")
    return arrays
