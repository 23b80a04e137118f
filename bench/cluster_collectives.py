"""An all-reduce around a ring of four nodes, against bare sockets that carry as many bytes in as many steps."""

from __future__ import annotations

import numpy as np

import tensord as td

from .cluster import two_nodes
from .collectives import reduced
from .links import MIB
from .measure import Row, Settings, clocked, compare
from .socket_ring import socket_ring

NODES = ("node0", "node1", "node2", "node3")
DEVICES = 'devices = ["cpu:0", "sim:0"]'
PLAIN = '\n[cluster]\nvalues = "127.0.0.1:0"\nencryption = "none"\n'


def measure(settings: Settings) -> list[Row]:
    """The row of the ring; none without a daemon."""
    if settings.baseline_only:
        return []
    ranks, nbytes = len(NODES), settings.size(64, 4) * MIB
    with (
        two_nodes(DEVICES, PLAIN, NODES) as (addresses, pair),
        td.connect_cluster(addresses[0], keys=pair) as session,
        socket_ring(ranks, nbytes // ranks, 2 * (ranks - 1)) as sockets,
    ):
        values = np.ones(nbytes // 4, np.float32)
        tensors = [session.asarray(values, device=f"{node}/sim:0") for node in NODES]
        session.sync()
        runs = compare(
            settings,
            lambda: min(clocked(lambda: reduced(tensors)) for _ in range(3)),
            lambda: min(clocked(sockets.go_around) for _ in range(3)),
            "ms",
        )
    note = "the sockets do no additions, and write into the same warm memory in every step"
    return [
        Row(
            "ring all-reduce on 4 nodes",
            "ms",
            min(runs["ours"]),
            min(runs["baseline"]),
            1.5,
            1.15,
            "ratio",
            "sockets in a ring",
            note=note,
            runs=runs,
        )
    ]
