"""What is shown: a daemon, or a trace. All methods wait; one thread calls them, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ....interpreter.errors import TensordError


class UnknownError(TensordError):
    """Something that was asked for is not there."""


class Polled(NamedTuple):
    """A view as JSON, and the seconds until the next one may be asked for."""

    view: str
    pause: float


class ViewSource(Protocol):
    """What is shown. Its methods raise `UnknownError`, or what else a daemon's answers raise."""

    live: bool

    def poll(self) -> Polled:
        """What is new."""

    def history(self) -> str | None:
        """A view of what is known by now, for a page that begins to look; None if nothing is."""

    def refresh(self) -> None:
        """Ask for what is new, unless that was done a moment ago: nobody polls."""

    def rest(self) -> None:
        """Nobody looks any more."""

    def about(self) -> Mapping[str, Any]:
        """What a page is told in front of all views."""

    def why(self, instruction: int) -> str: ...

    def tensor(self, id_: int, session: int) -> Mapping[str, Any]: ...

    def advice(self) -> Mapping[str, Any]: ...
