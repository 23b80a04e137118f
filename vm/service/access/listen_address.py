"""Listen addresses: the endpoint to bind, and the socket options that guard it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from ....interpreter.errors import MetadataError
from ....interpreter.wire import addresses, keys
from ..process.errors import StartError
from . import zap
from .zap import AllowList


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address that the daemon listens on.

    `endpoint`: the address with its host resolved, so that exactly the checked endpoint is bound.
    `options`: socket options to set before binding.
    """

    address: str
    endpoint: str
    options: dict[int, int | bytes] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether the kernel identifies the peers."""
        return self.address.startswith("ipc://")


@dataclass(frozen=True, slots=True)
class ListenGuards:
    """The addresses to listen on, and the gatekeeper that authenticates their peers."""

    addresses: tuple[ListenAddress, ...]
    gatekeeper: zap.Gatekeeper


def listen_guards(listen: Iterable[str], secret: Path | None, allow: Path | None) -> ListenGuards:
    """The addresses to listen on, and their gatekeeper. `secret`: the daemon's key file; `allow`: the clients' keys.

    StartError if an address is reachable from other machines and there are no keys, or if the keys are unusable.
    """
    try:
        pair = keys.read_secret(secret) if secret else None
        if (secret is None) != (allow is None):
            raise StartError("security.server_secret and security.allow go together: set both, or neither")
        found = tuple(_listen_address(address, pair) for address in dict.fromkeys(listen))
    except MetadataError as error:
        raise StartError(error.message) from None
    return ListenGuards(found, zap.Gatekeeper(AllowList(allow) if allow else None))


def _listen_address(address: str, pair: keys.Pair | None) -> ListenAddress:
    parsed = addresses.parse(address)
    if parsed.kind == "ipc":
        return ListenAddress(address, address, {zmq.ZAP_DOMAIN: zap.IPC})
    ip = addresses.resolve(parsed.host)
    host = "*" if ip is None else f"[{ip}]" if ip.version == 6 else str(ip)
    endpoint = f"tcp://{host}:{parsed.port}"
    # An IPv6 socket that listens on any address accepts IPv4, too.
    options: dict[int, int | bytes] = {zmq.IPV6: int(ip is None or ip.version == 6)}
    if pair is not None:
        curve: dict[int, int | bytes] = {
            zmq.ZAP_DOMAIN: zap.CURVE,
            zmq.CURVE_SERVER: 1,
            zmq.CURVE_SECRETKEY: pair.secret,
        }
        return ListenAddress(address, endpoint, options | curve)
    if not addresses.is_loopback(endpoint):
        raise StartError(
            f"{address} is reachable from other machines, and there are no keys: run tensord keygen DIR, set "
            "security.server_secret and security.allow, or listen on tcp://127.0.0.1:PORT"
        )
    return ListenAddress(address, endpoint, options | {zmq.ZAP_DOMAIN: zap.LOOPBACK})
