"""Reports on all nodes: counters, and the trace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ...interpreter.errors import MetadataError, TensordError
from ..locations.locations import located
from ..session.reports import counting
from ..waiting.procedures import side_by_side
from ..waiting.steps import Awaiting, Steps
from .facet import ClusterFacet, open_cores
from .traces import tracing

if TYPE_CHECKING:
    from .cluster import Cluster


class ClusterReports(ClusterFacet):
    """Counters and the trace of all nodes."""

    def stats(self, by: str | None = None) -> dict[str, Any]:
        """Return the counters of each node that can be reached, by node; see `Session.stats`."""
        return self._wait_for(counted(self._cluster, by))

    def stats_async(self, by: str | None = None) -> Awaiting[dict[str, Any]]:
        """`counters = await session.stats_async()`: see `stats`."""
        return self._awaitable(counted(self._cluster, by))

    def record(
        self, path: str | os.PathLike[str], *, limit: int = 0, without: Sequence[str] = ()
    ) -> AbstractContextManager[Any]:
        """Raise MetadataError, since a recording covers one machine; see `Session.record`."""
        del path, limit, without
        raise located(MetadataError("a session on a cluster is not recorded: record one node's daemon (trace record)"))

    def trace(self) -> Any:
        """Return the trace of all nodes so far, on the clock of the first node; see `Session.trace`, docs/cluster.md.

        `trace.clocks` has for each node the nanoseconds by which its clock is ahead, and the bound of the error;
        `trace.nodes` has the trace of each node by itself.
        """
        return self._wait_for(tracing(self._cluster))

    def trace_async(self) -> Awaiting[Any]:
        """`trace = await session.trace_async()`: see `trace`."""
        return self._awaitable(tracing(self._cluster))


def counted(cluster: Cluster, by: str | None) -> Steps[dict[str, Any]]:
    cores = yield from open_cores(cluster)
    results = yield from side_by_side((core.outbox, counting(core, by)) for core in cores)
    errors = [each for each in results if isinstance(each, TensordError)]
    if errors and len(errors) == len(cores):  # as in an atomic block
        raise errors[0]
    return {core.node: each for core, each in zip(cores, results, strict=True) if not isinstance(each, TensordError)}
