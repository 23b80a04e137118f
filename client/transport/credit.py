"""The credit of a session on a daemon: the limit of its unfinished messages and bytes.

Ops wait while more than a window is unfinished, until at most three quarters of it are. A lost connection counts as
credit, so that no thread waits for it.
"""

from __future__ import annotations

from .incoming import Incoming
from .outgoing import OutgoingBatches


class Credit:
    """Compares sent with consumed data. `window` counts messages, `nbytes` bytes of uploads."""

    def __init__(self, window: int, nbytes: int, outgoing: OutgoingBatches, incoming: Incoming) -> None:
        self.window = window
        self._nbytes = nbytes
        self._outgoing = outgoing
        self._incoming = incoming

    def has(self, messages: float = 1.0, nbytes: float = 1.0) -> bool:
        """Return whether at most that share of the window is unfinished. True once the connection is lost."""
        outgoing, incoming = self._outgoing, self._incoming
        if incoming.lost is not None:
            return True
        unread = outgoing.sent_bytes - incoming.consumed_bytes
        return outgoing.sent - incoming.consumed <= self.window * messages and unread <= self._nbytes * nbytes

    def is_enough(self) -> bool:
        """Return whether a session that has waited for credit may go on.

        The daemon reports every half window, and still has the other half to do.
        """
        return self.has(messages=0.75)
