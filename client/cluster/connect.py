"""From the address of one daemon to a session on all daemons of its cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...interpreter.errors import MetadataError
from ...interpreter.wire.addresses import find_daemon, for_client, is_local
from ...interpreter.wire.members import Member
from ..locations.locations import located
from ..outbox.outbox import Outbox
from ..session.connect import ConnectOptions, checked, connect_daemon, connect_inside
from ..session.parts import Parts
from ..transport.keys import socket_options
from ..transport.seeking import running_daemon
from .cluster import Cluster
from .session import ClusterSession


def connect_cluster(
    address: str | None, keys: str | os.PathLike[str] | None, *, strict: bool, frames: int | None, name: str | None
) -> ClusterSession:
    """See `tensord.connect_cluster`."""
    wanted = checked(address, ConnectOptions(strict=strict, keys=keys, frames=frames, name=name))
    where = address or find_daemon() or running_daemon()
    home = connect_inside(where, wanted, Outbox) if is_local(where) else connect_daemon(for_client(where).text, wanted)
    try:
        return ClusterSession(cluster_of(home._core, wanted))
    except BaseException:
        home.close()
        raise


def cluster_of(core: Parts, wanted: ConnectOptions) -> Cluster:
    """The cluster of the machine behind a session; MetadataError if it belongs to none."""
    if not core.node:
        message = f"the machine at {core.address} does not belong to a cluster: it has no node name (docs/cluster.md)"
        raise located(MetadataError(f"{message}; connect({core.address!r}) opens a session on it alone"))
    made = Cluster(core, core.answers.query("members"), wanted)
    check_keys([member for node, member in made.table.items() if node != core.node], wanted)
    return made


def check_keys(others: Iterable[Member], wanted: ConnectOptions) -> None:
    """MetadataError unless there are keys for the members that require them: their sessions are opened at first use."""
    for member in others:
        if member.is_up and member.key and not socket_options(member.address, wanted.keys, member.key):
            message = (
                f"{member.node} at {member.address} requires keys, and this process has none: name the directory with "
                "yours, connect_cluster(keys=...) or $TENSORD_KEYS; `tensord cluster keys` writes one"
            )
            raise located(MetadataError(message))
