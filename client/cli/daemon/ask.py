"""Questions to a running daemon, which is found by address, environment or default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from ....interpreter.wire.addresses import for_client, is_local
from ...transport.seeking import running_daemon, until_daemon_listens

SERVER_KEY: Final = (
    "tensord.server_key"  # in a context's `meta`: the daemon's key, as a member of its cluster has told it
)

if TYPE_CHECKING:
    from ...session.session import Session
    from ...transport.questions import Questions


@contextmanager
def connected(address: str | None) -> Iterator[Session]:
    """A session with the daemon, closed at the end. NoDaemon, with advice, if no daemon runs.

    Its instructions have the command as their location, since the lines around would be click's.
    """
    where = address or running_daemon()
    if not is_local(where):  # NoDaemon comes before the slow import of a session
        from ...transport.link import HELLO_TIMEOUT, check_reachable

        check_reachable(for_client(where).text, monotonic() + HELLO_TIMEOUT)
    from .patient import session_at

    with session_at(where) as session:
        context = click.get_current_context(silent=True)
        session._core.outbox.locations.command = "" if context is None else context.command_path
        yield session


@contextmanager
def asking(
    address: str | None, *, patience: float | None = None, lasting: bool = False
) -> Iterator[Callable[..., Any]]:
    """A function that asks the daemon one question after the other.

    It uses no session, whose import takes longer than most answers, unless it is `lasting`: over tcp, a session resumes
    when its connection breaks. `patience`: seconds for all answers.
    """
    where = address or running_daemon()
    if is_local(where) or (lasting and for_client(where).kind == "tcp"):
        with connected(where) as session:
            yield session._core.answers.query
    else:
        with questions(where, patience) as found:
            yield found.ask


def ask(address: str | None, what: str, *arguments: Any, wait: float = 0.0, patience: float | None = None) -> Any:
    """The daemon's answer to one question. `wait`: seconds for a daemon to listen; `patience`: seconds for the
    answer."""

    def attempt() -> Any:
        with asking(address, patience=patience) as query:
            return query(what, *arguments)

    return until_daemon_listens(attempt, wait)


def questions(address: str, patience: float | None = None) -> Questions:
    """A connection that only asks. ConnectionLost if there is no daemon at the address, or if it refuses us."""
    from ...transport.keys import socket_options
    from ...transport.link import connecting
    from ...transport.questions import Questions

    text = for_client(address).text
    context = click.get_current_context(silent=True)
    key = None if context is None else context.meta.get(SERVER_KEY)
    with connecting(text):
        return Questions(text, socket_options(text, server_key=key), patience)
