"""Messages that come from a daemon."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tensord.client.transport.incoming import Incoming
from tensord.client.transport.replies import Reply
from tensord.interpreter.errors import ConnectionLost, ProtocolError
from tensord.interpreter.wire.frames import ARRAY, ERROR, VALUE

from ...each_case import each_case


class Mapped:
    """The daemon's memory, which may be there or not."""

    def __init__(self, *, there: bool, alive: bool = True) -> None:
        self.there, self.alive = there, alive

    def array(self, *_: object) -> Any:
        if not self.there:
            raise ProtocolError("it cannot be mapped")
        return np.zeros(2)

    def is_alive(self) -> bool:
        return self.alive


PLACED = ["float64", [2], None, [1, 0, 16]]  # in the daemon's memory


@each_case(
    ("kind", "body", "mapped", "error", "released"),
    [
        (ARRAY, PLACED, Mapped(there=True), None, []),
        (ARRAY, ["float64", [2], None, bytes(16)], Mapped(there=True), None, [7]),
        (VALUE, None, Mapped(there=True), None, [7]),
        (ERROR, ["KernelError", "broken", None, None, None, None], Mapped(there=True), None, [7]),
        (ARRAY, PLACED, Mapped(there=False), ProtocolError, [7]),
        (ARRAY, PLACED, Mapped(there=False, alive=False), ConnectionLost, [7]),
        (ARRAY, PLACED, None, ConnectionLost, [7]),
    ],
)
def test_an_export_that_nothing_was_mapped_of_is_released(kind, body, mapped, error, released) -> None:
    """The daemon keeps the value until the client says that it is unused."""
    outgoing: Any = SimpleNamespace(exports={3: 7}, effects={})
    gone: list[int] = []
    memory: Any = SimpleNamespace(mapped=mapped, release=gone.append)
    incoming = Incoming(outgoing, memory)
    incoming.replies[3] = reply = Reply()
    incoming._answer(3, kind, body, [])
    assert reply.done
    assert gone == released
    assert outgoing.exports == {}
    if error is not None:
        assert type(reply.error) is error
