"""Several machines in one process, and the links between them, for tests and for experiments with nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from ...interpreter.errors import MetadataError, node_lost
from .exchange import Carry, Exchange, at_once
from .link import NodeLink


class InMemory:
    """The links of a machine in this process: one exchange for each node, including its own."""

    def __init__(self, node: str, exchanges: Mapping[str, Exchange]) -> None:
        self.node = node
        self.exchanges = dict(exchanges)
        self.lost: dict[str, str] = {}  # lost nodes -> the reason

    def to(self, node: str, incarnation: int = 0) -> NodeLink:  # noqa: ARG002 - nothing here is started anew
        if node in self.lost:
            raise node_lost(node, self.lost[node])
        if node not in self.exchanges:
            raise MetadataError(f"{self.node!r} knows no node {node!r}; it knows {', '.join(sorted(self.exchanges))}")
        return self.exchanges[node]

    def lose(self, node: str, why: str) -> None:
        """Declare a node lost: pending transfers with it fail, and no new ones begin."""
        self.lost[node] = why
        self.exchanges[node].cut(node_lost(node, why))

    def cut_off(self, node: str) -> None:
        """Drop everything that this machine sends to the node from now on, without an error."""
        self.exchanges[node] = Exchange()


def pair(first: str = "node0", second: str = "node1", carry: Carry = at_once) -> tuple[InMemory, InMemory]:
    """The links of two machines to each other and to themselves."""
    one, other = mesh((first, second), carry)
    return one, other


def mesh(nodes: Sequence[str], carry: Carry = at_once) -> list[InMemory]:
    """The links of machines to each other and to themselves."""
    links = {node: InMemory(node, {node: Exchange(carry)}) for node in nodes}
    for one, other in combinations(nodes, 2):
        links[one].exchanges[other] = links[other].exchanges[one] = Exchange(carry)
    return list(links.values())
