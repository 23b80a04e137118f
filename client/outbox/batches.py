"""Batches with limits: those of a closed session, and of an atomic block."""

from __future__ import annotations

from typing import Any

from ...interpreter.errors import ProtocolError
from ...interpreter.wire.limits import Limits
from ..locations import user_line
from ..transport.interface import CLOSED, session_closed

GROUP = Limits().batch  # messages in an atomic group


class Closed(list[list[Any]]):
    """The messages of a closed session, which takes no more."""

    def __init__(self, why: str = CLOSED) -> None:
        super().__init__()
        self.why = why

    def append(self, _message: list[Any]) -> None:
        """Raise ConnectionLost at the user's line."""
        raise session_closed(self.why)


class Group(list[list[Any]]):
    """The messages of an atomic block: they leave together, so their number is limited."""

    def append(self, message: list[Any]) -> None:
        """Add a message. If the group is full, raise ProtocolError at the user's line instead."""
        if len(self) >= GROUP:
            full = f"an atomic block holds at most {GROUP} messages; make several of it"
            raise ProtocolError(full, location=user_line())
        super().append(message)
