"""Names on all nodes: `node1/w` is the name w on node1, and a plain w is looked up on all nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...interpreter.errors import MetadataError, MetadataKeyError, MetadataTypeError, TensordError
from ..locations.locations import located
from ..requests.answers import seconds
from ..session import names as of_node
from ..session.parts import Parts
from ..sharing.names import AT_ONCE, PAUSE, listed_names
from ..waiting.procedures import of, side_by_side
from ..waiting.steps import Awaiting, Pause, Steps
from .facet import ClusterFacet, all_or_raise, open_cores
from .order import is_over_nodes

if TYPE_CHECKING:
    from .cluster import Cluster


class NameAtNode(NamedTuple):
    """A name at one node: the core of its session, and the name there."""

    core: Parts
    name: str

    def __str__(self) -> str:
        return f"{self.core.node}/{self.name}"


class ClusterNames(ClusterFacet):
    """Tensors and routines under names, each on the node of its tensor."""

    def publish(self, name: str | Mapping[str, Any], value: Any = None, *, durable: bool = False) -> None:
        """Give a tensor or a routine a name on its node, or a dict of them together; see `Session.publish`.

        The name `w` of a tensor on node1 is `node1/w` on every cluster session.

        :raises MetadataError: The tensors of a dict are on several nodes.
        """
        self._wait_for(publishing(self._cluster, name, value, durable=bool(durable)))

    def publish_async(
        self, name: str | Mapping[str, Any], value: Any = None, *, durable: bool = False
    ) -> Awaiting[None]:
        """`await session.publish_async(name, tensor)`: see `publish`."""
        return self._awaitable(publishing(self._cluster, name, value, durable=bool(durable)))

    def lookup(self, name: str | Sequence[str], *, snapshot: bool = False, wait: float | None = AT_ONCE) -> Any:
        """Return the tensor or routine that is published under a name on any node; see `Session.lookup`.

        The name `node1/w` is looked up on node1, and the name `w` on all nodes. Names on one node are looked up
        together.

        :raises MetadataError: Several nodes have the name; the message lists the full names.
        """
        return self._wait_for(looking_up(self._cluster, name, snapshot=bool(snapshot), wait=wait))

    def lookup_async(
        self, name: str | Sequence[str], *, snapshot: bool = False, wait: float | None = AT_ONCE
    ) -> Awaiting[Any]:
        """`tensor = await session.lookup_async(name)`: see `lookup`."""
        return self._awaitable(looking_up(self._cluster, name, snapshot=bool(snapshot), wait=wait))

    def unpublish(self, *names: str) -> None:
        """Remove names; handles to their tensors stay. See `Session.unpublish`.

        Names on one node are removed together.
        """
        self._wait_for(unpublishing(self._cluster, names))

    def unpublish_async(self, *names: str) -> Awaiting[None]:
        """`await session.unpublish_async(name)`: see `unpublish`."""
        return self._awaitable(unpublishing(self._cluster, names))

    def names(self, kind: Literal["", "tensor", "routine"] = "") -> list[str]:
        """Return the names on all nodes that are up, as ``node1/w``, sorted; see `Session.names`."""
        return self._wait_for(listing(self._cluster, kind))

    def names_async(self, kind: Literal["", "tensor", "routine"] = "") -> Awaiting[list[str]]:
        """`names = await session.names_async()`: see `names`."""
        return self._awaitable(listing(self._cluster, kind))


# -- the steps ---------------------------------------------------------------------------------------------------------


def publishing(cluster: Cluster, name: Any, value: Any, *, durable: bool) -> Steps[None]:
    given: Any = {name: value} if isinstance(name, str) else name
    if not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
        raise located(MetadataError("publish: takes a name and a tensor or routine, or a dict of these by name"))
    for key, each in given.items():
        if is_over_nodes(each):
            where = ", ".join(sorted(each.placement.nodes))
            message = f"publish: {key!r} has parts on {where}, and a name is on one node: publish its .parts(), or "
            raise located(MetadataError(message + "the value on one device (to_device)"))
    cores = {key: core_behind(cluster, each) for key, each in given.items()}
    for key, core in cores.items():
        node, plain = split(cluster, key)
        if node not in {"", core.node}:
            raise located(MetadataError(f"publish: {plain!r} is on {core.node}, where its name is {core.node}/{plain}"))
    if len(set(cores.values())) > 1:
        nodes = ", ".join(f"{key!r} on {core.node}" for key, core in cores.items())
        raise located(MetadataError(f"publish: names that are published together must be of one node, not {nodes}"))
    for core in set(cores.values()):
        there = {split(cluster, key)[1]: each for key, each in given.items()}
        yield from of(core.outbox, of_node.publishing(core, there, None, durable=durable))


def looking_up(cluster: Cluster, name: str | Sequence[str], *, snapshot: bool, wait: float | None) -> Steps[Any]:
    names = listed_names((name,) if isinstance(name, str) else name)
    limit, began = seconds("lookup", None if wait is AT_ONCE else wait), monotonic()
    until = began if wait is AT_ONCE else inf if limit is None else began + limit
    while True:
        try:
            at_nodes = yield from located_on(cluster, names)
            values = yield from looked_up(at_nodes, snapshot=snapshot)
        except MetadataKeyError:
            if monotonic() >= until:
                raise
            yield Pause(PAUSE)
        else:
            return values[name] if isinstance(name, str) else values


def looked_up(at_nodes: Mapping[str, NameAtNode], *, snapshot: bool) -> Steps[dict[str, Any]]:
    """Look up these names, with one question to each node."""
    by_core = grouped(at_nodes.values())
    results = yield from side_by_side(
        (core.outbox, of_node.looking_up(core, some, snapshot=snapshot, wait=AT_ONCE)) for core, some in by_core.items()
    )
    values = dict(zip(by_core, all_or_raise(results), strict=True))
    return {name: values[one.core][one.name] for name, one in at_nodes.items()}


def unpublishing(cluster: Cluster, names: Sequence[str]) -> Steps[None]:
    at_nodes = yield from located_on(cluster, listed_names(names))
    by_core = grouped(at_nodes.values())
    all_or_raise(
        (yield from side_by_side((core.outbox, of_node.unpublishing(core, some)) for core, some in by_core.items()))
    )


def listing(cluster: Cluster, kind: str) -> Steps[list[str]]:
    return sorted(map(str, (yield from published(cluster, kind))))


# -- where names are ---------------------------------------------------------------------------------------------------


def located_on(cluster: Cluster, names: Iterable[str]) -> Steps[dict[str, NameAtNode]]:
    """The node of each name. MetadataKeyError for an unknown name, MetadataError for one on several nodes."""
    parts = {name: split(cluster, name) for name in names}
    nodes = {node for node, _ in parts.values()}
    there = yield from published(cluster, "", None if "" in nodes else nodes)
    at_nodes: dict[str, NameAtNode] = {}
    for name, (node, plain) in parts.items():
        matches = [one for one in there if one.name == plain and node in {"", one.core.node}]
        if node and not matches:
            cluster.core(node)  # its error says why the node could not be asked
        if not matches:
            where = f"node {node}" if node else f"any node ({', '.join(cluster.nodes())})"
            raise located(
                MetadataKeyError(f"nothing is published under {plain!r} on {where}{unreachable_text(cluster)}")
            )
        if len(matches) > 1:
            raise located(MetadataError(f"several nodes have {plain!r}: name one of {', '.join(map(str, matches))}"))
        at_nodes[name] = matches[0]
    return at_nodes


def published(cluster: Cluster, kind: str, nodes: Collection[str] | None = None) -> Steps[list[NameAtNode]]:
    """All names of these nodes, or of all that can be reached; a node that is lost meanwhile has none."""
    cores = yield from open_cores(cluster, nodes)
    listings = yield from side_by_side((core.outbox, of_node.listing(core, kind)) for core in cores)
    if cores and all(isinstance(names, TensordError) for names in listings):
        all_or_raise(listings)
    return [
        NameAtNode(core, name)
        for core, names in zip(cores, listings, strict=True)
        if not isinstance(names, TensordError)
        for name in names
    ]


def grouped(at_nodes: Iterable[NameAtNode]) -> dict[Parts, tuple[str, ...]]:
    """The names by node, each once."""
    by_core: dict[Parts, dict[str, None]] = {}
    for at_node in at_nodes:
        by_core.setdefault(at_node.core, {})[at_node.name] = None
    return {core: tuple(names) for core, names in by_core.items()}


def split(cluster: Cluster, name: str) -> tuple[str, str]:
    """The node in a name, "" for none, and the rest of the name."""
    node, slash, rest = name.partition("/")
    return (node, rest) if slash and node in cluster.table else ("", name)


def unreachable_text(cluster: Cluster) -> str:
    """The part of an error that names the nodes that cannot be asked."""
    lost = [member.node for member in cluster.table.values() if not member.is_up]
    return f"; not asked: {', '.join(lost)}" if lost else ""


def core_behind(cluster: Cluster, value: Any) -> Parts:
    """The core of a tensor or routine that is published."""
    core: Any = getattr(value, "_core", None)
    core = getattr(core, "core", core)  # a linked routine's
    if core is None or getattr(core, "cluster", None) is not cluster:
        core = cluster.default()  # it refuses tensors that are not its own
    if not isinstance(core, Parts):
        raise located(MetadataTypeError(f"publish: expected a tensor or a routine, got {type(value).__name__}"))
    return core
