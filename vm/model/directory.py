"""The directory: open sessions by id, published tensors and routines by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .account import Account
from .device_state import DeviceState
from .published import Published
from .session import VmSession
from .tensor import Storage, Tensor


class Leaving(NamedTuple):
    """An ended session with the tensors that are still to be released, by handle. `unseen`: the handles that were not
    looked at yet, device by device, for those who need memory there; the newest last.
    """

    session: VmSession
    tensors: dict[int, Tensor]
    unseen: dict[DeviceState, list[int]]

    def newest(self, most: int) -> list[Tensor]:
        """Take up to so many of the tensors, the newest first."""
        tensors = self.tensors
        taken = [tensors.popitem()[1] for _ in range(min(most, len(tensors)))]
        for unseen in self.unseen.values():
            while unseen and unseen[-1] not in tensors:
                unseen.pop()
        return taken

    def holds_on(self, device: DeviceState, most: int) -> list[int]:
        """Up to so many handles whose tensors have a copy on the device, or may get one; none if all were seen.

        Of those that were seen, and stay, only this session has the storage. So nothing brings it to another device but
        an eviction, and only an operator's takes what an ended session has (then something else leaves needlessly).
        """
        tensors = self.tensors
        unseen = self.unseen.get(device)
        if unseen is None:
            unseen = self.unseen[device] = list(tensors)
        found: list[int] = []
        while unseen and len(found) < most:
            id_ = unseen.pop()
            tensor = tensors.get(id_)
            if tensor is None:
                continue
            storage = tensor.storage
            if device in storage.copies or storage.sharers > 1 or tensor.holders > 1 or storage.views is not None:
                found.append(id_)
        return found


class Directory:
    """Sessions and names. `publishers`: the account that each name counts against, that of its latest publisher.
    `durable`: names that are to survive the machine, until they are unpublished. `leaving`: ended sessions, in the
    order of their turns.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, VmSession] = {}
        self.names: dict[str, Published[Tensor]] = {}
        self.publishers: dict[str, Account] = {}
        self.durable: dict[str, None] = {}
        self.leaving: deque[Leaving] = deque()

    def tensors(self) -> list[Tensor]:
        """Every tensor that a name or a handle holds, some of them more than once."""
        found = [tensor for published in self.names.values() for tensor in published.tensors]
        for session in self.sessions.values():
            found.extend(session.tensors.values())
        for gone in self.leaving:
            found.extend(gone.tensors.values())
        return found

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Each tensor that a name holds, with that name: also those that a published routine captures."""
        for name, published in self.names.items():
            for tensor in published.tensors:
                yield name, tensor

    def storages(self) -> Iterable[Storage]:
        """Every storage that a handle or a name can reach."""
        return {id(tensor.storage): tensor.storage for tensor in self.tensors()}.values()
