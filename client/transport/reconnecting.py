"""Attempts to resume a session whose connection to its daemon is lost, for as long as the daemon keeps the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...interpreter.errors import ConnectionLost
from .link import DealerSocket

RETRY: Final = 0.5  # seconds until the first attempt is given up; each further attempt has twice as many
LONGEST_RETRY: Final = 5.0


class Reconnection:
    """The attempts of one session. `lease`: seconds for which the daemon keeps it, 0 if it keeps none.

    All methods but `report_loss` are called with the transport's lock. `tell` is called each time the connection is
    lost and may come back, on the background thread and without a lock.
    """

    def __init__(self, link: DealerSocket, lease: float, bell: int) -> None:
        self.lease = lease
        self.tell: Callable[[], None] = do_nothing
        self._link = link
        self._bell = bell
        self._reported = False
        self._away_since = 0.0
        self._retry_at = 0.0
        self._patience = RETRY / 2
        self._obstacle = ""  # the reason why the latest attempt could not begin

    def begin(self, now: float) -> None:
        """Note that the connection is lost."""
        self._away_since = now
        self._retry_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether the next attempt is due."""
        return now >= self._retry_at

    def attempt(self, now: float, received: int) -> ConnectionLost | None:
        """Open a new connection and say HELLO with the session's token; returns the error once the lease is over."""
        self._patience = min(2 * self._patience, LONGEST_RETRY)  # a handshake takes time, too
        self._retry_at = now + self._patience
        if now - self._away_since > self.lease:
            return ConnectionLost(f"the daemon at {self._link.address} has been out of reach too long{self._obstacle}")
        try:
            self._link.reopen()
        except OSError as error:  # out of descriptors, or the host's name is not known at the moment
            self._obstacle = f": {error.strerror or error}"
            return None
        self._obstacle = ""
        self._link.watch(self._bell)
        self._link.hello(self._link.welcome.token, received)
        return None

    def succeeded(self) -> None:
        """Note that the session is resumed: the next attempts begin with the shortest patience."""
        self._patience = RETRY / 2

    def report_loss(self, *, away: bool) -> None:
        """Report once that the connection is lost and may come back."""
        reported, self._reported = self._reported, away
        if away and not reported:
            self.tell()


def do_nothing() -> None:
    """Stand in for a callback without arguments."""
