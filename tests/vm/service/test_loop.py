"""The daemon's loop: what a turn costs when many connections end at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tensord.vm.service.loop import Loop


def test_the_messages_that_wait_are_taken_once_for_all_sessions_of_a_dead_process() -> None:
    """Before the first of them ends, since their goodbyes may be among the messages."""
    listener, steps = object(), []
    peers = [SimpleNamespace(listener=listener, pidfd=10 + n) for n in range(5)]

    class Watched(Loop):
        def __init__(self) -> None:
            self.wakeup, self.watched = 1, {}
            self.others: Any = SimpleNamespace(poll=lambda _: [(peer.pidfd, 1) for peer in peers])
            self.processes: Any = {peer.pidfd: peer for peer in peers}
            end = lambda peer, _why: steps.append(peer.pidfd)  # noqa: E731
            self.registry: Any = SimpleNamespace(peers=peers, end=end)

        def receive(self, _: object) -> None:
            steps.append("receive")

    Watched().look_at_others()
    assert steps == ["receive"] * (len(peers) + 1) + [peer.pidfd for peer in peers]
