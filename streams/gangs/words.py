"""The words by which the nodes of a launch agree: small values over the links, as those of tensors are.

    from a node that follows            from the one that leads
    READY: operands, results are there
                                        TURN: all are ready; take your node's turn
    GRANTED: it has it; which
    communicator is there
                                        GO: launch, with this communicator
    ENDED: its GPUs have ended
                                        END: all have

Each is a transfer with a name of its own, so the links bring errors, the loss of a node and an end before the beginning
as they do for tensors. All have one form: the digest of what is to be launched, and a communicator's id, zeros for
none. So a node that was told something else is found out by whatever word it says.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import numpy as np

from ...interpreter.collectives.over_nodes import WORDS, transfer_of
from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta
from ..library import ID
from ..links.link import Link

DIGEST: Final = 32  # bytes
FORM: Final = Meta.of((DIGEST + ID,), "uint8")


class Word(IntEnum):
    """In the order in which they are said; odd ones by the node that leads."""

    READY = 0
    TURN = 1
    GRANTED = 2
    GO = 3
    ENDED = 4
    END = 5

    @property
    def is_leaders(self) -> bool:
        """Does the node that leads say it?"""
        return self % 2 == 1

    def transfer(self, first: bytes, follower: int) -> bytes:
        """Its name, between the node that leads and the one of that number."""
        return transfer_of(first, WORDS * follower + self)


class Said:
    """A word that this node says, or takes back: once."""

    def __init__(self, link: Link, transfer: bytes) -> None:
        self.link = link
        self.transfer = transfer
        self.over = False

    def say(self, digest: bytes, id_: bytes, failed: Callable[[TensordError], None]) -> None:
        """Say it. `failed`: it does not arrive."""

        def done(error: TensordError | None) -> None:
            self.over = True
            if error is not None:
                failed(error)

        content = np.frombuffer(digest + id_.ljust(ID, b"\0"), np.uint8)
        self.link.offer(self.transfer, FORM, content, done)

    def withdraw(self, error: TensordError) -> None:
        """It will not be said, or does not count."""
        if not self.over:
            self.over = True
            self.link.fail(self.transfer, error)


class Heard:
    """A word that another node says: one of the two callbacks is called, once."""

    def __init__(self, link: Link, transfer: bytes) -> None:
        self.link = link
        self.transfer = transfer
        self.over = False

    def listen(self, heard: Callable[[bytes, bytes], None], failed: Callable[[TensordError], None]) -> None:
        """Hear digest and id."""
        content = np.zeros(FORM.shape, np.uint8)

        def done(error: TensordError | None) -> None:
            self.over = True
            if error is not None:
                failed(error)
            else:
                text = content.tobytes()
                heard(text[:DIGEST], text[DIGEST:].rstrip(b"\0"))

        self.link.take(self.transfer, FORM, content, done)

    def withdraw(self, error: TensordError) -> None:
        """It is not waited for any more."""
        if not self.over:
            self.over = True
            self.link.refuse(self.transfer, error)
