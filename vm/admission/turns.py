"""A session's turn: as many of its messages as the turn's limits of time and of answer bytes allow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from ...interpreter.wire.fields import MAX_INT64
from ..model.session import VmSession, rest_of_run
from ..scheduler.scheduler import Scheduler


def turn_of(
    session: VmSession, inbox: deque[Sequence[Any]], scheduler: Scheduler, until: int, most: int
) -> Iterator[Sequence[Any]]:
    """The rest of a run, then messages from the inbox.

    The turn ends at the time `until`, or when the session's answers take more than `most` bytes, or when it has
    launched too far ahead.
    """
    messages = inbox if session.tapped is None else session.tapped.inbox(inbox)
    run = None if session.unfolding is None else rest_of_run(session, MAX_INT64)
    while run is not None or messages:
        message = messages.popleft() if run is None else next(run, None)
        if message is not None:
            yield message
            if session.flooded or scheduler.latest > until or session.answering > most:
                return
        elif session.unfolding is not None:
            return  # the run waits for a value
        else:
            run = None
