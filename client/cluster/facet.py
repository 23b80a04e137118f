"""The base of the classes with the methods of a cluster session, and the code that these methods share.

It runs the steps of a method, for threads and for event loops. The cluster's gate is the lock of these steps, as the
outbox is in a session on one machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...interpreter.errors import TensordError
from ..core.core import Core
from ..session.parts import Parts
from ..session.session import Session
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, LongWork, Steps, on_thread

if TYPE_CHECKING:
    from .cluster import Cluster

T = TypeVar("T")


class ClusterFacet:
    """Some of the session's methods. A method that waits is a procedure of steps, for threads and for event loops."""

    _cluster: Cluster

    def _wait_for(self, steps: Steps[T]) -> T:
        gate: Any = self._cluster.gate
        return on_thread(gate, steps)

    def _awaitable(self, steps: Steps[T]) -> Awaiting[T]:
        gate: Any = self._cluster.gate
        return on_loop(gate, steps)


def on_node(core: Core) -> Session:
    """The session of one node, for calls of its methods."""
    session = object.__new__(Session)
    session._core = core  # type: ignore[assignment]
    return session


def open_cores(cluster: Cluster, nodes: Collection[str] | None = None) -> Steps[list[Parts]]:
    """Open the sessions of these nodes, or of all; returns their cores, without nodes that cannot be reached."""
    cluster.check_open()
    cores: list[Parts] = yield LongWork(partial(cluster.open_all, nodes))
    return [core for core in cores if nodes is None or core.node in nodes]


def all_or_raise(results: Iterable[T | TensordError]) -> list[T]:
    """The results; raises the first error among them."""
    values: list[T] = []
    for result in results:
        if isinstance(result, TensordError):
            raise result
        values.append(result)
    return values
