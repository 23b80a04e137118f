"""When the session on a node has ended, withdraws that node's halves of transfers, for which other nodes would wait.

A daemon knows only of transfers whose messages it has received. No daemon knows of messages that a client has not sent
yet; so the client itself withdraws the other halves of these transfers, on its remaining sessions.

Threads. A loss is reported inside any lock, and a program may hold the lock of another node's outbox for as long as an
atomic block takes. So a thread tells the nodes. Code that issues a transfer checks afterwards for such a loss, because
its messages may have come after those of that thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from ...interpreter.errors import NodeLost, TensordError

if TYPE_CHECKING:
    from ..core.core import Core
    from ..outbox.outbox import Outbox
    from .cluster import Cluster


def tell_losses(cluster: Cluster, core: Core) -> None:
    """Tell the other nodes when that session is lost."""
    core.outbox.transport.tell_loss_to(partial(report_loss, ref(cluster), core.node, core.outbox))


def report_loss(cluster: ref[Cluster], node: str, outbox: Outbox, error: TensordError) -> None:
    """The session on a node has ended. Called inside any lock."""
    outbox.lost(error)
    owner = cluster()
    if owner is not None and isinstance(error, NodeLost) and not owner.ended.is_set():
        threading.Thread(target=withdraw, args=(owner, node), name="tensord-cluster", daemon=True).start()


def withdraw(cluster: Cluster, node: str) -> None:
    """Make the other nodes fail transfers that wait for that node."""
    for core in cluster.cores():
        if core.node != node:
            with suppress(TensordError):
                core.answers.ask("withdraw", node)


@contextmanager
def telling_losses(cluster: Cluster, cores: Iterable[Core]) -> Iterator[None]:
    """A block that issues transfers between these sessions. At its end, the others are told of sessions that ended in
    it."""
    try:
        yield
    finally:
        for core in cores:
            if core.closed:
                withdraw(cluster, core.node)
