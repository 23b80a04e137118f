"""Files and checkpoints of a cluster session: a checkpoint has one directory for each node."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ..calls.checks import Device
from ..core.core import Core
from ..files.checkpoints import Checkpointing, checkpoint, directory_of, restoring
from ..files.loading import LoadOptions, loading
from ..files.saving import Saving
from ..locations.locations import located
from ..requests.answers import seconds
from ..session.parts import Parts, listed
from ..sharing.names import listed_names
from ..tensor.tensor import Tensor
from ..waiting.procedures import of, side_by_side
from ..waiting.steps import Awaiting, Steps
from .facet import ClusterFacet, on_node, open_cores
from .moving import brought
from .names import grouped, located_on, split
from .order import rest_of
from .routing import checked, first_name

if TYPE_CHECKING:
    from .cluster import Cluster


class ClusterCheckpointing:
    """A checkpoint that the nodes are writing. `parts`: the checkpoint of each node."""

    def __init__(self, parts: Mapping[str, Checkpointing]) -> None:
        self.parts = dict(parts)

    @property
    def done(self) -> bool:
        """Return whether all parts are on the disk, or have failed."""
        return all(part.done for part in self.parts.values())

    @property
    def error(self) -> TensordError | None:
        """The first error of a node, if there is one."""
        return next((named(node, part.error) for node, part in self.parts.items() if part.error is not None), None)

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until all nodes have written; returns the report of each node (see `Session.checkpoint`), or raises an
        error."""
        began, limit = monotonic(), seconds("wait", timeout)
        reports = {}
        for node, part in self.parts.items():
            with naming(node):
                reports[node] = part.wait(rest_of(began, limit))
        return reports

    async def _awaited(self) -> dict[str, Any]:
        reports = {}
        for node, part in self.parts.items():
            with naming(node):
                reports[node] = await part
        return reports

    def __await__(self) -> Generator[Any, Any, dict[str, Any]]:
        """`reports = await checkpoint`, as `wait`, while the loop goes on."""
        return self._awaited().__await__()

    def __repr__(self) -> str:
        return f"<checkpoint of {', '.join(self.parts)}: {'done' if self.done else 'writing'}>"


class ClusterCheckpoints(ClusterFacet):
    """The methods that read and write files on all nodes."""

    def load(
        self,
        path: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        device: Device | None = None,
        *,
        own: bool = False,
        raw: bool = False,
        digest: bool = False,
    ) -> dict[str, Tensor]:
        """Return the tensors of a file by name, at home on a device of any node; see `Session.load`.

        If the device's node cannot open this process's files, the first node reads the file and sends the values at
        once.
        """
        wanted = LoadOptions(path, listed(names), device, bool(own), bool(raw), bool(digest))
        return self._wait_for(loaded(self._cluster, wanted))

    def load_async(
        self,
        path: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        device: Device | None = None,
        *,
        own: bool = False,
        raw: bool = False,
        digest: bool = False,
    ) -> Awaiting[dict[str, Tensor]]:
        """`tensors = await session.load_async(path)`: see `load`."""
        wanted = LoadOptions(path, listed(names), device, bool(own), bool(raw), bool(digest))
        return self._awaitable(loaded(self._cluster, wanted))

    def save(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Saving:
        """Save the present values of tensors of any nodes as one file; see `Session.save`.

        The first node writes the file; values of other nodes are sent to it.
        """
        return on_node(self._cluster.first()).save(path, all_brought(self._cluster, tensors), metadata)

    def save_async(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Awaiting[Saving]:
        """`saving = await session.save_async(path, tensors)`, and `await saving`: see `save`."""
        return on_node(self._cluster.first()).save_async(path, all_brought(self._cluster, tensors), metadata)

    def checkpoint(
        self, directory: str | os.PathLike[str], names: str | Sequence[str] | None = None, *, keep: int = 2
    ) -> Any:
        """Write the published values of all nodes, or only these names; see `Session.checkpoint`.

        Each node writes to a subdirectory with its name, on its own host: names of node1 lie below `directory/node1`.
        The values of one node are of one moment; the moments of two nodes differ.
        """
        return self._wait_for(checkpointing(self._cluster, directory, names, keep))

    def restore(
        self,
        directory: str | os.PathLike[str],
        names: str | Sequence[str] | None = None,
        *,
        generation: int = 0,
        deep: bool = False,
    ) -> dict[str, Any]:
        """Publish the contents of a checkpoint, or only these names, each on its node; see `Session.restore`.

        :returns: The reports, by node, of the nodes that have a part of the checkpoint.
        :raises TensordError: A node refuses or is lost, or no node has a part of the checkpoint.
        """
        return self._wait_for(restored(self._cluster, directory, names, generation, deep=bool(deep)))

    def restore_async(
        self,
        directory: str | os.PathLike[str],
        names: str | Sequence[str] | None = None,
        *,
        generation: int = 0,
        deep: bool = False,
    ) -> Awaiting[dict[str, Any]]:
        """`reports = await session.restore_async(directory)`: see `restore`."""
        return self._awaitable(restored(self._cluster, directory, names, generation, deep=bool(deep)))


def all_brought(cluster: Cluster, tensors: Any) -> Any:
    """The tensors, moved to the first node. A value that is no mapping is refused there."""
    if not isinstance(tensors, Mapping):
        return tensors
    return {name: brought(cluster, cluster.first(), tensor) for name, tensor in tensors.items()}


def named(node: str, error: TensordError) -> TensordError:
    """An error of a node, with the node's name in front unless it is there already."""
    named_error = error.reraisable()
    if node not in named_error.message:
        named_error.message = f"{node}: {named_error.message}"
    return named_error


@contextmanager
def naming(node: str) -> Iterator[None]:
    """A block that puts the node's name in front of errors."""
    try:
        yield
    except TensordError as error:
        raise located(named(node, error)) from None


# -- the steps ---------------------------------------------------------------------------------------------------------


def loaded(cluster: Cluster, wanted: LoadOptions) -> Steps[dict[str, Tensor]]:
    first, device = cluster.first(), wanted.device or cluster.placement
    core = checked(first if device is None else cluster.core(cluster.node_of(first_name(device))))
    if device is None or reads_files(core) or not reads_files(first):
        return (yield from of(core.outbox, loading(core, wanted)))
    found = yield from of(first.outbox, loading(first, wanted._replace(device=first.devices[0])))
    return {name: tensor.to_device(device) for name, tensor in found.items()}


def reads_files(core: Core) -> bool:
    """Return whether the core's node can open files of this process, or by their paths."""
    transport = core.transport
    return bool(transport.opens_files or transport.names_files)


def checkpointing(cluster: Cluster, directory: Any, names: Any, keep: int) -> Steps[ClusterCheckpointing]:
    where = directory_of(directory, "checkpoint")
    cores = yield from open_cores(cluster)
    some: Mapping[Parts, tuple[str, ...] | None] = dict.fromkeys(cores)
    if names is not None:
        at_nodes = yield from located_on(cluster, listed_names((names,) if isinstance(names, str) else names))
        some = grouped(at_nodes.values())
    parts = {}
    for core, chosen in some.items():
        parts[core.node] = checkpoint(core, core.writes, where / core.node, chosen, keep)
    return ClusterCheckpointing(parts)


def restored(cluster: Cluster, directory: Any, names: Any, generation: int, *, deep: bool) -> Steps[dict[str, Any]]:
    where = directory_of(directory, "restore")
    cores = yield from open_cores(cluster)
    wanted = chosen(cluster, cores, names)
    results = yield from side_by_side(
        (core.outbox, restoring(core, where / core.node, some, generation, deep=deep)) for core, some in wanted.items()
    )
    by_node = dict(zip((core.node for core in wanted), results, strict=True))
    errors = [named(node, each) for node, each in by_node.items() if isinstance(each, TensordError)]
    refused = [each for each in errors if isinstance(each, ProtocolError | ConnectionLost)]
    if refused or len(errors) == len(by_node):
        raise located((refused or errors)[0])
    return {node: each for node, each in by_node.items() if not isinstance(each, TensordError)}


def chosen(cluster: Cluster, cores: Sequence[Parts], names: Any) -> dict[Parts, tuple[str, ...] | None]:
    """The names to restore on each node; None: all. A name without a node is restored on every node that has it."""
    if names is None:
        return dict.fromkeys(cores)
    by_core: dict[Parts, tuple[str, ...] | None] = {}
    for name in listed_names((names,) if isinstance(names, str) else names):
        node, plain = split(cluster, name)
        for core in cores:
            if node in {"", core.node}:
                by_core[core] = (*(by_core.get(core) or ()), plain)
    return by_core
