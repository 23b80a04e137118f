"""A node's files on disk, readable only by its user: keys, the list of allowed clients, ports, the count of starts.

Secret keys are made here and never leave the node. Files are always replaced as a whole, so if the supervisor is killed
while it writes, the old file remains.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...interpreter.whole_file import write_whole
from ...interpreter.wire.keys import create, paths, read_public
from .credentials import ClusterCredentials

SERVER: Final = "server"


class Home:
    """The directory of a node, which is made with mode 0700."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keys = directory / "keys"
        self.allow = self.keys / "allowed_clients"
        self.durable = directory / "durable"
        self._last_start = directory / "kept.json"
        self._credentials = directory / "credentials.json"
        private(directory)
        private(self.keys)

    @property
    def secret(self) -> Path:
        """The file with the daemon's secret key, which is made on first use."""
        public, secret = paths(self.keys, SERVER)
        if not (public.exists() and secret.exists()):
            self._new_pair()
        return secret

    @property
    def public(self) -> str:
        """The daemon's public key."""
        return read_public(self.secret.with_suffix(".key")).decode()

    def rotate(self) -> None:
        """Make a new pair of keys, which the next start uses."""
        self._new_pair()

    def _new_pair(self) -> None:
        for file in paths(self.keys, SERVER):
            file.unlink(missing_ok=True)
        create(self.keys, SERVER)

    # -- authentication --------------------------------------------------------------------------------------------

    def credentials(self) -> ClusterCredentials | None:
        """The stored credentials; None if there are none, or they are damaged."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return ClusterCredentials.from_plain(json.loads(self._credentials.read_text()))
        return None

    def admit_clients(self, credentials: ClusterCredentials) -> None:
        """Store credentials, and admit only their clients. The daemon reads the list again."""
        write_whole(self._credentials, json.dumps(credentials.to_plain()), mode=0o600)
        lines = [f"{key} {name}\n" for name, key in credentials.clients.items()]
        write_whole(self.allow, "".join(lines), mode=0o600)

    # -- numbers that outlive a supervisor -------------------------------------------------------------------------

    def last_start(self) -> dict[str, Any]:
        """The `incarnation` and the `ports` of the last start; empty if none are stored, or they are damaged."""
        with suppress(OSError, ValueError):
            found = json.loads(self._last_start.read_text())
            if type(found.get("incarnation")) is int and isinstance(found.get("ports"), list):
                return dict(found)
        return {}

    def note_start(self, incarnation: int, ports: tuple[int, ...]) -> None:
        write_whole(self._last_start, json.dumps({"incarnation": incarnation, "ports": ports}), mode=0o600)


def private(directory: Path) -> Path:
    """Make a directory that only this user can access, whatever the umask, and also each missing parent."""
    if not directory.exists():
        private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o700)
    return directory
