"""The members of a cluster, as one supervisor knows them: the table in the question `join` to its daemon.

A node's entry (`keeper.entry`) comes from that node's supervisor. A node is lost if its supervisor does not answer, or
Ray no longer lists the node; the node's next entry undoes the loss. An entry of an earlier incarnation is ignored; in
one incarnation, the entry that comes last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

UP: Final = "up"
LOST: Final = "lost"  # its daemon does not serve, or its supervisor does not answer
LEFT: Final = "left"  # its daemon was stopped on purpose

Entry = Mapping[str, Any]  # the facts of one node, as `keeper.entry` makes them


class Members:
    """Entries by node. `version` grows with each change."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.version = 0

    def store(self, entry: Entry) -> bool:
        """Store a node's entry. False if it is of an earlier incarnation than the known entry, or equal to it."""
        known = self.entries.get(entry["node"])
        if known is not None and (entry["incarnation"] < known["incarnation"] or known == entry):
            return False
        return self._set(entry)

    def mark_lost(self, node: str) -> bool:
        """Mark a node as lost. False if that changes nothing: only a node that is up can be lost."""
        known = self.entries.get(node)
        return known is not None and known["state"] == UP and self._set({**known, "state": LOST})

    def table(self) -> list[Entry]:
        """The entries in the order of the nodes' names."""
        return [self.entries[node] for node in sorted(self.entries)]

    def _set(self, entry: Entry) -> bool:
        self.entries[entry["node"]] = entry
        self.version += 1
        return True
