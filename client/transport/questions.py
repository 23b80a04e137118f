"""Questions to a daemon, one at a time: a connection without threads and without NumPy, for the command line.

Such a connection does not reconnect as a session does; after a loss, the command line asks again. Each wait is limited
by a clock of this process, since a daemon that hangs keeps no time limit.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import Any, Self

import zmq

from ...interpreter.errors import ConnectionLost
from ...interpreter.wire.codec import decode
from ...interpreter.wire.frames import ACK, BATCH, ERROR, PART, REPLIES, decode_error
from ...interpreter.wire.message_kinds import MessageKind
from .link import ANSWER_TIMEOUT, END_EVENTS, MAX_HEADER, DealerSocket, ending_error, hanging_error

QUERY = int(MessageKind.QUERY)


class Questions:
    """A session that only asks. A context manager, which ends the session. ConnectionLost if there is no daemon.

    `patience`: seconds for everything, including the handshake; by default an answer, or the next slice of a long one,
    has `ANSWER_TIMEOUT` seconds.
    """

    def __init__(self, address: str, options: Mapping[int, Any], patience: float | None = None) -> None:
        self._patience = patience
        self._deadline = None if patience is None else monotonic() + patience
        self._link = link = DealerSocket(address, options, None, strict=False, patience=patience)
        self._numbers = itertools.count(1)
        self._ended = False
        self._poller = zmq.Poller()
        self._poller.register(link.socket, zmq.POLLIN)
        self._poller.register(link.monitor, zmq.POLLIN)

    def renew_patience(self, patience: float) -> None:
        """Wait at most that many seconds, from now on, for all further answers."""
        self._patience, self._deadline = patience, monotonic() + patience

    def ask(self, what: str, *arguments: Any) -> Any:
        """The machine's answer to a question about itself; waits. Raises an error that comes as the answer, and
        ConnectionLost after the patience."""
        number = next(self._numbers)
        self._link.send([BATCH, number, [[QUERY, what, arguments, number]], []])
        parts: list[Any] | None = None  # of a long answer, which may be empty
        while True:
            for _, kind, body in self._answers():
                if kind == ERROR:
                    raise decode_error(body)
                if kind != PART:
                    return body if parts is None else parts
                parts = [] if parts is None else parts
                parts.extend(body)

    def _answers(self) -> Sequence[Any]:
        """The next answers, or slices of one."""
        header = decode(self._next()[0].buffer, MAX_HEADER, MAX_HEADER)
        end = ending_error(header)
        if end is not None:
            raise end
        if header[0] != REPLIES:
            return ()
        if self._link.welcome.token is not None:  # the daemon keeps messages that it might have to send again
            self._link.send([ACK, header[1]])
        answers: Sequence[Any] = header[4]
        return answers

    def _next(self) -> list[Any]:
        """The frames of the next message."""
        while True:
            with suppress(zmq.Again):
                return self._link.receive()
            if self._ended:
                raise ConnectionLost(f"the daemon at {self._link.address} is gone")
            if not self._poller.poll(self._rest()):
                raise hanging_error(self._link.address, ANSWER_TIMEOUT if self._patience is None else self._patience)
            self._ended = any(event.kind in END_EVENTS for event in self._link.events())  # there may be a last message

    def _rest(self) -> int:
        """The milliseconds left of the patience."""
        rest = ANSWER_TIMEOUT if self._deadline is None else self._deadline - monotonic()
        return ceil(max(rest, 0.0) * 1000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.bye()
        self._link.close()
