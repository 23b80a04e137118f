"""Two daemons on loopback, with a proxy in front of each, and faults for them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

import tensord as td
from tensord.streams.links.tcp.frames import HeaderKind

from ....puppet import Puppet, eventually
from ..nodes import Keyed
from .holding import WAIT, HoldingProxy

SILENCE = 2.0  # seconds of silence that break a link, in tests of that: a busy machine may halt a process for one
LONG_SILENCE = 60.0  # in tests where a break shows at once, so that nothing waits for silence
IN_TIME = 9.0  # seconds within which a wait ends after a fault: less than the ten that break a client's connection
NODES = ("node0", "node1")
SETTINGS = "lease = 0.2"


def links(silence: float) -> str:
    """The configuration of links that so many seconds of silence break."""
    return f'encryption = "none"\npatience = {silence}\n'


class Room:
    """The daemons. A context manager. `silence`: the seconds that break a link."""

    def __init__(self, home: Path, silence: float) -> None:
        self._undo = ExitStack()
        self.daemons = self._undo.enter_context(Keyed(home, SETTINGS, links(silence)))
        self.proxies = {node: self._undo.enter_context(HoldingProxy()) for node in NODES}
        self.daemons.fronts = {node: proxy.address for node, proxy in self.proxies.items()}
        self._incarnations = dict.fromkeys(NODES, 0)
        self._stopped: set[str] = set()
        self.heal()

    def heal(self) -> None:
        """Start the nodes that do not run, and introduce them to each other."""
        for proxy in self.proxies.values():
            proxy.go()
        for node in NODES:
            if node not in self.daemons.running:
                self._start(node)
        for node in self._stopped:
            os.kill(self.daemons.running[node].pid, signal.SIGCONT)
        self._stopped.clear()
        self.daemons.join()

    def _start(self, node: str) -> None:
        self._incarnations[node] += 1
        self.daemons.start(node, self._incarnations[node])
        self.proxies[node].target = self.daemons.members[node].values

    def hold_at(self, node: str, kind: HeaderKind, nth: int = 1) -> None:
        """Hold the frames that a node gets from the other one at that frame."""
        self.proxies[node].hold_at(kind, nth)

    def await_hold(self, node: str) -> None:
        assert self.proxies[node].held.wait(WAIT)

    def inflict(self, fault: str, client: Puppet | None) -> None:
        """Let a fault happen, and then release the held frames."""
        what, _, node = fault.partition(" ")
        if what == "kill":
            self.daemons.kill(node)
            self.daemons.join(*self.daemons.running, **{node: "lost"})
        elif what == "stop":
            os.kill(self.daemons.running[node].pid, signal.SIGSTOP)
            self._stopped.add(node)
        elif what == "cut":
            for proxy in self.proxies.values():
                proxy.cut()
        elif client is not None:
            client.kill()
        for proxy in self.proxies.values():
            proxy.go()

    def serving(self) -> list[str]:
        """The nodes that were neither killed nor stopped."""
        return [node for node in NODES if node in self.daemons.running and node not in self._stopped]

    def ended(self, tensor: td.Tensor) -> Any:
        """The value, or None if it has failed with NodeLost; either in time."""
        began = time.monotonic()
        try:
            return np.asarray(tensor.numpy())
        except td.NodeLost:
            return None
        finally:
            assert time.monotonic() - began < IN_TIME

    def check_quiet(self, node: str) -> None:
        """A node works, and has nothing left that waits."""
        with self.daemons.running[node].connect() as session:
            eventually(lambda: not session._core.answers.query("invariants")["instructions"], IN_TIME)
            assert not session._core.answers.query("invariants")["violations"]
            assert (session.asarray([1.0], device="sim:0") + 1).item() == 2.0

    def check_empty(self, node: str) -> None:
        """All memory is free, once all sessions are gone."""
        with self.daemons.running[node].connect() as session:
            eventually(lambda: not used_of(session._core.answers.query("status")))

    def check_arrives(self) -> None:
        """A value goes there and back. The first tries may begin before a break is noticed."""
        with self.daemons.connect() as session:
            eventually(lambda: arrives(session))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.heal()
        self._undo.__exit__(None, None, None)


def used_of(status: dict[str, Any]) -> dict[str, int]:
    """The devices with memory in use."""
    return {name: row["used"] for name, row in status["devices"].items() if row["used"]}


def arrives(session: td.Session) -> bool:
    try:
        x = session.asarray(np.arange(5.0), device="node0/sim:0").to_device("node1/sim:0").to_device("node0/cpu:0")
        values = x.tolist()
    except td.NodeLost:
        return False
    assert values == [0.0, 1.0, 2.0, 3.0, 4.0]
    return True
