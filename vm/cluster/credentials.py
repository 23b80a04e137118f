"""The credentials of a cluster: its token and the clients' public keys, with one version number for both.

Credentials never change: each change makes a new object with the next version, and only the latest version is valid.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ClusterCredentials:
    """`token`: the secret by which daemons prove to each other that they belong to the cluster; it is never shown.
    `clients`: public keys by name.
    """

    version: int = 1
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    clients: Mapping[str, str] = field(default_factory=dict)

    def with_client(self, name: str, key: str) -> ClusterCredentials:
        """The next version, which also admits this client; it replaces a client of the same name."""
        return replace(self, version=self.version + 1, clients={**self.clients, name: key})

    def with_new_token(self) -> ClusterCredentials:
        """The next version, with a new token."""
        return replace(self, version=self.version + 1, token=secrets.token_hex(16))

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ClusterCredentials:
        """The inverse of `to_plain`. KeyError, ValueError or TypeError if the input is malformed."""
        return cls(int(plain["version"]), str(plain["token"]), dict(plain["clients"]))
