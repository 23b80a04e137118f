"""Values that are sent from the device of one daemon to that of another, against as many bytes over a bare socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tensord as td

from .cluster import two_nodes
from .measure import Row, Settings, clocked, compare
from .wire import wire

DEVICES = 'devices = ["cpu:0", "sim:0"]'
SOURCE, TARGET = "node0/sim:0", "node1/sim:0"
MIB = 1 << 20


def measure(settings: Settings) -> list[Row]:
    """The rows of links; none without a daemon."""
    if settings.baseline_only:
        return []
    return [*measure_with(settings, "none"), *measure_with(settings, "tls")]


def measure_with(settings: Settings, encryption: str) -> Iterator[Row]:
    """The rows of one kind of encryption."""
    section = f'\n[cluster]\nvalues = "127.0.0.1:0"\nencryption = "{encryption}"\n'
    with two_nodes(DEVICES, section) as (addresses, pair), td.connect_cluster(addresses[0], keys=pair) as session:
        yield measure_large(settings, session, tls=encryption == "tls")
        if encryption == "none":
            yield measure_small(settings, session)


def measure_large(settings: Settings, session: td.ClusterSession, *, tls: bool) -> Row:
    """One large value, until it has arrived.

    The minima are compared, since other work on the machine slows down copies of both sides.
    """
    nbytes, name = settings.size(64 * MIB, MIB), "TLS" if tls else "plain TCP"
    value: Any = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    source = session.asarray(value, device=SOURCE)
    source.wait()
    with wire(nbytes, tls=tls) as bare:
        runs = compare(
            settings,
            lambda: min(sent(source) for _ in range(5)),
            lambda: min(clocked(lambda: bare.send(memoryview(value))) for _ in range(5)),
            "ms",
        )
    return Row(
        f"64 MiB between daemons, {name}",
        "ms",
        min(runs["ours"]),
        min(runs["baseline"]),
        1.3,
        1.1,
        "ratio",
        "TLS socket" if tls else "socket",
        runs=runs,
    )


def measure_small(settings: Settings, session: td.ClusterSession) -> Row:
    """1 KiB, until it has arrived, against a round trip of the client to the remote daemon, which is a part of ours."""
    source = session.asarray(np.zeros(1024, np.uint8), device=SOURCE)
    there = session.asarray(np.zeros(1024, np.uint8), device=TARGET)
    source.wait()
    count = settings.size(200, 5)
    runs = compare(
        settings,
        lambda: min(sent(source) for _ in range(count)),
        lambda: min(clocked(there.wait) for _ in range(count)),
        "ms",
    )
    note = "the baseline is the client's wait for an answer of the receiving node"
    return Row(
        "1 KiB between daemons",
        "ms",
        min(runs["ours"]),
        min(runs["baseline"]),
        1.0,
        0.3,
        baseline_name="an answer",
        note=note,
        runs=runs,
    )


def sent(source: td.Tensor) -> float:
    """Seconds until a value is on the other node."""

    def work() -> None:
        source.to_device(TARGET).wait()

    return clocked(work)
