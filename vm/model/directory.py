"""The directory: open sessions by id, published tensors by name."""

from __future__ import annotations

from collections.abc import Iterable

from .account import Account
from .session import VmSession
from .tensor import Storage, Tensor


class Directory:
    """Sessions and names. `publishers`: the account that each name counts against, that of its latest publisher."""

    def __init__(self) -> None:
        self.sessions: dict[int, VmSession] = {}
        self.names: dict[str, Tensor] = {}
        self.publishers: dict[str, Account] = {}

    def tensors(self, but: VmSession | None = None) -> list[Tensor]:
        """Every tensor that a name or a handle holds, some of them more than once; without the handles of `but`."""
        found = list(self.names.values())
        for session in self.sessions.values():
            if session is not but:
                found.extend(session.tensors.values())
        return found

    def storages(self) -> Iterable[Storage]:
        """Every storage that a handle or a name can reach."""
        return {id(tensor.storage): tensor.storage for tensor in self.tensors()}.values()
