"""Launches of nodes that are linked over TCP: the words as frames, and a node that ends meanwhile."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import NodeLost
from tensord.streams.gangs.states import State

from ..links.tcp.nodes import WAIT, Nodes
from .world import World

NODES = ("node0", "node1", "node2")


def test_launches_in_opposite_orders_end_on_all_nodes() -> None:
    with Nodes(3, tls=True) as linked:
        world = World(NODES, {one.node: one for one in linked.all})
        pairs = {"x": NODES[:2], "y": (NODES[2], NODES[1]), "z": (NODES[0], NODES[2]), "all": NODES}
        for label, nodes in pairs.items():
            world.add(label, nodes)
        for number, node in enumerate(NODES):
            labels = [label for label, nodes in pairs.items() if node in nodes]
            for label in labels[number % 2 :] + labels[: number % 2]:
                world.begin(label, node)
        world.run_until(lambda: all(gang.state is State.OVER for gang in world.gangs.values()), WAIT)
        assert all(world.outcome(*key) is None for key in world.gangs)
        world.check_over()


@pytest.mark.parametrize("ending", [0, 1])
def test_a_node_that_ends_during_a_launch_ends_it_on_the_others(ending: int) -> None:
    with Nodes(3) as linked:
        world = World(NODES, {one.node: one for one in linked.all})
        world.add("x", NODES)
        stuck = world.libraries[NODES[ending]]
        stuck.steps = list  # type: ignore[method-assign]
        for node in NODES:
            world.begin("x", node)
        world.run_until(lambda: bool(stuck.queue), WAIT)
        assert linked[ending].close(WAIT)
        left = [node for node in NODES if node != NODES[ending]]
        world.run_until(lambda: all(world.results["x", node] for node in left), WAIT)
        assert all(isinstance(world.outcome("x", node), NodeLost) for node in left)
        assert not any(world.turns[node]._asked for node in left)
