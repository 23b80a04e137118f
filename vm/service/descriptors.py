"""How the daemon shares out its descriptors, so that it never runs out of them: libzmq would abort the process.

Each use has a share of what is left once the daemon listens. Beyond its share,

- a block of memory is private, an upload's file is closed once it is mapped, and results of both travel in frames;
- a session is refused, with an error that says what to do;
- of the connections without a HELLO, the oldest are cut.

The rest is for moments: a file that is opened to be mapped, the log when it is rotated, and connections that libzmq
accepts before the daemon's thread hears of them. Those are at most `UNREAD` per listener, so with a limit of some 1,700
for one listener no burst of connections can take the last descriptor. A daemon with less says so in its log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...interpreter.wire.descriptors import descriptor_limit, descriptors_open
from .connections.listener import UNREAD
from .process.errors import StartError

LEAST: Final = 128  # descriptors that the daemon needs
MOMENTS: Final = 64  # descriptors, beside those of a burst of connections
MORE: Final = "run ulimit -n 4096, or set LimitNOFILE= in the unit"


class Shares(NamedTuple):
    """How many descriptors segments, sessions, and connections without a HELLO may have.

    `short`: how much higher the limit would have to be for any burst of connections to fit; 0 if it fits.
    """

    segments: int
    sessions: int
    unauthenticated: int
    short: int


def require_least() -> None:
    """StartError if the process may not have enough descriptors. Before the first socket: libzmq would abort."""
    limit = descriptor_limit()
    if limit < LEAST:
        raise StartError(f"the limit of open files is {limit}, and the daemon needs {LEAST} at the least: {MORE}")


def share_out(listeners: int) -> Shares:
    """The shares of what is left. Called once everything is open that the daemon always has open."""
    taken, limit = descriptors_open(), descriptor_limit()
    spare = limit - taken
    if spare < LEAST // 2:
        raise StartError(f"{taken} of {limit} descriptors are open at the start, which leaves too few: {MORE}")
    burst = listeners * UNREAD + MOMENTS
    short = max(3 * burst // 2 - spare, 0)
    shared = spare if short else spare - burst
    return Shares(shared // 2, shared // 4, shared // 8, short)
