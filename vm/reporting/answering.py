"""Rules of answers, for both engines: how a question is answered, its arguments checked, a tensor or an error
described.

Arguments come from clients, so each is checked before it is used. Answers are plain values, made of msgpack's types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from inspect import signature
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.fields import MAX_INT64

T = TypeVar("T")

MAX_ROWS = 10_000  # rows of one answer


class ClientInfo(NamedTuple):
    """A session's client, as the socket front end knows it.

    `kind`: "ipc", "tcp" or "local"; `age`: of the connection, in seconds; `pending`: messages received but not
    admitted; `consumed`: messages admitted so far.
    """

    name: str
    pid: int
    uid: int
    kind: str
    age: float
    state: str = "open"
    pending: int = 0
    consumed: int = 0


def answer_with(answers: Mapping[str, Callable[..., Any]], what: object, arguments: object, context: Any) -> Any:
    """The answer to one question.

    `context`: the machine and the asking session, the first argument of the answering function.

    ProtocolError if the question is unknown, or its arguments do not fit.
    """
    function = answers.get(what) if type(what) is str else None
    if function is None:
        raise ProtocolError(f"unknown question {what!r:.40}; questions: {', '.join(answers)}")
    if not isinstance(arguments, list | tuple):
        raise ProtocolError(f"the arguments of {what} are a list")
    try:
        signature(function).bind(context, *arguments)
    except TypeError as error:
        raise ProtocolError(f"{what}: these arguments do not fit ({error})") from None
    return function(context, *arguments)


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """The items in tuples of at most `size`, for answers that are given in slices."""
    rest = iter(items)
    while some := tuple(islice(rest, size)):
        yield some


def natural(name: str, value: object) -> int:
    """Check that a value is an integer from 0 on. ProtocolError if it is not."""
    if type(value) is not int or not 0 <= value <= MAX_INT64:
        raise ProtocolError(f"{name} is {value!r:.40}, not a natural number")
    return value


def device_or_any(device: object, devices: Collection[str]) -> str:
    """Check that a value is the name of a device, or "" for all devices. ProtocolError if it is not."""
    if type(device) is not str:
        raise ProtocolError("the device is a name")
    name = own_name(device, devices) if device else ""
    if name and name not in devices:
        raise ProtocolError(f"unknown device {device!r:.40}; devices: {', '.join(devices)}")
    return name


def session_or_any(session: object, sessions: Collection[int]) -> int:
    """Check that a value is the number of an open session, or 0 for all sessions. ProtocolError if it is not."""
    number = natural("session", session)
    if number and number not in sessions:
        raise ProtocolError(f"unknown session {number}; open sessions: {', '.join(map(str, list(sessions)[:10]))}")
    return number


def error_row(error: TensordError) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": error.message,
        "op": error.op,
        "instruction": error.instruction,
        "location": error.location,
    }


def shape_and_dtype(meta: Meta | None) -> dict[str, Any]:
    """The shape and the dtype of a meta; both are None while the meta is pending."""
    return {
        "shape": None if meta is None else list(meta.shape),
        "dtype": None if meta is None else meta.dtype.name,
    }


def properties(meta: Meta | None, home: str, residency: Mapping[str, str], holders: int) -> dict[str, Any]:
    """The properties and the residency of a tensor; shape, dtype and bytes are None while its meta is pending."""
    return {
        **shape_and_dtype(meta),
        "bytes": None if meta is None else meta.nbytes,
        "home": home,
        "residency": residency,
        "holders": holders,
    }


def state_of(error: TensordError | None, meta: Meta | None, *, ready: bool) -> dict[str, Any]:
    """The state of a tensor ("ready", "pending" or "failed"), its error, and its meta."""
    state = "failed" if error is not None else "ready" if ready else "pending"
    return {"state": state, "error": error_text(error), **shape_and_dtype(meta)}


def error_text(error: TensordError | None) -> str:
    """The type and the message of an error; "" if there is no error."""
    return "" if error is None else f"{type(error).__name__}: {error}"
