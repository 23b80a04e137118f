"""Values that a machine's sessions send to its own node, on the serial engine. There is no other node."""

from __future__ import annotations

from ...interpreter.errors import MetadataError
from ...interpreter.wire.messages import Recv, Send
from ..admission.node_transfers import NO_NODE, meta_of
from .state import State
from .values import SerialSession


class NodeTransfers:
    """The handlers of SEND and RECV messages."""

    def __init__(self, state: State) -> None:
        self.state = state

    def send(self, session: SerialSession, message: Send) -> None:
        """Refuse."""
        self.state.deny(session, MetadataError(NO_NODE), 0, message.location, "send")

    def recv(self, session: SerialSession, message: Recv) -> None:
        """Refuse: the tensor that the message defines gets the error."""
        home = message.device if message.device in self.state.devices else None
        self.state.reject(
            session, MetadataError(NO_NODE), (message.output,), message.location, "recv", (meta_of(message),), home
        )
