"""How the daemon shares out its descriptors, so that it never runs out of them: libzmq would abort the process.

Each use has a share of what is left once the daemon listens. Beyond its share,

- a block of memory is private, an upload's file is closed once it is mapped, and results of both travel in frames;
- a session is refused, with an error that says what to do;
- of the connections without a HELLO, the oldest are cut.

The rest is for moments: a file that is opened to be mapped, the log when it is rotated, and connections that libzmq
accepts before the daemon's thread hears of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...interpreter.wire.descriptors import descriptor_limit, descriptors_open
from .errors import StartError

LEAST: Final = 128  # descriptors that the daemon needs
MORE: Final = "run ulimit -n 4096, or set LimitNOFILE= in the unit"


class Shares(NamedTuple):
    """How many descriptors segments, sessions, and connections without a HELLO may have."""

    segments: int
    sessions: int
    unauthenticated: int


def require_least() -> None:
    """StartError if the process may not have enough descriptors. Before the first socket: libzmq would abort."""
    limit = descriptor_limit()
    if limit < LEAST:
        raise StartError(f"the limit of open files is {limit}, and the daemon needs {LEAST} at the least: {MORE}")


def share_out() -> Shares:
    """The shares of what is left. Called once everything is open that the daemon always has open."""
    taken, limit = descriptors_open(), descriptor_limit()
    spare = limit - taken
    if spare < LEAST // 2:
        raise StartError(f"{taken} of {limit} descriptors are open at the start, which leaves too few: {MORE}")
    return Shares(spare // 2, spare // 4, spare // 8)
