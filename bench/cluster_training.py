"""A data-parallel step on devices of two nodes, op by op, against the same on two devices of one node.

Devices compute and copy at configured speeds, and the link between the nodes has the speed of the copies. The
gradient of a layer is summed during the backward pass of the next layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tensord as td
from tensord.collectives import all_reduce

from .cluster import two_nodes
from .links import MIB
from .measure import Row, Settings, clocked, compare

LAYERS, GRADIENTS, COMPUTE = 4, 16 * MIB, 0.02
SPEED = 2e9  # bytes per second of copies between devices, and of the link
STEPS = 5


def measure(settings: Settings) -> list[Row]:
    """The row of the step; none without a daemon."""
    if settings.baseline_only:
        return []
    length = settings.size(GRADIENTS, MIB) // LAYERS // 4
    rate = LAYERS * length / COMPUTE
    sims = ", ".join(f'{{name = "sim:{n}", compute_rate = {rate}, bandwidth = {SPEED}}}' for n in (0, 1))
    link = f'\n[cluster]\nvalues = "127.0.0.1:0"\nencryption = "none"\nlink = {SPEED}\n'
    with (
        two_nodes(f'devices = ["cpu:0", {sims}]', link) as (addresses, pair),
        td.connect_cluster(addresses[0], keys=pair) as session,
    ):
        runs = compare(
            settings,
            lambda: trained(session, ("node0/sim:0", "node1/sim:0"), length),
            lambda: trained(session, ("node0/sim:0", "node0/sim:1"), length),
            "ms",
        )
    return [
        Row(
            "data-parallel step, 2 nodes",
            "ms",
            min(runs["ours"]),
            min(runs["baseline"]),
            1.3,
            1.1,
            "ratio",
            "one node",
            runs=runs,
        )
    ]


def trained(session: td.Session, devices: Sequence[str], length: int) -> float:
    """Seconds of a step: the minimum of several."""
    weights = [[session.asarray(np.ones(length, np.float32), device=one) for one in devices] for _ in range(LAYERS)]
    session.sync()

    def step() -> None:
        made = []
        for layer in weights:
            gradients = [w * 0.5 for w in layer]
            made += all_reduce(gradients)
        for each in made:
            each.wait()

    return min(clocked(step) for _ in range(STEPS))
