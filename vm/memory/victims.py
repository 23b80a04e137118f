"""Victims: in which order copies leave a device whose plan is full.

- `cost`: first what costs least for the time that it is away. A copy that is valid elsewhere has to be brought back
  some day, another one has to be taken away as well. When that day comes, the storage's rest says (`recency`): so of a
  loop over more than fits, the greatest part stays where it is, and what was used last leaves, as it is used again
  last. The most recently used half of the memory stays if there is anything else, though: a copy leaves once its last
  reader has run, and whoever needs its memory waits for that.
- `lru`: first what was used least recently.
- `never`: as `cost`, but only what is valid elsewhere leaves.

A session's own storages leave before those of others, and each other session keeps the device's `floor`. Which copies
go depends on program order alone, not on how far the machine has come: a run that evicted others than a serial run does
could leave a later instruction without any that may go.

Ranking takes time in proportion to what is there. So where that is much, a ranking serves until an eighth of the memory
has left by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from ...streams.device import Eviction
from ..model.account import Account
from ..model.device_state import DeviceState
from ..model.tensor import Copy, Storage
from .replicas import may_forget

FEW: Final = 64  # copies that are ranked anew each time
SHARE: Final = 8  # of a device's memory: the part that leaves by one ranking of more
TRANSFER: Final = 1 << 16  # bytes that could be moved in the time in which a transfer is made

Victim: TypeAlias = tuple[Copy, Storage]


class Ranked(NamedTuple):
    """A candidate: `key` orders it, the first to leave last. `used`: the storage's last use when it was ranked."""

    key: tuple[Any, ...]
    used: int
    copy: Copy
    storage: Storage


class Ranking:
    """The order in which copies leave a device for the storages of one account. `left`: bytes that have left by it;
    `held`: bytes of each account on the device."""

    __slots__ = ("account", "held", "left", "order")

    def __init__(self, device: DeviceState, account: Account | None) -> None:
        self.account = account
        self.left = 0
        self.held: dict[Account | None, int] = {}
        self.order = rank(device, account, self.held)


def victims(device: DeviceState, account: Account | None, spare: Collection[Copy]) -> Iterator[Victim]:
    """The copies that may leave, the first one first, but none of `spare`. The caller takes as many as it needs.

    `account`: of the session that needs the memory.
    """
    ranking: Ranking | None = device.ranking
    if ranking is not None and ranking.account is account and ranking.left * SHARE < device.backend.limit:
        yield from _leaving(device, ranking, spare)
    device.ranking = ranking = Ranking(device, account)
    yield from _leaving(device, ranking, spare)
    device.ranking = None


def _leaving(device: DeviceState, ranking: Ranking, spare: Collection[Copy]) -> Iterator[Victim]:
    order, held = ranking.order, ranking.held
    floor = floor_of(device, len(held))
    if len(order) <= FEW:
        device.ranking = None
    while order:
        _, used, copy, storage = order.pop()
        if not copy.current or storage.used != used or copy in spare or device.candidates.get(copy) is not storage:
            continue
        if storage in device.pinned:
            continue
        owner, nbytes = storage.account, copy.nbytes
        if owner is not ranking.account and held.get(owner, 0) - nbytes < floor and not may_forget(copy, storage):
            continue
        ranking.left += nbytes
        held[owner] = held.get(owner, 0) - nbytes
        yield copy, storage


def floor_of(device: DeviceState, holders: int) -> int:
    """Bytes that each of so many sessions keeps from others: all floors together are half of the memory at most."""
    return min(device.floor, device.backend.limit // (2 * max(holders, 1)))


def rank(device: DeviceState, account: Account | None, held: dict[Account | None, int]) -> list[Ranked]:
    """The candidates of a device, the first to leave last. Counts in `held` what each account has there."""
    found = [(storage.used, copy.id, copy, storage) for copy, storage in device.candidates.items() if copy.nbytes > 0]
    found.sort(reverse=True)
    now, newest, half = device.uses.newest, 0, device.backend.limit // 2
    by_age = device.policy is Eviction.LRU
    ranked = []
    for used, number, copy, storage in found:
        owner = storage.account
        held[owner] = held.get(owner, 0) + copy.nbytes
        newest += copy.nbytes
        stays = newest <= half and not by_age
        worth = float(now - used) if by_age else saved(copy, storage, now)
        ranked.append(Ranked((owner is account, not stays, worth, -number), used, copy, storage))
    ranked.sort()
    return ranked


def saved(copy: Copy, storage: Storage, now: int) -> float:
    """How long a byte of the copy's memory is probably free for each byte that has to move for it."""
    age = now - storage.used
    away = storage.rest - age if storage.rest > age else age
    moves = 1 if may_forget(copy, storage) else 2
    return away * copy.nbytes / (moves * (copy.nbytes + TRANSFER))
