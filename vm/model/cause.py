"""The cause of what placement plans: a session that asks for it, at a location of that session's program."""

from __future__ import annotations

from .session import VmSession


class Cause:
    """`location`: its number in the session."""

    __slots__ = ("location", "session")

    def __init__(self, session: VmSession, location: int) -> None:
        self.session = session
        self.location = location
