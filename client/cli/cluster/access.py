"""A client's keys: a directory with its own pair, and the public keys of the nodes."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ....interpreter.whole_file import write_whole
from ....interpreter.wire.keys import create, paths, read_public


def usual_directory(cluster: str) -> Path:
    """The directory to which `cluster up` writes the keys of its user."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "tensord" / "clusters" / cluster


def user_name() -> str:
    """The user's name, as far as it can be that of a key."""
    name = re.sub(r"[^\w.-]", "-", getpass.getuser(), flags=re.ASCII)[:64]
    return name if re.match(r"[A-Za-z0-9]", name) else "client"


def own_key(directory: Path, client: str, *, new: bool = False) -> str:
    """The client's public key. A pair is made if there is none, or if a `new` one is requested."""
    files = paths(directory, client)
    if new:
        for file in files:
            file.unlink(missing_ok=True)
    if not all(file.exists() for file in files):
        create(directory, client)
    return read_public(files[0]).decode()


def write_nodes_keys(directory: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write each node's public key as NODE.key, and the first node's also as server.key, which clients look for."""
    known = [row for row in rows if row.get("key")]
    for row in known:
        write_key(directory / f"{row['node']}.key", row)
    if known:
        write_key(directory / "server.key", known[0])


def write_key(file: Path, row: Mapping[str, Any]) -> None:
    text = (
        f'# The public key of {row["node"]} at {row["address"]}, for tensord.\ncurve\n    public-key = "{row["key"]}"\n'
    )
    write_whole(file, text, mode=0o644)
