"""What becomes of messages that cannot be admitted: whoever asked is told, else it is reported; nobody else notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..interpreter.errors import CancelledError, ProtocolError, TensordError
from ..interpreter.forms import check_form, field_of, outputs_of
from ..interpreter.messages import MessageKind

if TYPE_CHECKING:
    from .engine import Engine
    from .session import VmSession


def refuse(engine: Engine, session: VmSession, message: Any, failure: Exception) -> None:
    """Admitting the message raised: it is damaged, or the fault is ours. What it was to define is poisoned."""
    error = describe(message, failure)
    label = name_of(message)
    location = field_of(message, "location") or 0
    outputs = outputs_of(message)
    if outputs:
        engine.admission.reject(session, error, outputs, location, label)
    else:
        deny(engine, session, error, field_of(message, "request") or 0, location, label)


def deny(engine: Engine, session: VmSession, error: TensordError, request: int, location: int, label: str) -> None:
    """Tell who asked, with op and line; report the error if nobody did."""
    error = error.reraisable()
    error.op = error.op or label
    error.location = error.location or session.where(location)
    if request:
        session.reply(request, None, error)
    elif not isinstance(error, CancelledError):
        engine.tell(session, error)


def describe(message: Any, failure: Exception) -> TensordError:
    """The failure as an error for the client."""
    try:
        check_form(message)
    except ProtocolError as damage:
        return damage
    if isinstance(failure, TensordError):
        return failure
    error = ProtocolError(f"a {name_of(message)} message could not be admitted: {type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error


def name_of(message: Sequence[Any]) -> str:
    """The kind of a message, for people."""
    try:
        return MessageKind(message[0]).name.lower()
    except (ValueError, TypeError, LookupError):
        return "message"
