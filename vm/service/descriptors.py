"""The shares of segments, sessions and peers in the daemon's file descriptors, without which libzmq would abort.

Each use has a share of the descriptors that are left once the daemon listens. Beyond its share,

- a block of memory is private, an upload's file is closed once it is mapped, and results of both travel in frames;
- a session is refused, with an error that says what to do;
- the oldest connections without a HELLO are cut.

The rest is for short uses: a file that is opened to be mapped, the log when it is rotated, and connections that libzmq
accepts before the daemon's thread knows them. The latter are at most `MONITOR_EVENTS` per listener, so with a limit of
some 1,700 for one listener no burst of connections can take the last descriptor. A daemon with a lower limit logs this.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...interpreter.wire.descriptors import descriptor_limit, descriptors_open
from .connections.listener import MONITOR_EVENTS
from .process.errors import StartError

MIN_DESCRIPTORS: Final = 128  # descriptors that the daemon needs
SHORT_USES: Final = 64  # descriptors for short uses, beside those of a burst of connections
ADVICE: Final = "run ulimit -n 4096, or set LimitNOFILE= in the unit"


class DescriptorShares(NamedTuple):
    """The numbers of descriptors that segments, sessions, and connections without a HELLO may have.

    `short`: by how much the limit is too low for a burst of connections; 0 if it is not.
    """

    segments: int
    sessions: int
    unauthenticated: int
    short: int


def require_least() -> None:
    """StartError if the limit of descriptors is too low. Called before the first socket, since libzmq would abort."""
    limit = descriptor_limit()
    if limit < MIN_DESCRIPTORS:
        raise StartError(
            f"the limit of open files is {limit}, and the daemon needs at least {MIN_DESCRIPTORS}: {ADVICE}"
        )


def share_out(listeners: int) -> DescriptorShares:
    """The shares of the remaining descriptors. Called once all permanent descriptors are open."""
    taken, limit = descriptors_open(), descriptor_limit()
    spare = limit - taken
    if spare < MIN_DESCRIPTORS // 2:
        raise StartError(f"{taken} of {limit} descriptors are open at the start, which leaves too few: {ADVICE}")
    burst = listeners * MONITOR_EVENTS + SHORT_USES
    short = max(3 * burst // 2 - spare, 0)
    shared = spare if short else spare - burst
    return DescriptorShares(shared // 2, shared // 4, shared // 8, short)
