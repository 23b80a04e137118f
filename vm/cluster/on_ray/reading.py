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
    for node, found in answers({node: one.log.remote(0, 0.0) for node, one in handles.items()}).items():
        if isinstance(found, BaseException):
            yield node, f"(no log: {failure_reason(found)})"
            continue
        for last[node], line in found[max(len(found) - count, 0) :]:
            yield node, line
    asked = {one.log.remote(last[node], HOLD_TIMEOUT): node for node, one in handles.items()} if follow else {}
    while asked:
        ready, _ = ray.wait(list(asked))
        for reference in ready:
            node = asked.pop(reference)
            (found,) = answers({node: reference}).values()
            if isinstance(found, BaseException):
                yield node, f"(no more: {failure_reason(found)})"
                continue
            for last[node], line in found:
                yield node, line
            asked[handles[node].log.remote(last[node], HOLD_TIMEOUT)] = node


def statuses(namespace: str) -> dict[str, Mapping[str, Any]]:
    """The status of each daemon that answers."""
    found = answers({node: one.status.remote() for node, one in running_supervisors(namespace).items()})
    return {node: row for node, row in found.items() if not isinstance(row, BaseException)}


def connections(namespace: str, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], float | str]:
    """For each pair of nodes and each port: how long a connection takes, or why it fails."""
    handles = running_supervisors(namespace)
    asked = {}
    for here in rows:
        for there in rows:
            if here is not there and here["node"] in handles:
                for endpoint in endpoints(there):
                    host, _, port = endpoint.rpartition(":")
                    reach = handles[here["node"]].reach
                    asked[here["node"], there["node"], endpoint] = reach.remote(
                        host.strip("[]"), int(port), CONNECT_TIMEOUT
                    )
    found = answers(asked, CONNECT_TIMEOUT + ANSWER_TIMEOUT)  # type: ignore[arg-type]  # keys may be of any type
    return {key: failure_reason(one) if isinstance(one, BaseException) else one for key, one in found.items()}  # type: ignore[misc]


def endpoints(row: Mapping[str, Any]) -> list[str]:
    """The addresses of a node: for clients, and for values from other nodes."""
    return [endpoint for endpoint in (row["address"].removeprefix("tcp://"), row["values"]) if endpoint]


def scraped() -> list[str]:
    """The addresses (HOST:PORT) at which Prometheus can scrape Ray's nodes; empty if Ray runs without agents."""
    alive = [one for one in ray.nodes() if one["Alive"]]
    return [
        f"{bracketed(one['NodeManagerAddress'])}:{one['MetricsExportPort']}"
        for one in alive
        if one["MetricsExportPort"] > 0
    ]


def clocks(namespace: str) -> dict[str, tuple[float, float]]:
    """By how many seconds each node's clock is ahead of this one, and the error: half of the shortest round trip."""
    return {node: offset(handle) for node, handle in running_supervisors(namespace).items()}


def offset(handle: Any) -> tuple[float, float]:
    found = []
    for _ in range(CLOCK_READINGS):
        before = time.time()
        theirs = ray.get(handle.clock.remote(), timeout=ANSWER_TIMEOUT)
        after = time.time()
        found.append(((after - before) / 2, theirs - (before + after) / 2))
    unsure, ahead = min(found)
    return ahead, unsure
