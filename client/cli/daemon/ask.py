"""Questions to a running daemon, which is found by address, environment or default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...transport.seeking import running, until_there

if TYPE_CHECKING:
    from ...session.session import Session
    from ...transport.questions import Questions


@contextmanager
def connected(address: str | None) -> Iterator[Session]:
    """A session with the daemon, closed at the end. NoDaemon, saying what to do, if no daemon runs.

    What it issues has the command as its location: the lines around would be click's.
    """
    from ...session.connect import connect_to_look

    with connect_to_look(address or running()) as session:
        context = click.get_current_context(silent=True)
        session._core.outbox.locations.command = "" if context is None else context.command_path
        yield session


def ask(address: str | None, what: str, *arguments: Any, wait: float = 0.0, patience: float | None = None) -> Any:
    """The daemon's answer to one question. Takes no session, whose import takes longer than most answers.

    `wait`: seconds for a daemon to come that does not listen yet; `patience`: seconds from then on to the answer.
    """
    from ....interpreter.wire.addresses import is_local

    def attempt() -> Any:
        where = address or running()
        if is_local(where):
            with connected(where) as session:
                return session._core.answers.query(what, *arguments)
        with questions(where, patience) as asking:
            return asking.ask(what, *arguments)

    return until_there(attempt, wait)


def questions(address: str, patience: float | None = None) -> Questions:
    """A connection that only asks. ConnectionLost if there is no daemon at the address, or if it refuses us."""
    from ....interpreter.wire.addresses import for_client
    from ...transport.keys import socket_options
    from ...transport.link import connecting
    from ...transport.questions import Questions

    text = for_client(address).text
    with connecting(text):
        return Questions(text, socket_options(text), patience)
