"""Cluster sessions on machines in this process, and on two daemons with keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tensord as td
from tensord.client.embedded import local
from tensord.streams.links.in_memory import InMemory, pair
from tensord.vm.machine import VirtualMachine

from .nodes import DEVICES, Keyed, joined


@pytest.fixture
def links() -> dict[str, InMemory]:
    """The links of two machines of this process, by node."""
    return dict(zip(("node0", "node1"), pair(), strict=True))


@pytest.fixture
def machines_of_nodes(monkeypatch: pytest.MonkeyPatch, links: dict[str, InMemory]) -> Iterator[dict[str, td.Session]]:
    """A session on each of two machines of this process that know each other and send each other values, by node."""

    def machine(asked: local.MachineRequest) -> VirtualMachine:
        node = asked.node or ""
        return VirtualMachine(asked.devices or (), tracing=asked.tracing, node=node, links=links.get(node))

    monkeypatch.setattr(local, "new_machine", machine)
    with (
        td.connect("local:node0", node="node0", devices=DEVICES) as first,
        td.connect("local:node1", node="node1", devices=DEVICES) as second,
    ):
        yield joined({"node0": first, "node1": second})


@pytest.fixture
def cluster(machines_of_nodes: dict[str, td.Session]) -> Iterator[td.ClusterSession]:
    """A session on both."""
    assert len(machines_of_nodes) == 2
    with td.connect_cluster("local:node0") as session:
        yield session


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """Two daemons on loopback, with keys, that know each other."""
    home: Path = tmp_path_factory.mktemp("cluster")
    with Keyed(home) as daemons:
        daemons.start("node0")
        daemons.start("node1")
        daemons.join()
        yield daemons
