"""The interface to the data of a page: a daemon, or a trace.

All methods block. One thread makes the calls, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ....interpreter.errors import TensordError


class UnknownError(TensordError):
    """Something that was asked for does not exist."""


class Polled(NamedTuple):
    """A view as JSON, and the seconds until the next one may be asked for."""

    view: str
    pause: float


class ViewSource(Protocol):
    """A daemon or a trace. Its methods raise `UnknownError`, or the errors of a daemon's answers."""

    live: bool

    def poll(self) -> Polled:
        """The news since the last poll."""

    def history(self) -> str | None:
        """A view of everything known so far, for a new page; None if there is nothing."""

    def refresh(self) -> None:
        """Ask for news, unless that was done a moment ago: without an open page there is no poller."""

    def rest(self) -> None:
        """Note that no page is open any more."""

    def about(self) -> Mapping[str, Any]:
        """The facts that a page gets before all views."""

    def why(self, instruction: int) -> str: ...

    def tensor(self, id_: int, session: int) -> Mapping[str, Any]: ...

    def advice(self) -> Mapping[str, Any]: ...
