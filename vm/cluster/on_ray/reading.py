"""Queries of a running cluster: logs, the daemons' figures, the nodes' connections to each other, and their clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import ray

from ..configuration import bracketed
from .cluster import ANSWER, answers, chosen, running, said

HELD: Final = 10.0  # seconds for which a supervisor holds a question about new lines
CONNECT: Final = 3.0  # seconds for a connection between two nodes
ROUNDS: Final = 5  # of a clock's reading, of which the quickest counts


def lines(namespace: str, nodes: Sequence[str], count: int, *, follow: bool) -> Iterator[tuple[str, str]]:
    """The last lines of each node's log; with `follow` new ones, too, for ever. ClusterError if there is no cluster."""
    handles = chosen(namespace, nodes)
    last = dict.fromkeys(handles, 0)
    for node, found in answers({node: one.log.remote(0, 0.0) for node, one in handles.items()}).items():
        if isinstance(found, BaseException):
            yield node, f"(no log: {said(found)})"
            continue
        for last[node], line in found[max(len(found) - count, 0) :]:
            yield node, line
    asked = {one.log.remote(last[node], HELD): node for node, one in handles.items()} if follow else {}
    while asked:
        ready, _ = ray.wait(list(asked))
        for reference in ready:
            node = asked.pop(reference)
            (found,) = answers({node: reference}).values()
            if isinstance(found, BaseException):
                yield node, f"(no more: {said(found)})"
                continue
            for last[node], line in found:
                yield node, line
            asked[handles[node].log.remote(last[node], HELD)] = node


def statuses(namespace: str) -> dict[str, Mapping[str, Any]]:
    """The status of each daemon; nothing for one that does not answer."""
    found = answers({node: one.status.remote() for node, one in running(namespace).items()})
    return {node: row for node, row in found.items() if not isinstance(row, BaseException)}


def connections(namespace: str, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], float | str]:
    """For each two nodes and each port: how long a connection takes, or why there is none."""
    handles = running(namespace)
    asked = {}
    for here in rows:
        for there in rows:
            if here is not there and here["node"] in handles:
                for place in places(there):
                    host, _, port = place.rpartition(":")
                    reach = handles[here["node"]].reach
                    asked[here["node"], there["node"], place] = reach.remote(host.strip("[]"), int(port), CONNECT)
    found = answers(asked, CONNECT + ANSWER)  # type: ignore[arg-type]  # any key does
    return {key: said(one) if isinstance(one, BaseException) else one for key, one in found.items()}  # type: ignore[misc]


def places(row: Mapping[str, Any]) -> list[str]:
    """The addresses of a node, for clients and for values from other nodes."""
    return [place for place in (row["address"].removeprefix("tcp://"), row["values"]) if place]


def scraped() -> list[str]:
    """The addresses at which Ray offers metrics to Prometheus, HOST:PORT for each of its nodes; none without agents."""
    alive = [one for one in ray.nodes() if one["Alive"]]
    return [
        f"{bracketed(one['NodeManagerAddress'])}:{one['MetricsExportPort']}"
        for one in alive
        if one["MetricsExportPort"] > 0
    ]


def clocks(namespace: str) -> dict[str, tuple[float, float]]:
    """The lead of each node's clock over this one's, with its error: half of the shortest round trip."""
    return {node: offset(handle) for node, handle in running(namespace).items()}


def offset(handle: Any) -> tuple[float, float]:
    found = []
    for _ in range(ROUNDS):
        before = time.time()
        theirs = ray.get(handle.clock.remote(), timeout=ANSWER)
        after = time.time()
        found.append(((after - before) / 2, theirs - (before + after) / 2))
    unsure, ahead = min(found)
    return ahead, unsure
