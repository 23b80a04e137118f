"""When to try again to reach a daemon whose connection is lost, for as long as the daemon keeps the session.

The transport (`remote`) calls `begin` once a connection is lost, and in each round of its background thread `attempt`,
if one `is_due`. An attempt only sends HELLO, with the session's token and the number of messages received so far. If
WELCOME comes, the transport calls `succeeded`; if not, the next attempt replaces this one. The time for an attempt
doubles from `FIRST_PATIENCE` up to `MAX_PATIENCE`, and only a success resets it: connections that break again
and again are tried more rarely. Once the lease is over, `attempt` returns the error that ends the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...interpreter.errors import ConnectionLost
from .link import DealerSocket

FIRST_PATIENCE: Final = 0.5  # seconds until the first attempt is given up; each further attempt has twice as many
MAX_PATIENCE: Final = 5.0


class Reconnection:
    """The attempts of one session. `lease`: seconds for which the daemon keeps it; with 0 the transport makes no
    attempt. `bell`: a file descriptor that wakes a thread which polls the connection.

    All methods but `report_loss` are called with the transport's lock. `tell` is called each time the connection is
    lost and may come back, on the background thread and without a lock.
    """

    def __init__(self, link: DealerSocket, lease: float, bell: int) -> None:
        self.lease = lease
        self.tell: Callable[[], None] = lambda: None
        self._link = link
        self._bell = bell
        self._reported = False  # the loss was told
        self._away_since = 0.0
        self._retry_at = 0.0  # when the next attempt is due
        self._patience = FIRST_PATIENCE / 2  # seconds of the latest attempt; each attempt first doubles them
        self._obstacle = ""  # the reason why the latest attempt could not begin

    def begin(self, now: float) -> None:
        """Note that the connection is lost."""
        self._away_since = now
        self._retry_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether the next attempt is due."""
        return now >= self._retry_at

    def attempt(self, now: float, received: int) -> ConnectionLost | None:
        """Open a new connection and say HELLO with the session's token; returns the error once the lease is over.

        `received`: how many numbered messages of the daemon have arrived, so that it sends the others again.
        """
        self._patience = min(2 * self._patience, MAX_PATIENCE)  # a handshake takes time, too
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
        """Note that the session is resumed: the next attempts begin with `FIRST_PATIENCE`."""
        self._patience = FIRST_PATIENCE / 2

    def report_loss(self, *, away: bool) -> None:
        """Call `tell` if the connection is `away` (lost, but may come back) for the first time since it was there."""
        reported, self._reported = self._reported, away
        if away and not reported:
            self.tell()
