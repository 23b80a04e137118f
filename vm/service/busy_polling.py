"""Busy polling: how long the loop looks for news before it sleeps.

To sleep and to be woken up takes longer than most requests, above all on a virtual machine, whose processor is given
away meanwhile and comes back with cold caches. A client that asks question after question sends the next one soon after
the answer: a loop that looks a little longer answers in half the time, at no more processor time. A loop that looks in
vain takes a processor from others.

So the loop polls only where that has paid: as long as news came while it polled. After polling in vain it sleeps; after
some naps that were short enough for polling to have helped, it tries again, and each try in vain doubles their number.
An idle daemon never polls. Source: Linux's haltpoll governor, which does the same for a guest's processor.
"""

from __future__ import annotations

import os
from typing import Final

NEAR: Final = 4  # times the limit: so short a nap might have been none, since polling makes the other side faster
MOST: Final = 64  # short naps between two tries


class BusyPolling:
    """Decides on it. `limit`: nanoseconds of polling before a sleep; 0 never polls, nor does a single processor."""

    def __init__(self, limit: int) -> None:
        self._limit = limit if len(os.sched_getaffinity(0)) > 1 else 0
        self._penalty = 1  # short naps after polling in vain, until it is tried again
        self._naps = 1  # those that are still to come

    def budget(self) -> int:
        """Nanoseconds to poll now."""
        return 0 if self._naps else self._limit

    def succeeded(self) -> None:
        """News came while the loop polled."""
        self._penalty = 1

    def slept(self, nanoseconds: int, *, polled: bool) -> None:
        """The loop has slept for so long, after polling in vain or at once."""
        if polled:
            self._naps = self._penalty
            self._penalty = min(2 * self._penalty, MOST)
        elif self._naps and nanoseconds < NEAR * self._limit:
            self._naps -= 1
