"""From the address of one daemon to a session on all daemons of its cluster."""

from __future__ import annotations

import os

from ...interpreter.errors import MetadataError
from ...interpreter.wire.addresses import find_daemon, for_client, is_local
from ..locations.locations import located
from ..outbox.outbox import Outbox
from ..session.connect import Wanted, checked, connect_daemon, connect_inside
from ..session.parts import Parts
from ..transport.seeking import running
from .cluster import Cluster
from .session import ClusterSession


def connect_cluster(
    address: str | None, keys: str | os.PathLike[str] | None, *, strict: bool, frames: int | None, name: str | None
) -> ClusterSession:
    """See `tensord.connect_cluster`."""
    wanted = checked(address, Wanted(strict=strict, keys=keys, frames=frames, name=name))
    where = address or find_daemon() or running()
    home = connect_inside(where, wanted, Outbox) if is_local(where) else connect_daemon(for_client(where).text, wanted)
    try:
        return ClusterSession(cluster_of(home._core, wanted))
    except BaseException:
        home.close()
        raise


def cluster_of(core: Parts, wanted: Wanted) -> Cluster:
    """The cluster of the machine behind a session; MetadataError if it is of none."""
    if not core.node:
        message = f"the machine at {core.address} is of no cluster: it has no node name (docs/cluster.md)"
        raise located(MetadataError(f"{message}; connect({core.address!r}) opens a session on it alone"))
    return Cluster(core, core.answers.query("members"), wanted)
