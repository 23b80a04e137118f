"""Runs daemons that are the nodes of a cluster, all on this host, for the length of a block.

It is a short form of `tensord cluster up`: it starts a daemon for each node, counts the incarnations of the nodes,
and introduces the daemons to each other with `join`. Clients connect over ipc, so no keys are needed; values are
sent over TCP on loopback, unencrypted.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from own_daemon import OwnDaemon, own_daemon

import tensord as td


class OwnCluster:
    """A daemon with these devices for each node. Use it as a context manager."""

    def __init__(self, nodes: Sequence[str], devices: str) -> None:
        self._config = f"devices = {devices}"
        self._token = secrets.token_hex(32)
        self._incarnations = dict.fromkeys(nodes, 0)
        self._stacks: dict[str, ExitStack] = {}
        self._daemons: dict[str, OwnDaemon] = {}
        self._members: dict[str, dict[str, Any]] = {}

    @property
    def address(self) -> str:
        """The address of one of the daemons."""
        address: str = next(iter(self._daemons.values())).address
        return address

    def start(self, *nodes: str) -> None:
        """Start daemons, each in its next incarnation, and send the new table of members to all daemons."""
        for node in nodes:
            self._incarnations[node] += 1
            options = ["--node", node, "--incarnation", str(self._incarnations[node])]
            options += ["--values", "127.0.0.1:0", "--encryption", "none"]
            stack = self._stacks[node] = ExitStack()
            daemon = self._daemons[node] = stack.enter_context(own_daemon(*options, config=self._config))
            with td.connect(daemon.address) as session:
                (own,) = session._core.answers.query("members")
            self._members[node] = {**own, "address": daemon.address}
        self._tell()

    def revive(self) -> None:
        """Start the daemons that were killed."""
        self.start(*(node for node in self._incarnations if node not in self._daemons))

    def kill(self, node: str) -> None:
        """Kill a node's daemon with SIGKILL, and tell the other daemons that the node is lost."""
        os.kill(self._daemons.pop(node).pid, signal.SIGKILL)
        self._stacks.pop(node).close()
        self._members[node]["state"] = "lost"
        self._tell()

    def _tell(self) -> None:
        for daemon in self._daemons.values():
            with td.connect(daemon.address) as session:
                session._core.answers.query("join", list(self._members.values()), self._token)

    def __enter__(self) -> Self:
        try:
            self.start(*self._incarnations)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as ends:
            for stack in self._stacks.values():
                ends.callback(stack.close)
