"""Finds out the state of a node whose connection is broken: asks its new daemon, or the other nodes.

A session over tcp is resumed if only the connection was broken, and its transport tries that for the whole lease. The
session cannot be resumed if the daemon has ended. So while the transport tries, a thread asks: a daemon at the node's
own address for its incarnation, and the other members for their tables of members. If no process has listened at the
address for `REFUSED_AFTER` seconds, the daemon has ended, too, since a daemon listens as long as it lives.

Rejected: asking through the open sessions of the other nodes. The asking thread would need their locks, which a program
may hold for as long as an atomic block takes.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from ...interpreter.errors import MetadataError, TensordError, node_lost
from ...interpreter.wire.addresses import is_local, parse
from ...interpreter.wire.members import Member, table_of
from ..transport.keys import socket_options
from ..transport.questions import Questions
from ..transport.remote import RemoteTransport
from .losses import tell_losses

if TYPE_CHECKING:
    from ..session.parts import Parts
    from .cluster import Cluster

PAUSE: Final = 0.1  # seconds between two rounds
ANSWER_TIMEOUT: Final = 1.0  # seconds for a daemon to answer
ALIVE_PAUSE: Final = 0.5  # seconds between two questions to a daemon that answers
REFUSED_AFTER: Final = 1.0  # seconds without a listener after which the daemon has ended


def watch(cluster: Cluster, core: Parts) -> None:
    """Begin to ask whenever the connection of that session is broken. When the session has ended, tell the other
    nodes."""
    transport = core.transport
    tell_losses(cluster, core)
    if isinstance(transport, RemoteTransport):
        transport.tell_away_to(partial(start, ref(cluster), core.node, transport))


def start(cluster: ref[Cluster], node: str, transport: RemoteTransport) -> None:
    """Begin to ask, on a new thread. Called on the transport's thread, without a lock."""
    watched = cluster()
    if watched is not None:
        threading.Thread(
            target=ask_until_known, args=(watched, node, transport), name="tensord-cluster", daemon=True
        ).start()


def ask_until_known(cluster: Cluster, node: str, transport: RemoteTransport) -> None:
    """Ask until the connection is back, or the node is known to be lost."""
    listened = monotonic()
    while transport.away and not transport.lost:
        member = cluster.reached(node)
        why = reason_lost(cluster, member, transport.incarnation)
        if why is None or (not why and not is_refused(member.address)):
            listened = monotonic()
        elif not why and monotonic() - listened > REFUSED_AFTER:
            why = f"no daemon listens at {member.address} any more"
        if why:
            transport.give_up(node_lost(node, why))
        elif cluster.ended.wait(PAUSE if why is not None else ALIVE_PAUSE):
            return


def reason_lost(cluster: Cluster, member: Member, incarnation: int) -> str | None:
    """The reason why that incarnation of a node is gone, "" if it is unknown; None if the incarnation itself
    answers."""
    asked = (member, *(cluster.reached(node) for node in cluster.nodes() if node != member.node))
    for peer in asked:
        rows = ask(peer, cluster.wanted.keys)
        known = None if rows is None else table_of(rows).get(member.node)
        if known is not None and not known.is_up:
            return f"{peer.node} says that it is {known.state}"
        if known is not None and known.incarnation != incarnation:
            return "its daemon was started again"
        if known is not None and peer is member:
            return None
    return ""


def ask(member: Member, keys: str | os.PathLike[str] | None) -> Any:
    """The members, as that member lists them; None if it does not answer. A machine of this process is not asked."""
    if not member.address or is_local(member.address):
        return None
    with suppress(TensordError, OSError):
        options = socket_options(member.address, keys, member.key)
        with Questions(member.address, options, ANSWER_TIMEOUT) as questions:
            return questions.ask("members")
    return None


def is_refused(address: str) -> bool:
    """Return whether the system reports that no process listens at an address."""
    try:
        where = parse(address)
        if where.kind == "ipc":
            return False  # its end is known at once
        with socket.create_connection((where.host, where.port), ANSWER_TIMEOUT):
            return False
    except ConnectionRefusedError:
        return True
    except (OSError, MetadataError):
        return False
