"""The daemons of other nodes: the port on which this daemon receives values from them, and the links to them.

The membership (vm/reporting/membership.py) determines the links. Events of links are logged.
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


class PeerLinks:
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
        """Keep links to the members of the membership from now on."""
        membership.own = membership.own._replace(values=self.links.address, fingerprint=self.fingerprint)
        membership.table = {membership.own.node: membership.own}
        membership.changed = lambda _before, now: self.links.join(now, membership.token)

    def close(self, timeout: float) -> bool:
        """End all links; False if a thread did not end in time."""
        return self.links.close(timeout)


def open_peers(config: Config) -> PeerLinks | None:
    """The links of a daemon that exchanges values; None for a single daemon. StartError if they cannot be opened."""
    return PeerLinks(config) if config.node and config.cluster.values else None


def introduce(membership: Membership, config: Config, bound: list[str]) -> None:
    """Set the address and key for clients in the daemon's own entry. `bound`: the addresses on which it listens."""
    usable = [address for address in bound if is_for_clients(address)]
    address = next((one for one in usable if one.startswith("tcp:")), next(iter(usable), ""))
    secret = config.security.server_secret
    key = read_secret(secret).public.decode() if secret is not None and address.startswith("tcp:") else ""
    membership.own = membership.own._replace(address=address, key=key)
    membership.table = {membership.own.node: membership.own}


def is_for_clients(address: str) -> bool:
    """Whether clients can connect to a bound address, which excludes "any host"."""
    with suppress(MetadataError):
        return bool(for_client(address))
    return False


def check_peers(config: Config) -> None:
    """StartError unless the links could be opened. Nothing stays open."""
    if not config.node or not config.cluster.values:
        return
    if config.cluster.encryption == "tls":
        make_tls(config.node)
    try:
        listen(*PortRange.of(config.cluster.values)).close()
    except OSError as error:
        raise cannot_take(config.cluster.values, error) from None


def peer_warnings(config: Config) -> list[str]:
    """Warnings about questionable settings of a cluster, with which a daemon still starts."""
    cluster = config.cluster
    if not config.node:
        unused = cluster.values or cluster.incarnation
        return ["[cluster] is for a machine that is a node: set node, or --node"] if unused else []
    if cluster.values and cluster.encryption == "none" and not is_loopback(f"tcp://{cluster.values.split('-')[0]}"):
        return [f'values go to and from {cluster.values} as plain text, since [cluster] has encryption = "none"']
    return []


def cannot_take(address: str, error: OSError) -> StartError:
    return StartError(f"cannot receive values at {address}: {error.strerror or error}")


def tell(event: str, node: str, why: str) -> None:
    """Log an event of a link, as a warning if there is a reason."""
    if why:
        log.warning(event, node=node, why=why)
    else:
        log.info(event, node=node)
