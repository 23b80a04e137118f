"""The labels of instructions that send to other nodes, or receive from there: node and transfer, as text.

Two nodes' records of one transfer have the same number, so that their traces can be joined.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SEND, OFFER, RECV = "send to", "offer from", "recv from"
LABEL: Final = re.compile(rf"({SEND}|{OFFER}|{RECV}) (.*) #([0-9a-f]{{32}})")


class LinkLabel(NamedTuple):
    """What a label says: what is done, with which node, for which transfer."""

    doing: str
    node: str
    transfer: bytes

    def __str__(self) -> str:
        return f"{self.doing} {self.node} #{self.transfer.hex()}"


def read_label(label: str) -> LinkLabel | None:
    """What a label says; None if it is none of these."""
    found = LABEL.fullmatch(label)
    return None if found is None else LinkLabel(found[1], found[2], bytes.fromhex(found[3]))
