"""Lists of messages with limits: of a closed session, and of an atomic block."""

from __future__ import annotations

from typing import Any

from ...interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ...interpreter.wire.limits import Limits
from ..locations.locations import located, user_line
from ..transport.interface import CLOSED

GROUP = Limits().batch  # messages in an atomic group


class AtomicGroup(list[list[Any]]):
    """The messages of an atomic block. They are sent together, so their number is limited."""

    def append(self, message: list[Any]) -> None:
        """Add a message. If the group is full, raise ProtocolError at the user's line instead."""
        if len(self) >= GROUP:
            raise full()
        super().append(message)

    def add(self, messages: list[list[Any]]) -> None:
        """Add all messages, or none of them."""
        if len(self) + len(messages) > GROUP:
            raise full()
        self.extend(messages)


def full() -> ProtocolError:
    return ProtocolError(f"an atomic block holds at most {GROUP} messages; split it into several", location=user_line())


class Closed(list[list[Any]]):
    """The messages of a session that has ended, which accepts no more; `error` says why it has ended."""

    def __init__(self, error: TensordError | None = None) -> None:
        super().__init__()
        self.error = error or ConnectionLost(CLOSED)

    def append(self, _message: list[Any]) -> None:
        """Raise the error at the user's line."""
        raise located(self.error.reraisable())
