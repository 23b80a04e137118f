"""Victims: in which order copies leave a device whose plan is full.

- `cost`: first what costs least for the time that it is away. A copy that is valid elsewhere has to be brought back
  some day, another one has to be taken away as well. When that day comes, the storage's rest says: so of a
  loop over more than fits, the greatest part stays where it is, and what was used last leaves, as it is used again
  last. The most recently used half of the memory stays if there is anything else, though: a copy leaves once its last
  reader has run, and an instruction that needs its memory waits for that.
- `lru`: first what was used least recently.
- `never`: as `cost`, but only what is valid elsewhere leaves.

A session's own storages leave before those of others, and each other session keeps the device's `floor`. Where a
session has more than the device's `ceiling` lets it have, none but its own leave. Which copies
go is to depend on program order alone, not on how far the machine has come: a run that evicted others than a serial run
does could leave a later instruction without any that may go. Two things still do depend on it: a call that turns out
not to fit at admission has stamped its operands by then (`admission.inline`), and a size that data decide makes its
copy a candidate once it is known.

Recency: each use of a storage by an admitted message has a number (`touch`). A storage keeps that of its last use, and
its *rest*: how long it stayed unused between two uses, as far as is known. Nothing is sorted, and nothing is stamped
before memory was short for the first time: the first to leave are the oldest.

Ranking takes time in proportion to what is ranked, and others wait meanwhile. So it serves until an eighth of the
memory has left by it, and where there are many copies it goes through them in rounds, a window at a time: the best of
each window leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from ...streams.device import Eviction
from ..model.account import Account
from ..model.device_state import DeviceState
from ..model.tensor import Copy, Storage
from .replicas import may_forget

FADING = 2  # as a shift: a long rest is forgotten by a quarter with each shorter one


def touch(storage: Storage, device: DeviceState) -> None:
    """Note that an instruction on the device uses the storage, if memory was short there."""
    if not device.short:
        return
    uses = device.uses
    uses.newest = now = uses.newest + 1
    rest = now - storage.used
    faded = storage.rest - (storage.rest >> FADING)
    storage.rest = max(rest, faded)
    storage.used = now


FEW: Final = 64  # copies that are ranked anew each time
SHARE: Final = 8  # of a device's memory: the part that leaves by one ranking of more
WINDOW: Final = 1024  # copies that are ranked at a time: in some milliseconds
SESSIONS: Final = 8  # whose rankings are kept
LEAVE: Final = 4  # one of so many leaves from a window, while there are others
TRANSFER: Final = 1 << 16  # bytes that could be moved in the time in which a transfer is made

Victim: TypeAlias = tuple[Copy, Storage]


class Ranked(NamedTuple):
    """A candidate: `key` orders it, the first to leave last. `used`: the storage's last use when it was ranked."""

    key: tuple[Any, ...]
    used: int
    copy: Copy
    storage: Storage


class Ranking:
    """The order in which copies leave a device, as far as it is known.

    `order`: the next ones, for the storages of `account`; `left`: bytes that have left since there was none. `rest`:
    copies that are still to be ranked in this round, the first one last. `held`: bytes of each account on the device
    as of the beginning of the round; `young`: what was used since then stays if it can. `own`: no others than the
    account's are to leave, and `limit` is what they may have there, in place of the device's memory.
    """

    __slots__ = ("account", "device", "held", "left", "limit", "order", "own", "rest", "young")

    def __init__(self, device: DeviceState, account: Account | None, *, own: bool = False) -> None:
        self.device = device
        self.account = account
        self.own = own
        self.limit = device.ceiling if own else device.backend.limit
        self.left = 0
        self.order: list[Ranked] = []
        self.rest: list[Copy] = []
        self.held: dict[Account | None, int] = {}
        self.young = 0

    def begin_round(self) -> None:
        """Every copy is to be looked at again."""
        candidates, account, own = self.device.candidates, self.account, self.own
        self.rest = [
            copy for copy, storage in candidates.items() if copy.nbytes > 0 and (storage.account is account or not own)
        ]
        held: dict[Account | None, int] = {}
        self.held = held
        for copy in self.rest:
            owner = candidates[copy].account
            held[owner] = held.get(owner, 0) + copy.nbytes
        step = max(-(-len(self.rest) // WINDOW), 1)
        sample = sorted([(candidates[copy].used, copy.nbytes) for copy in self.rest[::step]], reverse=True)
        newest, self.young = 0, self.device.uses.newest + 1
        for used, nbytes in sample:
            newest += nbytes * step
            if newest > self.limit // 2:
                break
            self.young = used
        self.rest.reverse()

    def rank(self, *, last: bool) -> None:
        """Rank some of those that are still to be ranked. Only the best of them are to leave, and one's own as long as
        there are any, unless it is the `last` round or there are no others."""
        device, account = self.device, self.account
        candidates, now, by_age = device.candidates, device.uses.newest, device.policy is Eviction.LRU
        window, self.rest = self.rest[-WINDOW:], self.rest[:-WINDOW]
        own_alone = not last and bool(self.held.get(account))
        ranked = []
        for copy in window:
            storage = candidates.get(copy)
            if storage is None:
                continue
            used, own = storage.used, storage.account is account
            if own_alone and not own:
                continue
            stays = used >= self.young and not by_age
            worth = float(now - used) if by_age else saved(copy, storage, now)
            ranked.append(Ranked((own, not stays, worth, -copy.id), used, copy, storage))
        ranked.sort()
        if not last:
            ranked = ranked[len(ranked) * (LEAVE - 1) // LEAVE :]
        self.order = ranked

    def next(self, spare: Collection[Copy]) -> Victim | None:
        """The next copy that may leave, of those that are ranked."""
        device, held = self.device, self.held
        floor = floor_of(device, len(held))
        while self.order:
            _, used, copy, storage = self.order.pop()
            if not copy.current or storage.used != used or copy in spare or device.candidates.get(copy) is not storage:
                continue
            if storage in device.pinned:
                continue
            owner, nbytes = storage.account, copy.nbytes
            if owner is not self.account and held.get(owner, 0) - nbytes < floor and not may_forget(copy, storage):
                continue
            self.left += nbytes
            held[owner] = held.get(owner, 0) - nbytes
            return copy, storage
        return None


def victims(
    device: DeviceState, account: Account | None, spare: Collection[Copy], *, own: bool = False
) -> Iterator[Victim]:
    """The copies that may leave, the first one first, but none of `spare`. The caller takes as many as it needs.

    `account`: of the session that needs the memory. `own`: copies of others stay.
    """
    rankings = device.rankings
    key = (account, own)
    ranking: Ranking | None = rankings.pop(key, None)
    if ranking is None or ranking.left * SHARE >= ranking.limit:
        ranking = Ranking(device, account, own=own)
    count = len(device.candidates)
    if count > FEW:
        while len(rankings) >= SESSIONS:
            del rankings[next(iter(rankings))]
        rankings[key] = ranking
    rounds = 1 if count <= WINDOW else 2
    for turn in range(rounds + 1):  # first, what is left of a round
        if turn:
            ranking.begin_round()
        while True:
            while (victim := ranking.next(spare)) is not None:
                yield victim
            if not ranking.rest:
                break
            ranking.rank(last=turn == rounds)
    rankings.pop(key, None)


def floor_of(device: DeviceState, holders: int) -> int:
    """Bytes that each of so many sessions keeps from others: all floors together are half of the memory at most."""
    return min(device.floor, device.backend.limit // (2 * max(holders, 1)))


def saved(copy: Copy, storage: Storage, now: int) -> float:
    """How long a byte of the copy's memory is probably free for each byte that has to move for it."""
    age = now - storage.used
    away = storage.rest - age if storage.rest > age else age
    moves = 1 if may_forget(copy, storage) else 2
    return away * copy.nbytes / (moves * (copy.nbytes + TRANSFER))
