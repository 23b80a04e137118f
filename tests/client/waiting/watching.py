"""A watch over the thread of an event loop: the calls in which it sleeps.

Starting a thread takes a moment, for which Python waits until the thread runs. That wait depends on no answer, and does
not count.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest
import zmq

from tensord.client.outbox.outbox import Outbox
from tensord.client.transport.link import DealerSocket
from tensord.client.transport.socket_lock import SocketLock
from tensord.client.waiting import steps
from tensord.interpreter.concurrency.bell import Bell
from tensord.interpreter.concurrency.leader_followers import LeaderFollowers

SLEEPS: list[tuple[Any, str]] = [  # where a thread sleeps until another thread, or another process, does something
    (Bell, "sleep"),
    (LeaderFollowers, "wait"),
    (LeaderFollowers, "serve_once"),
    (SocketLock, "poll"),
    (DealerSocket, "poll"),
    (DealerSocket, "greet"),
    (Outbox, "await_reply"),
    (zmq.Poller, "poll"),
    (threading.Event, "wait"),
    (threading.Condition, "wait"),
    (threading.Thread, "join"),
    (time, "sleep"),
    (steps, "sleep"),
]


def watch(patch: pytest.MonkeyPatch) -> list[str]:
    """The calls in which this thread sleeps from now on, by name."""
    found: list[str] = []
    for owner, name in SLEEPS:
        patch.setattr(owner, name, noting(getattr(owner, name), f"{owner.__name__}.{name}", found))
    return found


def noting(function: Any, name: str, found: list[str]) -> Any:
    """The function, which notes its name where the watched thread calls it."""
    watched = threading.get_ident()

    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == watched and not starts_a_thread(sys._getframe(1)):
            found.append(name)
        return function(*args, **kwargs)

    return call


def starts_a_thread(frame: FrameType | None) -> bool:
    """Is a thread being started there?"""
    while frame is not None:
        if frame.f_code is threading.Thread.start.__code__:
            return True
        frame = frame.f_back
    return False
