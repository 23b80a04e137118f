"""Makes a Ray cluster of simulated nodes on this machine, for trials and tests. It ends with the process that made it.

It is Ray's own cluster for tests: each node is a raylet. If this process is killed, each raylet is ended by a reaper
that Ray starts beside it. Without RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, Ray would listen on all interfaces.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

LOOPBACK: Final = "127.0.0.1"
OBJECT_STORE_BYTES: Final = 80 << 20  # bytes of each node's object store, which tensord does not use
ENVIRONMENT: Final = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
HEALTH_CHECKS: Final = {  # a node whose process has ended is noticed within two seconds
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


def node_options(cpus: float = 2) -> dict[str, Any]:
    return {
        "num_cpus": cpus,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
        "node_ip_address": LOOPBACK,
    }


def start(count: int) -> Any:
    """Start a `ray.cluster_utils.Cluster` of `count` nodes."""
    os.environ.update(ENVIRONMENT)
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # else Ray's messages end up amid our progress output
    from ray.cluster_utils import Cluster

    options = node_options()
    made = Cluster(initialize_head=True, head_node_args={**options, "_system_config": HEALTH_CHECKS})
    try:
        for _ in range(count - 1):
            made.add_node(**options)
        made.wait_for_nodes()
    except BaseException:
        made.shutdown()
        raise
    return made


@contextmanager
def simulated(count: int) -> Iterator[str]:
    """A Ray cluster of `count` nodes for a `with` block, as its address."""
    made = start(count)
    try:
        yield str(made.address)
    finally:
        made.shutdown()


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt inside a `with` block."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
