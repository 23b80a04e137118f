"""The end of the interpreter: sessions that were not closed say goodbye, so that the daemon need not find out.

Without a goodbye the daemon logs a client that has died, and over tcp keeps its tensors until the lease is over. The
sessions of a process that is killed still end that way, and so do those of a child that `multiprocessing` has forked,
which ends without the handlers of `atexit`.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from time import monotonic
from typing import Final
from weakref import WeakSet

from ..interpreter.errors import TensordError
from .forks import FORKS
from .session import Session

PATIENCE: Final = 1.0  # seconds for whatever other threads do with the sessions

_open: WeakSet[Session] = WeakSet()
FORKS.anew.append(_open.clear)  # a child closes no session of its parent


def close_at_exit(session: Session) -> Session:
    """Close the session at the interpreter's end, unless it is closed by then."""
    _open.add(session)
    return session


@atexit.register
def close_sessions() -> None:
    """Close every session that is still open."""
    deadline = monotonic() + PATIENCE
    for session in list(_open):
        with suppress(TensordError, OSError):
            session._outbox.close(max(deadline - monotonic(), 0.0))
