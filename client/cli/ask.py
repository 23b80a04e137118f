"""Questions to a running daemon, which is found by address, environment or default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...interpreter.errors import ConnectionLost

if TYPE_CHECKING:
    from ..session import Session

Address = Annotated[
    str | None,
    typer.Option(
        envvar="TENSORD_ADDRESS", help="The daemon's address; by default the one that runs.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout.")]

NOBODY = "no daemon is running here; start one with `tensord serve`, or name one with --address"


@contextmanager
def connected(address: str | None) -> Iterator[Session]:
    """A session with the daemon, closed at the end. ConnectionLost, saying what to do, if no daemon runs."""
    from ...interpreter.wire.names import LOOK
    from ..connect import connect

    with connect(address or running(), name=LOOK) as session:
        yield session


def running() -> str:
    """The address of the running daemon. ConnectionLost if there is none."""
    from ...interpreter.wire.addresses import find_daemon

    found = find_daemon()
    if found is None:
        raise ConnectionLost(NOBODY)
    return str(found)


def ask(address: str | None, what: str, *arguments: Any) -> Any:
    """The daemon's answer to one question."""
    with connected(address) as session:
        return session._query(what, *arguments)


def print_json(value: object) -> None:
    """Print the value as JSON, on one line."""
    typer.echo(json.dumps(value, default=str))
