"""The labels of instructions between nodes, as text.

A send or a receive has the other node and the transfer in its label; a launch together with other nodes has their
names. The records of a transfer on both nodes have the same number, so that traces can be joined. The number is a
digest of the transfer's name: any session sees records, and could take the other half's place if it knew the name.
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
        """For the transfer of that name."""
        return cls(doing, node, blake2b(transfer, digest_size=len(transfer)).digest())

    def __str__(self) -> str:
        return f"{self.doing} {self.node} #{self.number.hex()}"


def read_label(label: str) -> LinkLabel | None:
    """The contents of a label; None if it is not a label between nodes."""
    found = LABEL.fullmatch(label)
    return None if found is None else LinkLabel(found[1], found[2], bytes.fromhex(found[3]))


def launch_label(name: str, nodes: Sequence[str]) -> str:
    """The label of a launch together with these other nodes."""
    return f"{name}{WITH}{', '.join(nodes)}"


def launch_nodes(label: str) -> list[str]:
    """The other nodes in the label of a launch; none if it is of one node."""
    _, found, nodes = label.partition(WITH)
    return nodes.split(", ") if found else []
