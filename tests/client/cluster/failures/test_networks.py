"""Two nodes in network namespaces of their own, between which the cable is pulled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tensord as td

from ....daemon import Daemon
from ....puppet import eventually
from ..nodes import joined
from .namespaces import HOSTS, MAIN, Namespaces, NoNamespacesError

CONFIG = """devices = ["cpu:0", "sim:0", {{name = "store:0", durable = "{durable}"}}]
[cluster]
patience = 2.0
"""


class Nodes:
    """The daemons, and the networks."""

    def __init__(self, home: Path, undo: ExitStack) -> None:
        self.home = home
        self.networks = undo.enter_context(Namespaces())
        self._undo = undo
        self.daemons = {f"node{number}": self.start(f"node{number}", number) for number in (0, 1)}

    def start(self, node: str, network: int, incarnation: int = 1) -> Daemon:
        """Start the daemon of a node, with the directory of the node's names, in a network."""
        home = self.home / f"{node}-{incarnation}-{network}"
        home.mkdir(exist_ok=True)
        config = home / "c.toml"
        config.write_text(CONFIG.format(durable=self.home / node))
        options = ["--node", node, "--incarnation", str(incarnation), "--values", f"{HOSTS[network]}:0"]
        return self._undo.enter_context(
            Daemon.start(home, "--config", str(config), *options, self.networks.option(network), main=MAIN)
        )

    def join(self) -> None:
        with ExitStack() as stack:
            joined({node: stack.enter_context(daemon.connect()) for node, daemon in self.daemons.items()})


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as undo:
        try:
            found = Nodes(tmp_path, undo)
        except NoNamespacesError as error:
            pytest.skip(f"no network namespaces here: {error}")
        found.join()
        yield found


def arrives(session: td.Session) -> bool:
    """Does a value go from node1 to node0? None does before the link is back."""
    try:
        return session.asarray([3.0], device="node1/sim:0").to_device("node0/sim:0").tolist() == [3.0]
    except td.NodeLost:
        return False


def test_nodes_that_do_not_see_each_other_go_on_and_the_durable_names_have_one_owner(nodes: Nodes) -> None:
    with td.connect_cluster(nodes.daemons["node0"].address) as session:
        x, y = (session.xp.ones(1 << 18, device=f"{node}/sim:0") for node in nodes.daemons)
        session.publish("w", y, durable=True)
        eventually(lambda: arrives(session))
        nodes.networks.pull()
        for lost in (x.to_device("node1/sim:0"), y.to_device("node0/sim:0")):
            with pytest.raises(td.NodeLost, match=r"node node[01] is lost: "):
                lost.wait(20)
        assert [(each + 1)[0].item() for each in (x, y)] == [2.0, 2.0]
        nodes.networks.plug()
        eventually(lambda: arrives(session))
        nodes.networks.pull()
        with pytest.raises(AssertionError, match=f"in use by process {nodes.daemons['node1'].pid};"):
            nodes.start("node1", network=0, incarnation=2)
        session.publish("w", y * 5, durable=True)
        nodes.daemons["node1"].kill()
        nodes.daemons["node1"] = nodes.start("node1", network=0, incarnation=2)
        nodes.join()
        assert session.lookup("node1/w")[0].item() == 5.0
        eventually(lambda: arrives(session))
