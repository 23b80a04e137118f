"""The members of a cluster, as messages list them: one entry for each node.

An untrusted entry is a map with the names of `Member`'s fields, and is checked once, here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..errors import MetadataError, ProtocolError
from ..types.device_names import NODE_FORM, is_node, node_of
from .addresses import for_client
from .fields import is_natural

STATES: Final = ("up", "lost", "left")
UP: Final = STATES[0]
MAX_MEMBERS: Final = 4096  # members of a cluster
MAX_DEVICES: Final = 1024  # of a member
MAX_TEXT_LENGTH: Final = 255  # characters of any text of an entry
TOKEN_LENGTHS: Final = (32, 128)  # characters of the cluster's secret
MAX_PORT: Final = 0xFFFF

_HOST_AND_PORTS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_FINGERPRINT: Final = re.compile(r"(?:[0-9a-f]{64})?")
_KEY: Final = re.compile(r"(?:[\x21-\x7e]{40})?")
_DEVICE: Final = re.compile(r"[^/]+/[a-z]+:\d{1,3}", re.ASCII)


class PortRange(NamedTuple):
    """Where a daemon takes values: a host, and the first and the last allowed port."""

    host: str
    low: int
    high: int

    @classmethod
    def of(cls, text: str) -> PortRange:
        """From "host:7701", "host:7701-7800", or "[::1]:0" for any free port; ValueError for anything else."""
        match = _HOST_AND_PORTS.fullmatch(text)
        low = int(match[2]) if match else 0
        high = int(match[3] or low) if match else 0
        if match is None or not low <= high <= MAX_PORT or (not low and high):
            raise ValueError('"HOST:PORT" or "HOST:FIRST-LAST", such as "10.0.0.5:7701", or port 0 for any free one')
        return cls(match[1].strip("[]"), low, high)

    def at(self, port: int) -> str:
        """The address of one port."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


class Member(NamedTuple):
    """A node of a cluster, and its daemon.

    `address`, `key`: where it listens to clients, and its public CURVE key, "" for none. `values`: where it takes
    values from other daemons, "" if it takes none; `fingerprint`: the SHA-256 of its certificate in hex, "" without
    TLS. `incarnation`: grows with each start of the node's daemon. `state`: "up", "lost" or "left".
    """

    node: str
    address: str = ""
    key: str = ""
    values: str = ""
    fingerprint: str = ""
    incarnation: int = 0
    devices: tuple[str, ...] = ()
    state: str = UP

    @property
    def is_up(self) -> bool:
        return self.state == UP

    def row(self) -> dict[str, Any]:
        """The entry as plain values."""
        return {**self._asdict(), "devices": list(self.devices)}


def member_of(row: object) -> Member:
    """The member of an untrusted entry; ProtocolError says what is wrong with it."""
    if not isinstance(row, Mapping) or set(row) != set(Member._fields):
        raise ProtocolError(f"a member is a map with {', '.join(Member._fields)}")
    if not is_node(row["node"]):
        raise ProtocolError(f"the name of a node is {NODE_FORM}, not {row['node']!r:.40}")
    for name, (check, meaning) in _CHECKS.items():
        if not check(row[name]):
            raise ProtocolError(f"{name} of member {row['node']} is {row[name]!r:.60}, not {meaning}")
    member = Member(**{**row, "devices": tuple(row["devices"])})
    wrong = [name for name in member.devices if node_of(name) != member.node]
    if wrong or len(set(member.devices)) < len(member.devices):
        raise ProtocolError(f"devices of member {member.node} are not its own, or occur twice: {wrong!r:.60}")
    return member


def table_of(rows: object) -> dict[str, Member]:
    """The members of an untrusted table, by node; ProtocolError if any entry is wrong, or a node occurs twice."""
    if not isinstance(rows, list | tuple) or len(rows) > MAX_MEMBERS:
        raise ProtocolError(f"members are a list, of {MAX_MEMBERS} entries at the most")
    members: dict[str, Member] = {}
    for row in rows:
        member = member_of(row)
        if member.node in members:
            raise ProtocolError(f"the member {member.node} occurs twice")
        members[member.node] = member
    return members


def is_token(token: object) -> bool:
    """Return whether it is suitable as the secret of a cluster."""
    return (
        type(token) is str
        and TOKEN_LENGTHS[0] <= len(token) <= TOKEN_LENGTHS[1]
        and token.isascii()
        and token.isprintable()
    )


def _is_address(value: object) -> bool:
    try:
        return type(value) is str and len(value) <= MAX_TEXT_LENGTH and (not value or bool(for_client(value)))
    except MetadataError:
        return False


def _is_host_and_port(value: object) -> bool:
    if type(value) is not str or len(value) > MAX_TEXT_LENGTH:
        return False
    try:
        return not value or 0 < PortRange.of(value).low == PortRange.of(value).high
    except ValueError:
        return False


def _is_devices(value: object) -> bool:
    if type(value) not in {list, tuple} or len(value) > MAX_DEVICES:  # type: ignore[arg-type]
        return False
    return all(type(one) is str and _DEVICE.fullmatch(one) for one in value)  # type: ignore[attr-defined]


_CHECKS: Final = {
    "address": (_is_address, 'the address of a daemon, such as "tcp://10.0.0.5:7700"'),
    "key": (lambda value: type(value) is str and bool(_KEY.fullmatch(value)), "a CURVE key of 40 characters, or none"),
    "values": (_is_host_and_port, 'a host and a port, such as "10.0.0.5:7701", or ""'),
    "fingerprint": (
        lambda value: type(value) is str and bool(_FINGERPRINT.fullmatch(value)),
        "64 digits of a SHA-256, or none",
    ),
    "incarnation": (is_natural, "a natural number"),
    "devices": (_is_devices, f"a list of at most {MAX_DEVICES} names such as node1/cpu:0"),
    "state": (lambda value: type(value) is str and value in STATES, " or ".join(STATES)),
}
