"""Admission of values that go to other nodes, and come from there."""

from __future__ import annotations

from typing import Final

from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.types.meta import DTYPES, Meta
from ...interpreter.wire.messages import Recv, Send
from ..model.session import VmSession
from ..scheduler.scheduler import Scheduler
from .rejection import Rejection

NO_NODE: Final = "this machine has no node name, so no value goes from here to another node: start it with one"


class NodeTransfers:
    """The handlers of SEND and RECV messages."""

    def __init__(self, scheduler: Scheduler, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.rejection = rejection

    def send(self, session: VmSession, message: Send) -> None:
        """Refuse."""
        self.rejection.deny(session, MetadataError(NO_NODE), 0, message.location, "send")

    def recv(self, session: VmSession, message: Recv) -> None:
        """Refuse: the tensor that the message defines gets the error."""
        home = self.scheduler.devices.get(message.device)
        meta = meta_of(message)
        self.rejection.reject(
            session, MetadataError(NO_NODE), (message.output,), message.location, "recv", (meta,), home
        )


def meta_of(message: Recv) -> Meta | None:
    """The meta of what is to be received; None if there is no such dtype, or no such tensor."""
    try:
        return Meta.of(tuple(message.shape), DTYPES[message.dtype])
    except (KeyError, TensordError):
        return None
