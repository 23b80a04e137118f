"""A connection that only asks, kept from question to question, and made again when the daemon comes back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ....interpreter.errors import ConnectionLost
from ...transport.seeking import running_daemon
from .ask import questions

if TYPE_CHECKING:
    from ...transport.questions import Questions

PATIENCE: Final = 5.0  # seconds for an answer
Connect = Callable[[str, float], "Questions"]


class ReconnectingQuestions:
    """The connection. `where`: its address; `made`: how many connections there have been. Not thread-safe."""

    def __init__(self, address: str | None, connect: Connect = questions) -> None:
        self._address = address
        self._connect = connect
        self._connection: Questions | None = None
        self.where = ""
        self.made = 0

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def ask(self, what: str, *arguments: Any) -> Any:
        """The answer to a question. The daemon may have been restarted since the last one, so a lost connection is made
        again once."""
        if self._connection is not None:
            with suppress(ConnectionLost):
                return self._ask(self._connection, what, *arguments)
        self.where = self._address or running_daemon()
        self._connection = self._connect(self.where, PATIENCE)
        self.made += 1
        return self._ask(self._connection, what, *arguments)

    def _ask(self, connection: Questions, what: str, *arguments: Any) -> Any:
        try:
            connection.renew_patience(PATIENCE)
            return connection.ask(what, *arguments)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.__exit__(None, None, None)
