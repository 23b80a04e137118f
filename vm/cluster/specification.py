"""What `cluster up` wants of every node: plain values, which travel to the supervisors and stay with them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ...interpreter.errors import MetadataError
from ...interpreter.wire.addresses import runtime_directory
from .ports import DEFAULT

CLUSTER: Final = "tensord"  # the usual name of a cluster
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Specification:
    """What is the same on all nodes.

    `devices`: as in the daemon's configuration, without a node's name. `ports`: the first and the last of those that
    daemons may use. `directory`: where nodes keep keys and durable names. `settings`: of each daemon, beside those that
    the supervisor makes. `encryption`: between daemons. `durable`: have a directory of durable names. `watchdog`:
    seconds in which a daemon's loop has to turn, 0 for ever. `grace`: of a daemon that is asked to end.
    """

    cluster: str = CLUSTER
    devices: tuple[Any, ...] = ("cpu:0",)
    ports: tuple[int, int] = DEFAULT
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
        """The name of the lock that a node's supervisor has on its machine."""
        return f"node-{self.cluster}-{node}"

    def runtime(self, node: str) -> Path:
        """The directory of a node's socket and configuration."""
        return runtime_directory() / "cluster" / self.cluster / node


def state_directory() -> Path:
    """The directory of this user's state, as the XDG specification has it."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "tensord"


def check_name(name: str) -> str:
    """The name of a cluster; MetadataError if it is none."""
    if not _NAME.fullmatch(name):
        raise MetadataError(f"{name!r} is no name for a cluster: small letters, digits, '_' and '-', 32 at most")
    return name


def gpus_of(devices: tuple[Any, ...]) -> int:
    """How many GPUs a node with these devices needs. MetadataError if their numbers leave one out: Ray decides which
    GPUs of a host a node has, and the daemon sees those alone, from cuda:0 on."""
    names = [one if isinstance(one, str) else str(one.get("name", "")) for one in devices]
    found = {name for name in names if name.startswith("cuda:")}
    for number in range(len(found)):
        if f"cuda:{number}" not in found:
            raise MetadataError(
                f"{max(found)} without cuda:{number}: name the GPUs of a node from cuda:0 on, as Ray hands them out"
            )
    return len(found)


def node_name(index: int) -> str:
    return f"node{index}"


def index_of(node: str) -> int:
    """The place of a node in the order of names: node2 comes before node10."""
    digits = node.removeprefix("node")
    return int(digits) if digits.isdecimal() else 1 << 30
