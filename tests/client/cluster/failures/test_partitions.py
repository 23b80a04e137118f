"""A partition with both sides alive: a node's daemon is cut off, and a new one is to take its place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

import tensord as td
from tensord.client.cluster.moving import issue
from tensord.collectives import all_reduce
from tensord.interpreter.wire.messages import encode_message
from tensord.interpreter.wire.node_messages import Send

from ....daemon import Daemon
from ....streams.links.tcp.proxy import Proxy
from ..nodes import Keyed
from .room import SETTINGS, SILENCE, links

LIMIT = 20.0  # seconds until a test that hangs fails


class Divided:
    """node0, and node1, with proxies between them, and between node1 and its clients. A context manager. `durable`: the
    directory of node1's names; `inside`: a session on the old daemon of node1, on its side."""

    def __init__(self, home: Path) -> None:
        self._undo = ExitStack()
        self.durable = home / "durable"
        self.daemons = daemons = self._undo.enter_context(Keyed(home, SETTINGS, links(SILENCE)))
        daemons.start("node0")
        self.old: Daemon = daemons.start("node1", durable=self.durable)
        member = daemons.members["node1"]
        self.to_node0 = self._proxy(daemons.members["node0"].values)
        self.to_node1 = self._proxy(member.values), self._proxy(member.address.removeprefix("tcp://"))
        daemons.fronts = {"node0": self.to_node0.address, "node1": self.to_node1[0].address}
        daemons.members["node1"] = member._replace(address=f"tcp://{self.to_node1[1].address}")
        daemons.join()
        self.inside = self._undo.enter_context(self.old.connect())

    def _proxy(self, target: str) -> Proxy:
        return self._undo.enter_context(Proxy(target))

    def connect(self) -> td.ClusterSession:
        return self._undo.enter_context(self.daemons.connect())

    def cut_off(self) -> None:
        """Cut everything between the nodes, and between clients and the old daemon of node1."""
        self.to_node0.stall(on=True)
        for proxy in self.to_node1:
            proxy.close()

    def replace(self, durable: Path) -> None:
        """Start a daemon of node1 beside the old one, on the side of node0; AssertionError if it does not start."""
        self.daemons.start("node1", incarnation=2, durable=durable)
        self.daemons.fronts.clear()
        self.daemons.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[Divided]:
    with Divided(tmp_path) as found:
        yield found


def ones(session: Any, node: str) -> td.Tensor:
    found: td.Tensor = session.asarray([1.0, 1.0], device=f"{node}/sim:0")
    return found


def test_durable_names_in_a_shared_directory_have_one_owner_as_long_as_the_old_daemon_lives(divided: Divided) -> None:
    session = divided.connect()
    session.publish("w", ones(session, "node1"), durable=True)
    y = session.lookup("w")
    divided.cut_off()
    x = y.to_device("node0/sim:0")
    divided.daemons.join("node0", node1="lost")
    for lost in (x, y):
        with pytest.raises(td.NodeLost, match="node node1 is lost: "):
            lost.wait(LIMIT)
    with pytest.raises(td.NodeLost, match="node node1 is lost: "):
        session.lookup("node1/w")
    with pytest.raises(AssertionError, match=f"in use by process {divided.old.pid};"):
        divided.replace(divided.durable)
    divided.inside.publish("w", divided.inside.asarray([2.0]), durable=True)  # the old daemon still owns them
    divided.old.kill()
    divided.replace(divided.durable)
    assert session.lookup("node1/w").tolist() == [2.0]


def test_nothing_of_an_old_daemon_that_still_lives_reaches_or_takes_what_is_of_the_new_one(
    divided: Divided, tmp_path: Path
) -> None:
    session = divided.connect()
    session.publish("w", ones(session, "node1"), durable=True)
    between = divided._undo.enter_context(td.connect_cluster(divided.old.address, keys=divided.daemons.keys))
    old, here = ones(between, "node1"), ones(between, "node0")
    between.sync()
    divided.cut_off()
    divided.replace(tmp_path / "another")
    assert session.names() == []  # a directory that is not shared has nothing of the other one
    assert divided.inside.lookup("w").tolist() == [1.0, 1.0]
    divided.to_node0.stall(on=False)  # the old daemon reaches node0 again, which knows the new one
    (total, _) = all_reduce([here, old])
    for lost in (old.to_device("node0/sim:0"), here.to_device("node1/sim:0"), total):
        with pytest.raises(td.NodeLost, match=r"node node[01] is lost: "):
            lost.wait(LIMIT)
    new, transfer = ones(session, "node1") * 3, os.urandom(16)
    old._core.outbox.messages.append(encode_message(Send(old._id, "node0", transfer, 0)))  # under the same name
    between.sync(LIMIT)
    there: Any = session.asarray([0.0], device="node0/sim:0")._core
    arrived = issue(new._core, new, there, "node0/sim:0", new._known_meta(), transfer)
    np.testing.assert_array_equal(arrived.numpy(), [3.0, 3.0])
    assert (new + ones(session, "node0").to_device("node1/sim:0")).tolist() == [4.0, 4.0]
