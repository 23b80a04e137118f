"""Random programs on two nodes that are linked over TCP, in one process, through proxies that cut their connections.

Without cuts the bits are those of one machine. With cuts each value has these bits, or has failed with NodeLost, and
transfers after the last cut arrive.

`python -m tests.client.cluster.over_tcp --seed 7 --programs 1 --cuts` repeats a program.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import tensord as td
from tensord.client.embedded import local
from tensord.interpreter.errors import NodeLost
from tensord.vm.machine import VirtualMachine

from ...streams.links.tcp.nodes import WAIT, Node, join
from ...streams.links.tcp.proxy import Proxy
from .nodes import DEVICES, joined
from .test_same_bits import ALONE, NODES, run

TRIES = 5


class Linked:
    """Two machines of this process with TCP links between them, and the proxies in front of both."""

    def __init__(self, nodes: list[Node], proxies: list[Proxy], session: td.ClusterSession) -> None:
        self.nodes = nodes
        self.proxies = proxies
        self.session = session

    def arrives(self) -> bool:
        """Does a value arrive on each node? The first try may begin before a break is noticed."""
        for _ in range(TRIES):
            there = self.session.asarray(np.arange(5.0), device=NODES[0]).to_device(NODES[3])
            back = there.to_device(NODES[1])
            try:
                return back.numpy().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
            except NodeLost:
                continue
        return False


@contextmanager
def linked(*, tls: bool = False) -> Iterator[Linked]:
    """Two nodes."""
    with ExitStack() as stack:
        nodes = [Node(f"node{number}", tls=tls) for number in range(2)]
        for node in nodes:
            stack.callback(node.close, WAIT)
        proxies = [stack.enter_context(Proxy(node.address)) for node in nodes]
        entries = [node.entry._replace(values=one.address) for node, one in zip(nodes, proxies, strict=True)]
        links = {node.node: node for node in nodes}

        def machine(asked: local.MachineRequest) -> VirtualMachine:
            node = asked.node or ""
            return VirtualMachine(asked.devices or (), tracing=asked.tracing, node=node, links=links.get(node))

        with patch.object(local, "new_machine", machine):
            sessions = {
                name: stack.enter_context(td.connect(f"local:{name}", node=name, devices=DEVICES)) for name in links
            }
        joined(sessions)
        join(nodes, *entries)
        yield Linked(nodes, proxies, stack.enter_context(td.connect_cluster("local:node0")))


def wanted_of(seed: int) -> Any:
    """The values on one machine."""
    with td.connect("local", devices=list(ALONE)) as alone:
        return run(alone, ALONE, seed)


def check(seed: int, *, cuts: bool, tls: bool = False) -> int:
    """One program; the number of cuts of its connections."""
    wanted = wanted_of(seed)
    with linked(tls=tls) as pair:
        assert pair.arrives()
        if not cuts:
            found = run(pair.session, NODES, seed)
            for got, expected in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(got, expected)
            return 0
        choose = random.Random(seed)
        for proxy in pair.proxies:
            proxy.cut_after(choose.randrange(1, 3_000))
        with patch.object(td.ClusterSession, "fetch", lambda _session, tensors: [values_of(one) for one in tensors]):
            found = run(pair.session, NODES, seed)
        for got, expected in zip(found, wanted, strict=True):
            if got is not None:
                np.testing.assert_array_equal(got, expected)
        for proxy in pair.proxies:
            proxy.left = None
        assert pair.arrives()
        return sum(proxy.cuts for proxy in pair.proxies)


def values_of(tensor: Any) -> Any:
    """The values; None if they have failed with NodeLost."""
    try:
        return tensor.numpy()
    except NodeLost:
        return None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--programs", type=int, default=100)
    options.add_argument("--cuts", action="store_true")
    options.add_argument("--tls", action="store_true")
    given = options.parse_args()
    cuts = 0
    for seed in range(given.seed, given.seed + given.programs):
        print(f"seed {seed}", flush=True)  # noqa: T201 - the command's output
        cuts += check(seed, cuts=given.cuts, tls=given.tls)
    print(f"{given.programs} programs, {cuts} cuts")  # noqa: T201


if __name__ == "__main__":
    main()
