"""The members of a cluster, as one supervisor knows them: the table that the supervisor sends to its daemon by `join`.

A node's entry comes from that node's supervisor; its loss is reported by Ray. A later incarnation replaces an
earlier one, never the other way round, so late messages change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

UP: Final = "up"
LOST: Final = "lost"
LEFT: Final = "left"

Entry = Mapping[str, Any]


class Members:
    """Entries by node. `version` grows with each change."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.version = 0

    def heard(self, entry: Entry) -> bool:
        """Store a node's entry. False if it is older than the known entry, or equal to it."""
        known = self.entries.get(entry["node"])
        if known is not None and (entry["incarnation"] < known["incarnation"] or known == entry):
            return False
        return self._set(entry)

    def lost(self, node: str) -> bool:
        """Mark a node as lost, since its supervisor no longer answers.

        False if that changes nothing: a node that has left stays that way.
        """
        known = self.entries.get(node)
        return known is not None and known["state"] == UP and self._set({**known, "state": LOST})

    def forget(self, node: str) -> bool:
        """Remove the entry of a node that is no longer a member."""
        if self.entries.pop(node, None) is None:
            return False
        self.version += 1
        return True

    def table(self) -> list[Entry]:
        return [self.entries[node] for node in sorted(self.entries)]

    def _set(self, entry: Entry) -> bool:
        self.entries[entry["node"]] = entry
        self.version += 1
        return True
