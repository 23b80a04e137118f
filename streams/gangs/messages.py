"""The messages by which the nodes of a launch agree: small values that travel over the links as values of tensors do.

    from a follower                     from the leader
    READY: operands and results exist
                                        TURN: all are ready; take your node's turn
    GRANTED: the node has its turn, and
    this communicator
                                        GO: launch, with this communicator
    ENDED: the node's GPUs have ended
                                        END: all have

Each message is a transfer with its own name, so the links deliver errors, the loss of a node and a premature end as
they do for tensors. All messages have one form: the digest of the launch, and the id of a communicator or zeros. So any
message of a node that launches something else reveals the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import numpy as np

from ...interpreter.collectives.over_nodes import VALUES_PER_LAUNCH, transfer_of
from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta
from ..library import ID_BYTES
from ..links.link import NodeLink

DIGEST_BYTES: Final = 32  # bytes
MESSAGE_META: Final = Meta.of((DIGEST_BYTES + ID_BYTES,), "uint8")


class GangMessage(IntEnum):
    """A message of the protocol, in order of use; the leader sends the odd ones."""

    READY = 0
    TURN = 1
    GRANTED = 2
    GO = 3
    ENDED = 4
    END = 5

    @property
    def is_leaders(self) -> bool:
        """Return whether the leader sends this message."""
        return self % 2 == 1

    def transfer(self, first: bytes, follower: int) -> bytes:
        """The name of the message's transfer between the leader and the follower of that number."""
        return transfer_of(first, VALUES_PER_LAUNCH * follower + self)


class OutgoingMessage:
    """A message that this node sends or withdraws, once."""

    def __init__(self, link: NodeLink, transfer: bytes) -> None:
        self.link = link
        self.transfer = transfer
        self.over = False

    def send(self, digest: bytes, id_: bytes, failed: Callable[[TensordError], None]) -> None:
        """Send the message. `failed` is called if it does not arrive."""

        def done(error: TensordError | None) -> None:
            self.over = True
            if error is not None:
                failed(error)

        content = np.frombuffer(digest + id_.ljust(ID_BYTES, b"\0"), np.uint8)
        self.link.offer(self.transfer, MESSAGE_META, content, done)

    def withdraw(self, error: TensordError) -> None:
        """Fail the message's transfer: it is not sent, or no longer counts."""
        if not self.over:
            self.over = True
            self.link.fail(self.transfer, error)


class IncomingMessage:
    """A message that another node sends. One of the two callbacks is called, once."""

    def __init__(self, link: NodeLink, transfer: bytes) -> None:
        self.link = link
        self.transfer = transfer
        self.over = False

    def receive(self, received: Callable[[bytes, bytes], None], failed: Callable[[TensordError], None]) -> None:
        """Call `received` with the digest and the id."""
        content = np.zeros(MESSAGE_META.shape, np.uint8)

        def done(error: TensordError | None) -> None:
            self.over = True
            if error is not None:
                failed(error)
            else:
                text = content.tobytes()
                received(text[:DIGEST_BYTES], text[DIGEST_BYTES:].rstrip(b"\0"))

        self.link.take(self.transfer, MESSAGE_META, content, done)

    def withdraw(self, error: TensordError) -> None:
        """Stop waiting for the message."""
        if not self.over:
            self.over = True
            self.link.refuse(self.transfer, error)
