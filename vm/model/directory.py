"""The directory: open sessions by id, published tensors and routines by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from .account import Account
from .published import Published
from .session import VmSession
from .tensor import Storage, Tensor


class Directory:
    """Sessions and names. `publishers`: the account that each name counts against, that of its latest publisher.
    `durable`: names that are to survive the machine, until they are unpublished. `leaving`: ended sessions, in the
    order of their turns, each with the tensors that are still to be released, the newest first.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, VmSession] = {}
        self.names: dict[str, Published[Tensor]] = {}
        self.publishers: dict[str, Account] = {}
        self.durable: dict[str, None] = {}
        self.leaving: deque[tuple[VmSession, dict[int, Tensor]]] = deque()

    def tensors(self) -> list[Tensor]:
        """Every tensor that a name or a handle holds, some of them more than once."""
        found = [tensor for published in self.names.values() for tensor in published.tensors]
        for session in self.sessions.values():
            found.extend(session.tensors.values())
        for _, tensors in self.leaving:
            found.extend(tensors.values())
        return found

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Each tensor that a name holds, with that name: also those that a published routine captures."""
        for name, published in self.names.items():
            for tensor in published.tensors:
                yield name, tensor

    def storages(self) -> Iterable[Storage]:
        """Every storage that a handle or a name can reach."""
        return {id(tensor.storage): tensor.storage for tensor in self.tensors()}.values()
