"""Dropped handles whose releases a signal handler may have sent."""

from __future__ import annotations

from queue import Empty

from tensord.client.session.session import Session
from tensord.interpreter.wire.message_kinds import RELEASE


class Queue:
    """Two ids to begin with; a signal handler takes the second one."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def qsize(self) -> int:
        return 2

    def get_nowait(self) -> int:
        if not self.ids:
            raise Empty
        return self.ids.pop()


def test_a_signal_handler_may_have_sent_what_was_dropped(session: Session) -> None:
    outbox = session._core.outbox
    for left, sent in (([7], [[RELEASE, (7,)]]), ([], [])):
        outbox._released = Queue(left)  # type: ignore[assignment]
        batch: list[list[object]] = []
        with outbox.lock:
            outbox._add_releases(batch)
        assert batch == sent
