"""The members of a cluster, as one supervisor knows them: the table that the supervisor sends to its daemon (`join`).

A node's entry (`keeper.entry`) comes from that node's supervisor; Ray reports the loss of a node. A later
incarnation replaces an earlier one, never the other way round, so late messages change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

UP: Final = "up"
LOST: Final = "lost"
LEFT: Final = "left"

Entry = Mapping[str, Any]  # the facts of one node, as `keeper.entry` makes them


class Members:
    """Entries by node. `version` grows with each change."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.version = 0

    def store(self, entry: Entry) -> bool:
        """Store a node's entry. False if it is older than the known entry, or equal to it."""
        known = self.entries.get(entry["node"])
        if known is not None and (entry["incarnation"] < known["incarnation"] or known == entry):
            return False
        return self._set(entry)

    def mark_lost(self, node: str) -> bool:
        """Mark a node as lost, since its supervisor no longer answers.

        False if that changes nothing: a node that has left stays that way.
        """
        known = self.entries.get(node)
        return known is not None and known["state"] == UP and self._set({**known, "state": LOST})

    def table(self) -> list[Entry]:
        """The entries in the order of the nodes' names."""
        return [self.entries[node] for node in sorted(self.entries)]

    def _set(self, entry: Entry) -> bool:
        self.entries[entry["node"]] = entry
        self.version += 1
        return True
