"""The operator's settings for all nodes of a cluster: plain values, which are sent to the supervisors and stay with
them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ...interpreter.errors import MetadataError
from ...interpreter.wire.addresses import runtime_directory
from .ports import DEFAULT_PORTS

CLUSTER: Final = "tensord"  # the default name of a cluster
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Specification:
    """The settings that are the same on all nodes.

    `devices`: as in the daemon's configuration, without the name of a node. `ports`: the first and the last port
    that daemons may use. `directory`: where nodes keep keys and durable names. `settings`: of each daemon, in
    addition to those that the supervisor makes. `encryption`: between daemons. `durable`: whether nodes have durable
    names. `watchdog`: after how many seconds without a turn of its loop a daemon is killed; 0: never. `grace`: how
    many seconds a daemon that is asked to end waits for pending work.
    """

    cluster: str = CLUSTER
    devices: tuple[Any, ...] = ("cpu:0",)
    ports: tuple[int, int] = DEFAULT_PORTS
    directory: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    encryption: str = "tls"
    durable: bool = True
    watchdog: float = 30.0
    grace: float = 5.0

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Specification:
        """The inverse of `to_plain`, which also accepts lists in place of tuples."""
        low, high = plain["ports"]
        return cls(**{**plain, "devices": tuple(plain["devices"]), "ports": (low, high)})

    def home(self, node: str) -> Path:
        """The directory of a node's permanent files: keys, the count of starts, durable names."""
        base = Path(self.directory).expanduser() if self.directory else state_directory() / "cluster"
        return base / self.cluster / node

    def lock(self, node: str) -> str:
        """The name of the lock that a node's supervisor holds on its machine."""
        return f"node-{self.cluster}-{node}"

    def runtime(self, node: str) -> Path:
        """The directory of a node's socket and configuration."""
        return runtime_directory() / "cluster" / self.cluster / node


def state_directory() -> Path:
    """The directory of this user's state, as the XDG specification defines it."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "tensord"


def check_name(name: str) -> str:
    """Check the name of a cluster. MetadataError if it is not valid."""
    if not _NAME.fullmatch(name):
        raise MetadataError(
            f"{name!r} is not a valid cluster name: use up to 32 lower-case letters, digits, '_' and '-'"
        )
    return name


def gpus_of(devices: tuple[Any, ...]) -> int:
    """How many GPUs a node with these devices needs.

    MetadataError if their numbers have a gap: Ray assigns GPUs of a host to a node, and the daemon sees only those,
    numbered from cuda:0 on.
    """
    names = [one if isinstance(one, str) else str(one.get("name", "")) for one in devices]
    gpus = {name for name in names if name.startswith("cuda:")}
    for number in range(len(gpus)):
        if f"cuda:{number}" not in gpus:
            raise MetadataError(
                f"{max(gpus)} without cuda:{number}: number the GPUs of a node from cuda:0 on, as Ray assigns them"
            )
    return len(gpus)


def node_name(index: int) -> str:
    return f"node{index}"


def index_of(node: str) -> int:
    """The sort key of a node's name: node2 comes before node10."""
    digits = node.removeprefix("node")
    return int(digits) if digits.isdecimal() else 1 << 30
