"""The search for a daemon by `connect` and the command line, and the message if none is found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final, TypeVar

from ...interpreter.errors import NoDaemon, TensordError
from ...interpreter.wire.addresses import default_address, find_daemon

Found = TypeVar("Found")

PAUSE: Final = 0.05  # seconds between two attempts


def until_daemon_listens(attempt: Callable[[], Found], wait: float) -> Found:
    """The result of the attempt, repeated for `wait` seconds as long as no daemon listens; then NoDaemon.

    A listener that refuses the connection, or does not answer, is not asked again.
    """
    deadline = monotonic() + wait
    while True:
        try:
            return attempt()
        except NoDaemon:
            if (rest := deadline - monotonic()) <= 0:
                raise
        sleep(min(PAUSE, rest))


def running_daemon() -> str:
    """The address of the running daemon. NoDaemon if there is none."""
    address = find_daemon()
    if address is None:
        usual = default_address()
        raise NoDaemon(f"no daemon is running at {usual}; start one with `tensord serve`, or name another's address")
    return address


def tell_of_fallback(sought: str, address: str) -> None:
    """Tell an interactive user on stderr that no daemon was found and a local machine is used instead."""
    if hasattr(sys, "ps1") and sys.stderr is not None:
        sys.stderr.write(
            f"tensord: no daemon was found at {sought}, so this session has a machine in this process; "
            f'connect("{address}") says that this is meant, connect(wait=10) waits for a daemon\n'
        )


@contextmanager
def hinting(hint: str, *kinds: type[TensordError]) -> Iterator[None]:
    """Add a hint, if there is one, to errors of these kinds."""
    try:
        yield
    except kinds as error:
        if not hint:
            raise
        message = f"{error.message}; {hint}"
        raise type(error)(message, op=error.op, location=error.location, instruction=error.instruction) from None
