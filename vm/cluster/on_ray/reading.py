"""Reads from a running cluster: logs, the daemons' figures, the nodes' connections to each other, and their clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import ray

from ..configuration import bracketed
from .cluster import ANSWER_TIMEOUT, answers, failure_reason, running_supervisors, supervisors_named

HOLD_TIMEOUT: Final = 10.0  # how many seconds a supervisor waits for new lines before it answers
CONNECT_TIMEOUT: Final = 3.0  # the time limit for a connection between two nodes, in seconds
CLOCK_READINGS: Final = 5  # how often a clock is read; the reading with the shortest round trip counts


def lines(namespace: str, nodes: Sequence[str], count: int, *, follow: bool) -> Iterator[tuple[str, str]]:
    """The last `count` lines of each node's log; with `follow` also new lines, without end.

    ClusterError without a cluster.
    """
    handles = supervisors_named(namespace, nodes)
    last = dict.fromkeys(handles, 0)
    for node, new_lines in answers({node: handle.log.remote(0, 0.0) for node, handle in handles.items()}).items():
        if isinstance(new_lines, BaseException):
            yield node, f"(no log: {failure_reason(new_lines)})"
            continue
        for last[node], line in new_lines[max(len(new_lines) - count, 0) :]:
            yield node, line
    pending = {handle.log.remote(last[node], HOLD_TIMEOUT): node for node, handle in handles.items()} if follow else {}
    while pending:
        ready, _ = ray.wait(list(pending))
        for reference in ready:
            node = pending.pop(reference)
            (new_lines,) = answers({node: reference}).values()
            if isinstance(new_lines, BaseException):
                yield node, f"(no more: {failure_reason(new_lines)})"
                continue
            for last[node], line in new_lines:
                yield node, line
            pending[handles[node].log.remote(last[node], HOLD_TIMEOUT)] = node


def statuses(namespace: str) -> dict[str, Mapping[str, Any]]:
    """The status of each daemon that answers."""
    rows = answers({node: handle.status.remote() for node, handle in running_supervisors(namespace).items()})
    return {node: row for node, row in rows.items() if not isinstance(row, BaseException)}


def connections(namespace: str, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], float | str]:
    """For each pair of nodes and each port: how long a connection takes, or why it fails."""
    handles = running_supervisors(namespace)
    pending = {}
    for source in rows:
        for target in rows:
            if source is not target and source["node"] in handles:
                for endpoint in endpoints(target):
                    host, _, port = endpoint.rpartition(":")
                    reach = handles[source["node"]].reach
                    pending[source["node"], target["node"], endpoint] = reach.remote(
                        host.strip("[]"), int(port), CONNECT_TIMEOUT
                    )
    results: dict[Any, Any] = answers(pending, CONNECT_TIMEOUT + ANSWER_TIMEOUT)  # type: ignore[arg-type]
    return {
        key: failure_reason(time_or_error) if isinstance(time_or_error, BaseException) else time_or_error
        for key, time_or_error in results.items()
    }


def endpoints(row: Mapping[str, Any]) -> list[str]:
    """The addresses of a node: for clients, and for values from other nodes."""
    return [endpoint for endpoint in (row["address"].removeprefix("tcp://"), row["values"]) if endpoint]


def scraped() -> list[str]:
    """The addresses (HOST:PORT) at which Prometheus can scrape Ray's nodes; empty if Ray runs without agents."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return [
        f"{bracketed(node['NodeManagerAddress'])}:{node['MetricsExportPort']}"
        for node in alive
        if node["MetricsExportPort"] > 0
    ]


def clocks(namespace: str) -> dict[str, tuple[float, float]]:
    """By how many seconds each node's clock is ahead of this one, and the error: half of the shortest round trip."""
    return {node: offset(handle) for node, handle in running_supervisors(namespace).items()}


def offset(handle: Any) -> tuple[float, float]:
    readings = []
    for _ in range(CLOCK_READINGS):
        before = time.time()
        node_time = ray.get(handle.clock.remote(), timeout=ANSWER_TIMEOUT)
        after = time.time()
        readings.append(((after - before) / 2, node_time - (before + after) / 2))
    error, ahead = min(readings)
    return ahead, error
