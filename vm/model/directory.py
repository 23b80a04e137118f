"""The directory: open sessions by id, published tensors by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .account import Account
from .session import VmSession
from .tensor import Storage, Tensor


class Directory:
    """Sessions and names. `publishers`: the account that each name counts against, that of its latest publisher.

    `leaving`: ended sessions, in the order of their turns, each with the tensors that are still to be released, the
    oldest last.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, VmSession] = {}
        self.names: dict[str, Tensor] = {}
        self.publishers: dict[str, Account] = {}
        self.leaving: deque[tuple[VmSession, list[Tensor]]] = deque()

    def tensors(self) -> list[Tensor]:
        """Every tensor that a name or a handle holds, some of them more than once."""
        found = list(self.names.values())
        for session in self.sessions.values():
            found.extend(session.tensors.values())
        for _, tensors in self.leaving:
            found.extend(tensors)
        return found

    def storages(self) -> Iterable[Storage]:
        """Every storage that a handle or a name can reach."""
        return {id(tensor.storage): tensor.storage for tensor in self.tensors()}.values()
