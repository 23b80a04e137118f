"""Program order, as methods of a cluster session: flush, sync, fetch, cancel and restart on all nodes.

These methods concern the sessions that are open; none of them opens the session of another node. A wait asks all nodes
before it waits for the first one, and waits for the others also if one fails; then it raises the first error. A timeout
is for the whole call.

Each part of a wait runs under the lock of its node's outbox, or under the cluster's gate if it concerns several nodes;
`side_by_side` takes pairs of the owner of that lock and the procedure.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...interpreter.errors import MetadataTypeError
from ..calls.checks import foreign
from ..core.core import Core
from ..files.checkpoints import keeping_durable
from ..global_tensors.tensor import GlobalTensor
from ..global_tensors.values import fetching_all, value
from ..locations.locations import located
from ..requests.answers import seconds
from ..session.order import making_room
from ..session.parts import listed
from ..tensor.tensor import Tensor
from ..transport.replies import Reply
from ..waiting.procedures import side_by_side
from ..waiting.steps import Awaiting, Steps, Within
from .facet import ClusterFacet, all_or_raise

if TYPE_CHECKING:
    from .cluster import Cluster


class ClusterOrder(ClusterFacet):
    """Methods that concern everything issued before, on any node."""

    def flush(self) -> None:
        """Send all unsent messages to all nodes; see `Session.flush`."""
        for core in self._cluster.cores():
            core.outbox.flush()

    def flush_async(self) -> Awaiting[None]:
        """`await session.flush_async()`: send all unsent messages, and wait until there is room for more."""
        return self._awaitable(flushing(self._cluster))

    def sync(self, timeout: float | None = None, *, durable: bool = False) -> int:
        """Wait until everything issued before has ended, on all nodes; see `Session.sync`.

        :raises NodeLost: A node's session has ended since the last `sync`. Raised once, after the wait for the others.
        """
        return self._wait_for(syncing(self._cluster, timeout, durable=bool(durable)))

    def sync_async(self, *, durable: bool = False) -> Awaiting[int]:
        """`failed = await session.sync_async()`: see `sync`."""
        return self._awaitable(syncing(self._cluster, None, durable=bool(durable)))

    def fetch(self, tensors: Iterable[Tensor]) -> list[NDArray[Any]]:
        """Return the values of several tensors as NumPy arrays, from all nodes concurrently; see `Session.fetch`."""
        return self._wait_for(fetching(self._cluster, listed(tensors)))

    def fetch_async(self, tensors: Iterable[Tensor]) -> Awaiting[list[NDArray[Any]]]:
        """`arrays = await session.fetch_async(tensors)`: their values as of this call. See `fetch`."""
        return self._awaitable(fetching(self._cluster, listed(tensors)))

    def cancel(self) -> None:
        """Cancel all pending work on all nodes, and all work issued before `restart`; see `Session.cancel`."""
        for core in self._cluster.cores():
            core.cancellation.cancel()

    def restart(self) -> None:
        """Accept instructions again on all nodes after `cancel`; see `Session.restart`."""
        for core in self._cluster.cores():
            core.cancellation.restart()


def flushing(cluster: Cluster) -> Steps[None]:
    """`flush` on each node, with room for more messages afterwards."""
    yield from side_by_side((core.outbox, making_room(core)) for core in cluster.cores())


def syncing(cluster: Cluster, timeout: float | None, *, durable: bool) -> Steps[int]:
    """The number of failed instructions on all nodes.

    The first error of an answer is raised, else the loss of a node that has ended meanwhile. Values of durable names
    are waited for last.
    """
    began, limit = monotonic(), seconds("sync", timeout)
    cluster.check_open()
    asked = [(core, core.answers.ask_to_sync()) for core in cluster.cores()]
    ended = yield from side_by_side((core.outbox, answered(reply, began, limit)) for core, reply in asked)
    losses = cluster.losses()
    failed = sum(all_or_raise(ended))
    for loss in losses:
        raise located(loss)
    if durable:
        rest = rest_of(began, limit)
        all_or_raise(
            (yield from side_by_side((core.outbox, keeping_durable(core.outbox, timeout=rest)) for core, _ in asked))
        )
    return failed


def answered(reply: Reply, began: float, limit: float | None) -> Steps[int]:
    """The answer to a `sync` of one node, within the rest of the time."""
    return int((yield Within(reply, rest_of(began, limit))))


def rest_of(began: float, limit: float | None) -> float | None:
    """The seconds left of a limit."""
    return None if limit is None else max(began + limit - monotonic(), 0.0)


def fetching(cluster: Cluster, tensors: Iterable[Tensor]) -> Steps[list[NDArray[Any]]]:
    """The arrays in the order of the tensors. The tensors of one node are fetched by one procedure, and so are all
    tensors over several nodes."""
    if not isinstance(tensors, Iterable):
        raise located(MetadataTypeError(f"fetch: takes a list of tensors, not {type(tensors).__name__}"))
    wanted = [own(cluster, tensor) for tensor in tensors]
    owners: list[Any] = [cluster.gate if is_over_nodes(tensor) else tensor._core for tensor in wanted]
    groups: dict[Any, list[Tensor]] = {}
    for owner, tensor in zip(owners, wanted, strict=True):
        groups.setdefault(owner, []).append(tensor)
    fetched = all_or_raise((yield from side_by_side(fetching_group(owner, group) for owner, group in groups.items())))
    values = {owner: iter(arrays) for owner, arrays in zip(groups, fetched, strict=True)}
    return [next(values[owner]) for owner in owners]


def is_over_nodes(tensor: Any) -> bool:
    """Return whether the tensor is a global one with parts on several nodes."""
    return type(tensor) is GlobalTensor and tensor.placement.spans


def fetching_group(owner: Any, tensors: list[Any]) -> tuple[Any, Steps[list[NDArray[Any]]]]:
    """The owner of the lock, and the procedure that fetches the tensors. `owner`: the core of the tensors' node, or the
    gate for tensors over several nodes."""
    if isinstance(owner, Core):
        return owner.outbox, fetching_all(owner, tensors)
    return owner, fetching_over_nodes(owner, tensors)


def fetching_over_nodes(gate: Any, tensors: list[Any]) -> Steps[list[NDArray[Any]]]:
    """The values of tensors over several nodes, fetched concurrently."""
    return all_or_raise((yield from side_by_side((gate, value(tensor)) for tensor in tensors)))


def own(cluster: Cluster, tensor: Any) -> Tensor:
    """The tensor; raises an error if it does not belong to the cluster session, on any node, or was released."""
    if not isinstance(tensor, Tensor):
        raise located(MetadataTypeError(f"expected a tensor, got {type(tensor).__name__}; use asarray"))
    if tensor._core.cluster is not cluster:
        raise located(foreign(tensor))
    return tensor._living()
