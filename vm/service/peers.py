"""The daemons of other nodes: the port where values are taken from them, and the links to them.

`join` of the membership says who they are (vm/reporting/membership.py); links come and go with them. What happens to
links goes to the log.
"""

from __future__ import annotations

from contextlib import suppress

from ...interpreter.errors import MetadataError
from ...interpreter.wire.addresses import for_client, is_loopback
from ...interpreter.wire.keys import read_secret
from ...interpreter.wire.members import Member, PortRange
from ...streams.links.tcp.links import TcpLinks
from ...streams.links.tcp.sockets import listen
from ..log import log
from ..reporting.membership import Membership
from .certificates import make_tls
from .process.errors import StartError
from .settings.config import Config


class Peers:
    """The links of this daemon."""

    def __init__(self, config: Config) -> None:
        cluster = config.cluster
        tls = make_tls(config.node) if cluster.encryption == "tls" else None
        self.fingerprint = "" if tls is None else tls.fingerprint
        try:
            self.links = TcpLinks(
                Member(config.node, incarnation=cluster.incarnation),
                PortRange.of(cluster.values),
                tls,
                tell,
                patience=cluster.patience,
                bandwidth=cluster.link,
            )
        except OSError as error:
            raise cannot_take(cluster.values, error) from None

    def follow(self, membership: Membership) -> None:
        """Have links to the members, from now on."""
        membership.own = membership.own._replace(values=self.links.address, fingerprint=self.fingerprint)
        membership.table = {membership.own.node: membership.own}
        membership.changed = lambda _before, now: self.links.join(now, membership.token)

    def close(self, timeout: float) -> bool:
        """End all links; False if a thread did not end in time."""
        return self.links.close(timeout)


def open_peers(config: Config) -> Peers | None:
    """The links of a daemon that takes values; None for one on its own. StartError if they cannot be had."""
    return Peers(config) if config.node and config.cluster.values else None


def introduce(membership: Membership, config: Config, bound: list[str]) -> None:
    """Note where clients reach this daemon, and by which key, in its own entry. `bound`: where it listens."""
    usable = [address for address in bound if is_for_clients(address)]
    address = next((one for one in usable if one.startswith("tcp:")), next(iter(usable), ""))
    secret = config.security.server_secret
    key = read_secret(secret).public.decode() if secret is not None and address.startswith("tcp:") else ""
    membership.own = membership.own._replace(address=address, key=key)
    membership.table = {membership.own.node: membership.own}


def is_for_clients(address: str) -> bool:
    """Can clients connect to an address that is listened on? Not to "any host"."""
    with suppress(MetadataError):
        return bool(for_client(address))
    return False


def check_peers(config: Config) -> None:
    """StartError unless the links can be had. Nothing stays open."""
    if not config.node or not config.cluster.values:
        return
    if config.cluster.encryption == "tls":
        make_tls(config.node)
    try:
        listen(*PortRange.of(config.cluster.values)).close()
    except OSError as error:
        raise cannot_take(config.cluster.values, error) from None


def doubts_about_peers(config: Config) -> list[str]:
    """Warnings about settings of a cluster with which a daemon starts all the same."""
    cluster = config.cluster
    if not config.node:
        unused = cluster.values or cluster.incarnation
        return ["[cluster] is for a machine that is a node: set node, or --node"] if unused else []
    if cluster.values and cluster.encryption == "none" and not is_loopback(f"tcp://{cluster.values.split('-')[0]}"):
        return [f'values go to and from {cluster.values} as plain text, since [cluster] has encryption = "none"']
    return []


def cannot_take(place: str, error: OSError) -> StartError:
    return StartError(f"cannot take values at {place}: {error.strerror or error}")


def tell(event: str, node: str, why: str) -> None:
    """Log what happens to a link."""
    if why:
        log.warning(event, node=node, why=why)
    else:
        log.info(event, node=node)
