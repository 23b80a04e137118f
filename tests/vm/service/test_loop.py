"""What the daemon's loop does first."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import zmq

from tensord.vm.service.loop import Loop


class Connections:
    """A listener at which messages wait, and a monitor with the end of a connection behind them."""

    def __init__(self, *messages: str) -> None:
        self.waiting = deque(messages)
        self.seen: list[str] = []

    def receive(self) -> str:
        if not self.waiting:
            raise zmq.Again
        return self.waiting.popleft()

    def watch(self) -> None:
        self.seen.append("the end")


def test_a_goodbye_that_waits_is_read_before_the_end_of_its_connection():
    """Else its client would be told of as one that has died."""
    listener: Any = Connections("a batch", "goodbye")
    loop: Any = object.__new__(Loop)
    loop.registry = SimpleNamespace(peers={"one": None, "another": None})
    loop.front = SimpleNamespace(receive=lambda _listener, message: listener.seen.append(message))
    loop.watch_connections(listener)
    assert listener.seen == ["a batch", "goodbye", "the end"]
