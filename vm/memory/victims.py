"""Victims: the order in which copies are dropped or evicted from a device whose plan is full.

- `cost`: first the copies whose memory is free for the longest time for each byte that is moved. A replica is moved
  once, when it is needed again; any other copy is moved twice, since it is evicted, too. The time until the next use
  is estimated from the storage's rest. So in a loop over more values than fit, most values stay, and the most recently
  used ones are evicted, since their next use is last. But the most recently used half of the memory stays as long as
  there are other candidates: an eviction waits for the copy's last reader, and the instruction that needs the memory
  would wait, too.
- `lru`: first the least recently used copies.
- `never`: as `cost`, but only replicas are dropped, and nothing is evicted.

A session's own storages are victims before those of others, and each other session keeps at least the device's `floor`.
If a session exceeds the device's `ceiling`, only its own copies are victims. The choice should depend on program order
alone, not on the progress of execution: a run with other victims than a serial run could leave a later instruction
without victims. There are two exceptions: a call that turns out not to fit at admission has already counted as a use of
its operands (`admission.inline`), and a copy whose size depends on data becomes a candidate once the size is known.

Recency: each use of a storage by an admitted message has a number (`touch`). A storage keeps the number of its last
use, and its *rest*: an estimate of the time between two uses, counted in uses. Before memory is short for the first
time, no use is counted, and the oldest copies are the first victims.

Ranking takes time in proportion to the number of ranked copies, and delays all sessions. So a ranking is used until an
eighth of the memory has been freed by it. Many copies are ranked in rounds, one window at a time, and only the best of
each window become victims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from ...streams.device import Eviction
from ..model.account import Account
from ..model.device_state import DeviceState
from ..model.tensor import Copy, Storage
from .replicas import may_forget

FADING = 2  # as a shift: each shorter rest reduces the remembered one by a quarter


def touch(storage: Storage, device: DeviceState) -> None:
    """Note a use of the storage by an instruction on the device, if memory was ever short there."""
    if not device.short:
        return
    uses = device.uses
    uses.newest = now = uses.newest + 1
    rest = now - storage.used
    faded = storage.rest - (storage.rest >> FADING)
    storage.rest = max(rest, faded)
    storage.used = now


FEW: Final = 64  # up to this many copies are ranked again each time
SHARE: Final = 8  # a ranking is used until 1/8 of the device's memory is freed
WINDOW: Final = 1024  # copies ranked at a time, which takes some milliseconds
SESSIONS: Final = 8  # the most cached rankings
LEAVE: Final = 4  # 1/4 of a window's copies become victims, except in the last round
TRANSFER: Final = 1 << 16  # the fixed cost of a transfer, in bytes moved

Victim: TypeAlias = tuple[Copy, Storage]


class Ranked(NamedTuple):
    """A ranked candidate. `key`: the sort key; the first victim has the highest. `used`: the last use when ranked."""

    key: tuple[Any, ...]
    used: int
    copy: Copy
    storage: Storage


class Ranking:
    """The first part of the order of victims on a device, for requests of `account`.

    `order`: the next victims, first one last; `left`: the bytes freed by this ranking. `rest`: the copies that are not
    ranked yet in this round, first one last. `held`: the bytes of each account on the device at the beginning of the
    round; `young`: storages used since this number stay if possible. `own`: only the account's copies are victims, and
    `limit` is the device's ceiling in place of its memory.
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
        """Begin a round, in which every copy is ranked again."""
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
        """Rank the next window of copies. Except in the `last` round, only the best of them become victims, and only
        the account's own copies as long as it has any."""
        device, account = self.device, self.account
        candidates, now, by_age = device.candidates, device.uses.newest, device.eviction.policy is Eviction.LRU
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
        """The next victim among the ranked copies; None if there is none."""
        device, held = self.device, self.held
        floor = floor_of(device, len(held))
        while self.order:
            _, used, copy, storage = self.order.pop()
            if storage.used != used or copy in spare or device.candidates.get(copy) is not storage:
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
    """The victims on a device in order, without the copies in `spare`. The caller takes as many as it needs.

    `account`: of the session that needs the memory. `own`: only the account's copies are victims.
    """
    rankings = device.eviction.rankings
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
    for turn in range(rounds + 1):  # first the rest of an earlier round
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
    """The bytes that each of `holders` sessions keeps from others; all floors are at most half of the memory."""
    return min(device.eviction.floor, device.backend.limit // (2 * max(holders, 1)))


def saved(copy: Copy, storage: Storage, now: int) -> float:
    """The estimated time for which a byte of the copy's memory is free, per byte that has to be moved."""
    age = now - storage.used
    away = storage.rest - age if storage.rest > age else age
    moves = 1 if may_forget(copy, storage) else 2
    return away * copy.nbytes / (moves * (copy.nbytes + TRANSFER))
