"""The end of the process: sessions that were not closed say goodbye, so that the daemon need not find out.

Without a goodbye the daemon logs a client that has died, and over tcp keeps its tensors until the lease is over. The
sessions of a process that is killed still end that way.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Final, Protocol
from weakref import WeakSet

from ...interpreter.errors import TensordError
from ...interpreter.process_end import AT_END
from .forks import FORKS

PATIENCE: Final = 1.0  # seconds for whatever other threads do with the sessions


class Closing(Protocol):
    """What is closed at the end: a transport."""

    def close(self, patience: float) -> None:
        """Close it, if that takes no longer than so many seconds."""

    def __hash__(self) -> int: ...


_open: WeakSet[Closing] = WeakSet()
FORKS.anew.append(_open.clear)  # a child closes no session of its parent


def close_at_exit(transport: Closing) -> None:
    """Close the transport of a session at the normal end of the process, unless it is closed by then.

    Also if its session is gone: the transport's own thread closes it then, and may need some time.
    """
    if not _open:
        AT_END.do(close_sessions)
    _open.add(transport)


def close_sessions() -> None:
    deadline = monotonic() + PATIENCE
    for transport in list(_open):
        with suppress(TensordError, OSError):
            transport.close(max(deadline - monotonic(), 0.0))
