"""A supervisor's knowledge of all nodes of its cluster: the table that the supervisor sends to its daemon by `join`.

News of a node come from that node's supervisor, as an entry, or from Ray, as a loss. A later incarnation replaces an
earlier one, never the other way round, so late news change nothing.
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
        """Take a node's entry; False if it is older than what is known, or the same."""
        known = self.entries.get(entry["node"])
        if known is not None and (entry["incarnation"] < known["incarnation"] or known == entry):
            return False
        return self._set(entry)

    def lost(self, node: str) -> bool:
        """Nobody answers for a node any more; False if that changes nothing. A node that has left stays so."""
        known = self.entries.get(node)
        return known is not None and known["state"] == UP and self._set({**known, "state": LOST})

    def forget(self, node: str) -> bool:
        """Drop the entry of a node that is no member any more."""
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
