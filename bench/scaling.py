"""`python -m bench.scaling`: a simulation of clusters of 2 to 1,024 nodes, from the measured costs of a few.

The simulation shows which part reaches its limit first as nodes are added (docs/scaling.md). A step of a collective
takes the link's latency, the time for its bytes, and a random delay drawn from a seed. A node begins a step when its
own last step and its neighbour's have ended, so one slow step delays later ones, as on real machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

NODES: Final = (2, 8, 64, 256, 1024)
SIZES: Final = (1 << 20, 64 << 20)
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in seconds, bytes, and bytes per second.

    Measured on two shared cores over loopback: `op`, a client's time for one op of a chain. Assumed: `bandwidth`,
    and `latency`, the aim for a value of 1 KiB from device to device. Estimated: `beat`, the time to handle one
    heartbeat, which comes once in each `period`; `entry`, the bytes of a member in the table, and `told`, the time
    to read it; `jitter`, the mean share by which a step is longer.
    """

    latency: float = 300e-6
    bandwidth: float = 1.1e9
    op: float = 5e-6
    beat: float = 20e-6
    period: float = 1.0
    entry: int = 400
    told: float = 10e-6
    jitter: float = 0.2


def ring(nodes: int, size: int, costs: Costs, seed: int = 0) -> float:
    """Seconds of a ring all-reduce: 2 (n - 1) steps, each with an n-th of the bytes."""
    draw = np.random.default_rng(seed)
    step = costs.latency + size / nodes / costs.bandwidth
    ends = np.zeros(nodes)
    for _ in range(2 * (nodes - 1)):
        ends = np.maximum(ends, np.roll(ends, 1)) + step * (1 + draw.exponential(costs.jitter, nodes))
    return float(ends.max())


def tree(nodes: int, size: int, costs: Costs, seed: int = 0, piece: int = MIB) -> float:
    """Seconds of a reduction up a binary tree and a broadcast down, in pieces, one after another.

    A node receives each piece from two children, so the bytes go through its link twice.
    """
    draw = np.random.default_rng(seed)
    pieces, levels = ceil(size / piece), ceil(log2(nodes))
    step = costs.latency + 2 * min(piece, size) / costs.bandwidth
    ends = np.zeros(2 * levels)  # of the last piece, by level; the slowest of each level's nodes counts
    width = [2 ** min(at, 2 * levels - 1 - at) for at in range(2 * levels)]
    for _ in range(pieces):
        before = 0.0
        for at in range(2 * levels):
            slowest = draw.exponential(costs.jitter, width[at]).max()
            before = ends[at] = max(before, ends[at]) + step * (1 + slowest)
    return float(ends[-1])


def control(nodes: int, costs: Costs) -> dict[str, float]:
    """The load of one daemon, one supervisor and one client."""
    peers = nodes - 1
    return {
        "connections of a daemon": 2 * peers,
        "threads of a daemon": 2 * peers,
        "processor for heartbeats": 2 * peers * costs.beat / costs.period,
        "table, KiB": nodes * costs.entry / 1024,
        "cluster up, s of tables": nodes * nodes * costs.told,
        "questions between supervisors": nodes * peers,
        "ops per s and node of one client": 1 / costs.op / nodes,
    }


def main() -> None:
    costs = Costs()
    table = Table(*("nodes", *(f"{name}, {size >> 20} MiB, ms" for size in SIZES for name in ("ring", "tree"))))
    for nodes in NODES:
        times = [one(nodes, size, costs) for size in SIZES for one in (ring, tree)]
        table.add_row(str(nodes), *(f"{1e3 * time:.1f}" for time in times))
    console = Console(width=110)
    console.print(table)
    table = Table("one has", *map(str, NODES))
    rows = {nodes: control(nodes, costs) for nodes in NODES}
    for name in rows[NODES[0]]:
        table.add_row(name, *(f"{rows[nodes][name]:,.3g}" for nodes in NODES))
    console.print(table)


if __name__ == "__main__":
    main()
