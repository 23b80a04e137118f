"""Busy polling: how long the loop polls for messages and completions before it sleeps.

Sleeping and waking up takes longer than most requests, especially on a virtual machine, whose processor is given away
in the meantime and comes back with cold caches. A client that sends one request after another sends the next one soon
after the answer: a loop that polls for a moment answers in half the time, at no more processor time. A loop that polls
in vain takes a processor from others.

So the loop polls only as long as polling succeeds. After polling in vain it sleeps; after some sleeps so short that
polling would have helped, it polls again, and each poll in vain doubles that number. An idle daemon never polls.
Source: Linux's haltpoll governor, which does the same for a guest's processor.
"""

from __future__ import annotations

import os
from typing import Final

SHORT_SLEEP_FACTOR: Final = (
    4  # a sleep shorter than 4 limits counts as short, since polling would make the other side faster
)
MAX_PENALTY: Final = 64  # the most short sleeps between two attempts


class BusyPolling:
    """Decides when to poll. `limit`: nanoseconds of polling before a sleep; 0, or a single processor, never polls."""

    def __init__(self, limit: int) -> None:
        self._limit = limit if len(os.sched_getaffinity(0)) > 1 else 0
        self._penalty = 1  # short sleeps after the next poll in vain, before another attempt
        self._naps = 1  # short sleeps left before another attempt

    def budget(self) -> int:
        """Nanoseconds to poll now."""
        return 0 if self._naps else self._limit

    def succeeded(self) -> None:
        """Note that something arrived while the loop polled."""
        self._penalty = 1

    def slept(self, nanoseconds: int, *, polled: bool) -> None:
        """Note that the loop has slept. `polled`: it has polled in vain before."""
        if polled:
            self._naps = self._penalty
            self._penalty = min(2 * self._penalty, MAX_PENALTY)
        elif self._naps and nanoseconds < SHORT_SLEEP_FACTOR * self._limit:
            self._naps -= 1
