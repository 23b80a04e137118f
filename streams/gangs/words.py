"""The words by which the nodes of a launch agree: small values that travel over the links as values of tensors do.

    from a follower                     from the leader
    READY: operands and results exist
                                        TURN: all are ready; take your node's turn
    GRANTED: the node has its turn, and
    this communicator
                                        GO: launch, with this communicator
    ENDED: the node's GPUs have ended
                                        END: all have

Each word is a transfer with its own name, so the links deliver errors, the loss of a node and a premature end as they
do for tensors. All words have one form: the digest of what is launched, and the id of a communicator or zeros. So any
word of a node that launches something else reveals the difference.
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
WORD_META: Final = Meta.of((DIGEST_BYTES + ID_BYTES,), "uint8")


class Word(IntEnum):
    """A word of the protocol, in order of use; the leader says the odd ones."""

    READY = 0
    TURN = 1
    GRANTED = 2
    GO = 3
    ENDED = 4
    END = 5

    @property
    def is_leaders(self) -> bool:
        """Return whether the leader says this word."""
        return self % 2 == 1

    def transfer(self, first: bytes, follower: int) -> bytes:
        """The name of the word's transfer between the leader and the follower of that number."""
        return transfer_of(first, VALUES_PER_LAUNCH * follower + self)


class SaidWord:
    """A word that this node says or withdraws, once."""

    def __init__(self, link: NodeLink, transfer: bytes) -> None:
        self.link = link
        self.transfer = transfer
        self.over = False

    def say(self, digest: bytes, id_: bytes, failed: Callable[[TensordError], None]) -> None:
        """Say the word. `failed` is called if it does not arrive."""

        def done(error: TensordError | None) -> None:
            self.over = True
            if error is not None:
                failed(error)

        content = np.frombuffer(digest + id_.ljust(ID_BYTES, b"\0"), np.uint8)
        self.link.offer(self.transfer, WORD_META, content, done)

    def withdraw(self, error: TensordError) -> None:
        """Fail the word's transfer: it is not said, or no longer counts."""
        if not self.over:
            self.over = True
            self.link.fail(self.transfer, error)


class HeardWord:
    """A word that another node says. One of the two callbacks is called, once."""

    def __init__(self, link: NodeLink, transfer: bytes) -> None:
        self.link = link
        self.transfer = transfer
        self.over = False

    def listen(self, heard: Callable[[bytes, bytes], None], failed: Callable[[TensordError], None]) -> None:
        """Call `heard` with the digest and the id."""
        content = np.zeros(WORD_META.shape, np.uint8)

        def done(error: TensordError | None) -> None:
            self.over = True
            if error is not None:
                failed(error)
            else:
                text = content.tobytes()
                heard(text[:DIGEST_BYTES], text[DIGEST_BYTES:].rstrip(b"\0"))

        self.link.take(self.transfer, WORD_META, content, done)

    def withdraw(self, error: TensordError) -> None:
        """Stop waiting for the word."""
        if not self.over:
            self.over = True
            self.link.refuse(self.transfer, error)
