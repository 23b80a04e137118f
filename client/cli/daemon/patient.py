"""Sessions of the command line, whose waits end when the daemon hangs.

An answer may take long (a checkpoint is written, values are read), so during the wait the daemon is asked another
question, which it answers at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....interpreter.wire.addresses import for_client, is_local
from ....interpreter.wire.messages import Query
from ....interpreter.wire.names import program_name
from ...outbox.outbox import Outbox
from ...session.connect import DEFAULT_OPTIONS, ConnectOptions, connect, connect_daemon
from ...session.session import Session
from ...transport.link import ANSWER_TIMEOUT, hanging_error
from ...transport.replies import Reply

PROBE_PERIOD: Final = 1.0  # seconds between two such questions


def session_at(address: str, wanted: ConnectOptions = DEFAULT_OPTIONS) -> Session:
    """A session with the daemon. Without a name, the log mentions it only at level debug."""
    if is_local(address):
        return connect(address, wanted)
    text = for_client(address).text
    return connect_daemon(text, wanted, patient(text))


def program_session(address: str | None, devices: Iterable[str]) -> Session:
    """A session under the program's name: with the daemon at the address, else in this process with these devices."""
    if address is not None:
        return session_at(address, ConnectOptions(name=program_name()))
    return session_at("local", ConnectOptions(["cpu:0", *dict.fromkeys(name for name in devices if name != "cpu:0")]))


def patient(address: str) -> type[Outbox]:
    class PatientOutbox(Outbox):
        """An outbox whose waits without a limit, and later ones, end with ConnectionLost once the daemon answers
        nothing any more."""

        def __init__(self, transport: Any, frames: int | None = None) -> None:
            self.hangs = False
            super().__init__(transport, frames)

        def await_reply(self, reply: Reply, timeout: float | None = None) -> Any:
            while timeout is None and not (self.hangs or reply.done or self.transport.wait(reply, PROBE_PERIOD)):
                alive = self.ask(lambda request, _: Query("names", (0,), request), located=False)
                self.hangs = not self.transport.wait(alive, ANSWER_TIMEOUT)
            if self.hangs:
                raise hanging_error(address, ANSWER_TIMEOUT)
            return super().await_reply(reply, timeout)

    return PatientOutbox
