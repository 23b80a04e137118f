"""Nodes for tests. Tests give them the table of members, as a supervisor does."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import tensord as td
from tensord.interpreter.wire import keys
from tensord.interpreter.wire.members import Member, member_of

from ...daemon import Daemon
from ...ports import free_port

DEVICES = ["cpu:0", "sim:0", "sim:1"]
TOKEN = "t" * 40


def own_entry(session: td.Session) -> Member:
    """A machine's entry about itself."""
    core = session._core
    return next(
        member for row in core.answers.query("members") if (member := member_of(row)).node == session.devices[0][:5]
    )


def tell(session: td.Session, members: list[Member]) -> None:
    """Give a machine the table of members."""
    session._core.answers.query("join", [member.row() for member in members], TOKEN)


def joined(sessions: dict[str, td.Session]) -> dict[str, td.Session]:
    """The sessions, once their machines know each other."""
    members = [own_entry(session) for session in sessions.values()]
    for session in sessions.values():
        tell(session, members)
    return sessions


class Keyed:
    """Daemons on loopback with CURVE keys, each a node, and their table of members. A context manager. `settings`,
    `cluster`: parts of their configuration."""

    def __init__(self, home: Path, settings: str = "", cluster: str = "") -> None:
        self.home = home
        self._settings = settings
        self._cluster = cluster
        self.keys = home / "client"
        self.running: dict[str, Daemon] = {}
        self.members: dict[str, Member] = {}
        self.fronts: dict[str, str] = {}  # where others reach the values of a node, if not at the node itself
        self._undo = ExitStack()
        public, _ = keys.create(self.keys, "me")
        self._allow = home / "allowed"
        self._allow.write_bytes(keys.read_public(public) + b" me\n")
        self._allow.chmod(0o600)

    def start(self, node: str, incarnation: int = 1, durable: Path | None = None) -> Daemon:
        """Start the daemon of a node, on ipc and on a port of its own. `durable`: where its durable names lie."""
        home = Path(tempfile.mkdtemp(prefix=f"{node}-{incarnation}-", dir=self.home))
        public, secret = keys.create(home, "server")
        config = home / "c.toml"
        security = f'[security]\nserver_secret = "{secret}"\nallow = "{self._allow}"'
        store = "" if durable is None else f', {{name = "store:0", durable = "{durable}"}}'
        devices = f"devices = [{', '.join(map(json.dumps, DEVICES))}{store}]"
        config.write_text(f"{self._settings}\n{devices}\n{security}\n[cluster]\n{self._cluster}")
        address = f"tcp://127.0.0.1:{free_port()}"
        options = ["--address", address, "--node", node, "--incarnation", str(incarnation), "--config", str(config)]
        options += ["--values", "127.0.0.1:0"]  # by TLS
        daemon = self._undo.enter_context(Daemon.start(home, *options))
        self.running[node] = daemon
        with daemon.connect() as session:
            key = keys.read_public(public).decode()
            self.members[node] = own_entry(session)._replace(address=address, key=key)
        return daemon

    def join(self, *nodes: str, **states: str) -> None:
        """Give these nodes, or all that run, the table of members; with other states than "up" for some."""
        for node in nodes or self.running:
            with self.running[node].connect() as session:
                tell(session, [self.entry(member, node, states) for member in self.members.values()])

    def entry(self, member: Member, teller: str, states: Mapping[str, str]) -> Member:
        """A member's entry in the table."""
        values = member.values if member.node == teller else self.fronts.get(member.node, member.values)
        return member._replace(state=states.get(member.node, "up"), values=values)

    def connect(self, node: str = "node0", **options: Any) -> td.ClusterSession:
        """A session on all nodes, opened through one of them."""
        return td.connect_cluster(self.running[node].address, keys=self.keys, **options)

    def kill(self, node: str) -> None:
        """Kill the daemon of a node."""
        self.running.pop(node).kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
