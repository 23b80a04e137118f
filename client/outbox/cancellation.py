"""Cancels a session's instructions, and accepts instructions again."""

from __future__ import annotations

import threading

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.wire.messages import Restart, encode_message
from .current import refuse_captured
from .outbox import Outbox


class CancellationCount:
    """Counts a session's cancellations; `era` also counts its restarts. Each of them invalidates remembered values."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._cancels = 0
        self.era = 0
        self._lock = threading.RLock()  # a signal handler may cancel, too

    def cancel(self) -> None:
        """Cancel pending instructions, and those issued until `restart`. Takes effect before messages sent earlier."""
        refuse_captured(self._outbox, "nothing can be cancelled")
        transport = self._outbox.transport
        with SHIELD:
            with self._lock:
                self._cancels += 1
                self.era += 1
            transport.cancel()

    def restart(self) -> None:
        """Accept instructions again. The message carries the number of cancellations so far, so a later cancellation
        stays in force."""
        with self._outbox.lock, SHIELD:
            self._outbox.refuse_inside()
            self._outbox.messages.append(encode_message(Restart(self._cancels)))
            with self._lock:
                self.era += 1
        self._outbox.flush()
