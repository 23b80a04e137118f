"""The labels of instructions between nodes.

The label of a send or a receive has the name of the other node, and a number of the transfer; the label of a launch
together with other nodes has their names. The records of a transfer have the same number on both nodes, so that
traces can be joined. The number is a digest of the transfer's name, not the name: every session sees records, and
one that knew the name could pose as the other end of the transfer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

SEND, OFFER, RECV = "send to", "offer from", "recv from"
WITH: Final = ", with "
LABEL: Final = re.compile(rf"({SEND}|{OFFER}|{RECV}) (.*) #([0-9a-f]{{32}})")


class LinkLabel(NamedTuple):
    """The contents of a label: the action, the other node, and the number of the transfer."""

    doing: str
    node: str
    number: bytes

    @classmethod
    def of(cls, doing: str, node: str, transfer: bytes) -> LinkLabel:
        """The label for a transfer. `transfer`: its name."""
        return cls(doing, node, blake2b(transfer, digest_size=len(transfer)).digest())

    def __str__(self) -> str:
        return f"{self.doing} {self.node} #{self.number.hex()}"


def read_label(label: str) -> LinkLabel | None:
    """Parse a label. None if it is not the label of a send or a receive."""
    found = LABEL.fullmatch(label)
    return None if found is None else LinkLabel(found[1], found[2], bytes.fromhex(found[3]))


def launch_label(name: str, nodes: Sequence[str]) -> str:
    """The label of a launch together with other nodes."""
    return f"{name}{WITH}{', '.join(nodes)}"


def launch_nodes(label: str) -> list[str]:
    """The other nodes in the label of a launch; empty if there are none."""
    _, found, nodes = label.partition(WITH)
    return nodes.split(", ") if found else []
