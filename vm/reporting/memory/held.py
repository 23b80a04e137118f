"""Sums up the bytes of the pools by session, name, device or line. The rows add up to the pools.

The largest rows come first, then a row for the rest, then an object with the total and the pools. The sums come from
one walk (`extents`), so they are exact if the machine is idle. Memory that is allocated or freed between two slices
of a long walk is in a pool's `unaccounted`, which is 0 otherwise.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....interpreter.errors import ProtocolError
from ....interpreter.wire.forms import shown
from ...tracing.flat import Where
from ..answering import batched
from .extents import ARENA, PER_SLICE, PoolExtent, Walk
from .pools import pool_row

if TYPE_CHECKING:
    from ...engine import Engine

SESSION: Final = "session"
NAME: Final = "name"
DEVICE: Final = "device"
LOCATION: Final = "location"

HOLDERS_SHOWN: Final = 10  # the most sessions, and the most names, in a row
DESCRIBED: Final = 64  # rows per slice

Key: TypeAlias = tuple[Any, ...]
About: TypeAlias = Callable[[int], "str | None"]  # the name of a session; None if it has ended


@dataclass(slots=True)
class MemoryRow:
    """The sums of one group.

    `oldest`, `newest`: times of the engine's clock, 0 if unknown; `rest`: if the row stands for the groups that are
    not listed, how many these are.
    """

    nbytes: int = 0
    count: int = 0
    oldest: int = 0
    newest: int = 0
    poisoned: int = 0
    oldest_poison: int = 0
    rest: int = 0
    devices: Counter[str] = field(default_factory=Counter)
    sorts: Counter[str] = field(default_factory=Counter)
    sessions: dict[int, None] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)

    def add(self, extent: PoolExtent) -> None:
        device, sort, nbytes, since, _, _, holders, names, _, poisoned = extent
        if nbytes:
            self.nbytes += nbytes
            self.count += 1
            self.devices[device] += nbytes
            self.sorts[sort] += nbytes
            if since:
                self.oldest = min(self.oldest or since, since)
                self.newest = max(self.newest, since)
        if poisoned:
            self.poisoned += 1
            self.oldest_poison = earlier(self.oldest_poison, since)
        for session in holders:
            self.sessions[session] = None
        for name in names:
            self.names[name] = None

    def merge(self, other: MemoryRow) -> None:
        """Add the sums of another group."""
        self.nbytes += other.nbytes
        self.count += other.count
        self.devices.update(other.devices)
        self.sorts.update(other.sorts)
        self.oldest = earlier(self.oldest, other.oldest)
        self.newest = max(self.newest, other.newest)
        self.poisoned += other.poisoned
        self.oldest_poison = earlier(self.oldest_poison, other.oldest_poison)
        self.sessions.update(other.sessions)
        self.names.update(other.names)


class Sums:
    """The sums of one walk.

    `by`: the key by which extents are grouped; `on`: the only device that groups count, "" for all devices.

    `held`: bytes by device. `freed`: session -> bytes by device that the end of the session would free.
    """

    def __init__(self, by: str, on: str = "") -> None:
        self.by = by
        self.on = on
        self.groups: dict[Key, MemoryRow] = {}
        self.held: Counter[str] = Counter()
        self.freed: dict[int, Counter[str]] = {}

    def add(self, extents: Iterable[PoolExtent]) -> None:
        key_of, groups = KEYS[self.by], self.groups
        for extent in extents:
            self.held[extent.device] += extent.nbytes
            alone = extent.freed_with
            if alone and extent.nbytes:
                self.freed.setdefault(alone, Counter())[extent.device] += extent.nbytes
            if self.on in ("", extent.device):
                key = key_of(extent)
                group = groups.get(key)
                if group is None:
                    group = groups[key] = MemoryRow()
                group.add(extent)

    def rows(self, limit: int, now: int, about: About) -> Iterator[list[dict[str, Any]]]:
        """The rows of the `limit` largest groups, and a row for all others, in slices, many of which are empty."""
        largest: list[tuple[int, Key, MemoryRow]] = []
        rest = MemoryRow()
        for _ in keep_largest(self.groups, limit, largest, rest):
            yield []
        largest.sort(key=lambda item: (-item[0], item[1]))
        for start in range(0, len(largest), DESCRIBED):
            yield [row(self.by, key, group, now, about) for _, key, group in largest[start : start + DESCRIBED]]
        if rest.rest:
            yield [row(self.by, ("",), rest, now, about)]

    def total(self, pools: Sequence[Mapping[str, Any]], *, still: bool) -> dict[str, Any]:
        """The object at the end of the answer.

        `still`: nothing changed during the walk, so every byte was counted once.
        """
        return {
            "by": self.by,
            "total": sum(pool["allocated"] for pool in pools),
            "groups": len(self.groups),
            "still": still,
            "pools": pools,
            "freed": {str(session): dict(devices) for session, devices in self.freed.items()},
        }


def by_what(by: object) -> str:
    """Check that a value is one of `KEYS`. ProtocolError if it is not."""
    if type(by) is not str or by not in KEYS:
        raise ProtocolError(f"memory is summed up by {', '.join(KEYS)}, not by {shown(by)}")
    return by


def held_slices(engine: Engine, sums: Sums, limit: int, where: Where, about: About) -> Iterator[list[dict[str, Any]]]:
    """The rows, and the total of all pools or of one device's pool, in slices, many of which are empty."""
    walk = Walk(engine)
    for extents in walk.slices():
        sums.add(extents)
        yield []
    still = walk.still()
    devices = [device for device in engine.pools.values() if sums.on in ("", device.name)]
    pools = [pool_row(one, sums.held[one.name], walk.rounding[one.name], walk.idle) for one in devices]
    if sums.by == LOCATION:
        for _ in merge_lines(sums, where):
            yield []
    yield from sums.rows(limit, engine.scheduler.clock(), about)
    yield [sums.total(pools, still=still)]


def merge_lines(sums: Sums, where: Where) -> Iterator[None]:
    """Merge the groups of the same line, for which several sessions may have different numbers."""
    groups, sums.groups = sums.groups, {}
    for some in batched(groups.items(), PER_SLICE):
        for (session, location), group in some:
            key = (where(session, location).line if location else "",)
            known = sums.groups.setdefault(key, group)
            if known is not group:
                known.merge(group)
        yield


def keep_largest(
    groups: Mapping[Key, MemoryRow], limit: int, largest: list[tuple[int, Key, MemoryRow]], rest: MemoryRow
) -> Iterator[None]:
    """Put the `limit` largest groups into the heap `largest`, and the sums of the others into `rest`."""
    for some in batched(groups.items(), PER_SLICE):
        for key, group in some:
            item = (group.nbytes, key, group)
            if len(largest) < limit:
                heapq.heappush(largest, item)
            else:
                rest.merge(heapq.heappushpop(largest, item)[2] if largest else group)
                rest.rest += 1
        yield


def row(by: str, key: Key, group: MemoryRow, now: int, about: About) -> dict[str, Any]:
    """A group as plain values. Its key is "" for bytes without a session, name or line, and for the rest."""
    key = () if group.rest else key
    text = "" if by != SESSION else about(key[0]) if key and key[0] else ""
    if by == DEVICE:
        text = " ".join(key[1:]).rstrip()
    return {
        "key": str(key[0]) if key and key[0] else "",
        "what": text or "",
        "ended": text is None,
        "rest": group.rest,
        "bytes": group.nbytes,
        "count": group.count,
        "age": age(group.oldest, now),
        "youngest": age(group.newest, now),
        "devices": dict(group.devices),
        "sorts": dict(group.sorts),
        "sessions": list(islice(group.sessions, HOLDERS_SHOWN)),
        "sessions_in_all": len(group.sessions),
        "names": list(islice(group.names, HOLDERS_SHOWN)),
        "names_in_all": len(group.names),
        "poisoned": group.poisoned,
        "poisoned_age": age(group.oldest_poison, now),
    }


def age(since: int, now: int) -> float | None:
    """The age in seconds; None if unknown."""
    return max(0, now - since) / 1e9 if since else None


def earlier(one: int, other: int) -> int:
    """The earlier of two times; a time of 0 is unknown."""
    return min(one, other) if one and other else one or other


KEYS: Final[Mapping[str, Callable[[PoolExtent], Key]]] = {
    SESSION: lambda extent: (extent.session,),
    NAME: lambda extent: (extent.names[0] if extent.names else "",),
    DEVICE: lambda extent: (extent.device, extent.sort, extent.detail if extent.sort == ARENA else ""),
    LOCATION: lambda extent: (extent.session, extent.location) if extent.location else (0, 0),
}
