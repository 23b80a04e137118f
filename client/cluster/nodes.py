"""The nodes of a cluster session: lists them and their devices, and waits until they serve."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ...interpreter.errors import MetadataError, MetadataTypeError, TensordError
from ...interpreter.wire.forms import shown
from ..locations.locations import located
from ..requests.answers import seconds
from ..waiting.steps import Awaiting, LongWork, Pause, Steps
from .facet import ClusterFacet

if TYPE_CHECKING:
    from .cluster import Cluster

PAUSE: Final = 0.1  # seconds between two checks


class ClusterNodes(ClusterFacet):
    """Questions about the nodes."""

    def nodes(self) -> dict[str, str]:
        """The nodes and their states, "up", "lost" or "left", as a node reports them now."""
        self._cluster.check_open()
        self._cluster.refresh()
        return {member.node: member.state for member in self._cluster.table.values()}

    def devices_of(self, node: str) -> list[str]:
        """Return the names of a node's devices; for a lost node, those that it had.

        :param node: The name of the node.
        :returns: The names.
        :raises MetadataError: There is no such node.
        """
        self._cluster.check_open()
        if node not in self._cluster.table:
            self._cluster.refresh()
        if node not in self._cluster.table:
            raise located(unknown_node(self._cluster, node))
        return list(self._cluster.table[node].devices)

    def wait_for_nodes(self, nodes: int | Collection[str] | None = None, timeout: float | None = None) -> list[str]:
        """Wait until nodes serve.

        A node serves when a session on it is open: then ops on its devices work, also if its daemon was restarted.

        :param nodes: The names of nodes, or their number; by default all nodes that have not left.
        :param timeout: The maximal wait in seconds; by default no limit.
        :returns: The names of the nodes that serve.
        :raises TimeoutError: The time is over; the message has the problem of each other node.
        """
        return self._wait_for(awaiting(self._cluster, nodes, timeout))

    def wait_for_nodes_async(
        self, nodes: int | Collection[str] | None = None, timeout: float | None = None
    ) -> Awaiting[list[str]]:
        """`await session.wait_for_nodes_async()`: see `wait_for_nodes`."""
        return self._awaitable(awaiting(self._cluster, nodes, timeout))


def awaiting(cluster: Cluster, nodes: Any, timeout: float | None) -> Steps[list[str]]:
    wanted, least = checked_nodes(nodes)
    limit, began = seconds("wait_for_nodes", timeout), monotonic()
    while True:
        cluster.check_open()
        serving, missing = yield LongWork(partial(serving_and_missing, cluster, wanted))
        if not missing if least is None else len(serving) >= least:
            found: list[str] = serving
            return found
        if limit is not None and monotonic() - began >= limit:
            raise TimeoutError(timeout_text(limit, serving, missing))
        yield Pause(PAUSE)


def checked_nodes(nodes: Any) -> tuple[tuple[str, ...] | None, int | None]:
    """The names or the number of nodes; neither stands for all nodes."""
    if nodes is None:
        return None, None
    if type(nodes) is int and nodes > 0:
        return None, nodes
    names = (nodes,) if isinstance(nodes, str) else tuple(nodes) if isinstance(nodes, Collection) else ()
    if not names or not all(isinstance(name, str) for name in names):
        message = f"wait_for_nodes: takes names of nodes, or how many of them, not {shown(nodes)}"
        raise located(MetadataTypeError(message))
    return names, None


def serving_and_missing(cluster: Cluster, wanted: Collection[str] | None) -> tuple[list[str], dict[str, str]]:
    """The nodes with an open session, among these or all that have not left; and why the others have none."""
    cluster.refresh()
    names = wanted or [member.node for member in cluster.table.values() if member.state != "left"]
    serving, missing = [], {}
    for node in names:
        try:
            away = cluster.core(node).transport.away
        except TensordError as error:
            missing[node] = error.message
        else:
            if away:
                missing[node] = f"the connection to {node} is broken"
            else:
                serving.append(node)
    return serving, missing


def timeout_text(limit: float, serving: Collection[str], missing: dict[str, str]) -> str:
    """The message of a TimeoutError: the nodes that serve, and the problem of each other one."""
    there = ", ".join(serving) or "no node"
    return "; ".join((f"after {limit:g} s {there} {'serve' if len(serving) > 1 else 'serves'}", *missing.values()))


def unknown_node(cluster: Cluster, node: Any) -> MetadataError:
    """The error for the name of a node that does not exist."""
    return MetadataError(f"unknown node {shown(node)}; nodes: {', '.join(sorted(cluster.table))}")
