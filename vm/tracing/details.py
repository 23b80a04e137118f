"""How many runs are timed, call by call, for whoever looks: each `every`th run of a segment, whichever session's it is.

A session may ask for that as long as it lives, as a recording does. The one that wants most of them has its will.
"""

from __future__ import annotations

from ..model.session import VmSession


class Details:
    """Who wants to see how much. `every`: of how many runs one is timed; 0 for none."""

    def __init__(self) -> None:
        self.every = 0
        self._wanted: dict[VmSession, int] = {}

    def ask(self, session: VmSession, every: int) -> None:
        """A session wants to see one of so many; 0: none any more."""
        self._wanted[session] = every
        self._settle()

    def forget(self, session: VmSession) -> None:
        """A session ends."""
        if self._wanted.pop(session, None) is not None:
            self._settle()

    def _settle(self) -> None:
        self._wanted = {session: every for session, every in self._wanted.items() if every}
        self.every = min(self._wanted.values(), default=0)
