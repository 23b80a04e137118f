"""Rows that sum up who holds the bytes of the pools: by session, name, device, or line. They add up to the pools.

The rows come first, the largest first, then one that sums up the rest, then an object with the total and the pools. The
sums are those of one walk (`extents`), so in a quiet machine they are exact; what is taken or freed between two slices of a long
walk is in a pool's `unaccounted`, which is 0 otherwise.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...interpreter.errors import ProtocolError
from ...interpreter.wire.forms import shown
from ..model.device_state import DeviceState
from ..tracing.flat import Where
from .extents import ARENA, LOOKED_AT, Extent, Walk
from .pool_rows import pool_row

if TYPE_CHECKING:
    from ..engine import Engine

SESSION: Final = "session"
NAME: Final = "name"
DEVICE: Final = "device"
LOCATION: Final = "location"
BY: Final = (SESSION, NAME, DEVICE, LOCATION)

HOLDERS_SHOWN: Final = 10  # sessions, and names, of one row
DESCRIBED: Final = 64  # rows per slice

Key: TypeAlias = tuple[Any, ...]


class Group:
    """The sums of one row. `oldest`, `newest`: by the engine's clock, 0 while unknown; `rest`: how many groups in one."""

    __slots__ = ("count", "devices", "nbytes", "names", "newest", "oldest", "oldest_poison", "poisoned", "rest")
    __slots__ += ("sessions", "sorts")

    def __init__(self) -> None:
        self.nbytes = 0
        self.count = 0
        self.oldest = 0
        self.newest = 0
        self.devices: Counter[str] = Counter()
        self.sorts: Counter[str] = Counter()
        self.sessions: dict[int, None] = {}
        self.names: dict[str, None] = {}
        self.poisoned = 0
        self.oldest_poison = 0
        self.rest = 0

    def add(self, extent: Extent) -> None:
        """Count a piece of a pool."""
        if extent.nbytes:
            self.nbytes += extent.nbytes
            self.count += 1
            self.devices[extent.device.name] += extent.nbytes
            self.sorts[extent.sort] += extent.nbytes
            self.oldest = earlier(self.oldest, extent.since)
            self.newest = max(self.newest, extent.since)
        if extent.poisoned:
            self.poisoned += 1
            self.oldest_poison = earlier(self.oldest_poison, extent.since)
        self.sessions.update(dict.fromkeys(extent.holders))
        self.names.update(dict.fromkeys(extent.names))

    def merge(self, other: Group) -> None:
        """Count what another group has counted."""
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
        self.rest += 1


class Sums:
    """The groups of one walk. `freed`: session -> bytes by device that would be free if the session ended."""

    def __init__(self, engine: Engine, key: Callable[[Extent], Key], device: DeviceState | None = None) -> None:
        self.engine = engine
        self.walk = Walk(engine)
        self.key = key
        self.device = device
        self.groups: dict[Key, Group] = {}
        self.held: Counter[DeviceState] = Counter()
        self.freed: dict[int, Counter[str]] = {}

    def slices(self) -> Iterator[None]:
        """Walk; after each slice the machine may go on."""
        for extents in self.walk.slices():
            for extent in extents:
                self.add(extent)
            yield

    def add(self, extent: Extent) -> None:
        """Count a piece of a pool."""
        self.held[extent.device] += extent.nbytes
        if extent.goes_with and extent.nbytes:
            self.freed.setdefault(extent.goes_with, Counter())[extent.device.name] += extent.nbytes
        if self.device in (None, extent.device):
            key = self.key(extent)
            group = self.groups.get(key)
            if group is None:
                group = self.groups[key] = Group()
            group.add(extent)

    def pools(self) -> list[dict[str, Any]]:
        """The pools' rows."""
        walk = self.walk
        chosen = self.engine.devices.values() if self.device is None else (self.device,)
        return [pool_row(device, self.held[device], walk.rounding[device], walk.idle) for device in chosen]


def by_what(by: object) -> str:
    """What rows are summed up by; ProtocolError for anything else."""
    if type(by) is not str or by not in BY:
        raise ProtocolError(f"memory is summed up by {', '.join(BY)}, not by {shown(by)}")
    return by


def held_slices(
    engine: Engine, by: str, limit: int, on: str, where: Where, about: Callable[[int], str]
) -> Iterator[list[dict[str, Any]]]:
    """The `limit` largest rows, a row for the rest, and the total, in slices of which many are empty.

    `on`: only that device, "" for all. `about`: the name of a session, as long as it is open.
    """
    sums = Sums(engine, KEYS[by], engine.devices.get(on))
    for _ in sums.slices():
        yield []
    pools, still = sums.pools(), sums.walk.still()
    groups = sums.groups
    if by == LOCATION:
        groups = {}
        for _ in merge_lines(sums.groups, groups, where):
            yield []
    largest: list[tuple[int, Key, Group]] = []
    rest = Group()
    for _ in keep_largest(groups, limit, largest, rest):
        yield []
    largest.sort(key=lambda item: (-item[0], item[1]))
    now = engine.scheduler.clock()
    for start in range(0, len(largest), DESCRIBED):
        yield [row(by, key, group, now, about) for _, key, group in largest[start : start + DESCRIBED]]
    if rest.rest:
        yield [row(by, ("",), rest, now, about)]
    yield [summary(by, sums, pools, len(groups), still=still)]


def summary(by: str, sums: Sums, pools: list[dict[str, Any]], groups: int, *, still: bool) -> dict[str, Any]:
    """The last object. `still`: nothing happened during the walk, so every byte was counted once."""
    return {
        "by": by,
        "total": sum(pool["allocated"] for pool in pools),
        "groups": groups,
        "still": still,
        "pools": pools,
        "freed": {str(session): dict(devices) for session, devices in sums.freed.items()},
    }


def merge_lines(groups: Mapping[Key, Group], merged: dict[Key, Group], where: Where) -> Iterator[None]:
    """Merge the groups of one line, which several sessions may have under different numbers."""
    items = iter(groups.items())
    while some := list(islice(items, LOOKED_AT)):
        for (session, location), group in some:
            key = (where(session, location).line if location else "",)
            if key in merged:
                merged[key].merge(group)
            else:
                merged[key] = group
        yield
    for group in merged.values():
        group.rest = 0


def keep_largest(
    groups: Mapping[Key, Group], limit: int, largest: list[tuple[int, Key, Group]], rest: Group
) -> Iterator[None]:
    """The `limit` largest groups, in a heap; the others in `rest`."""
    items = iter(groups.items())
    while some := list(islice(items, LOOKED_AT)):
        for key, group in some:
            one = (group.nbytes, key, group)
            if len(largest) < limit:
                heapq.heappush(largest, one)
            else:
                rest.merge(heapq.heappushpop(largest, one)[2] if largest else group)
        yield


def row(by: str, key: Key, group: Group, now: int, about: Callable[[int], str]) -> dict[str, Any]:
    """A group as plain values. `key`: "" for bytes that have no session, name or line, and for the rest."""
    key, text = title_of(by, key, about) if not group.rest else ("", "")
    return {
        "key": key,
        "about": text,
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


def title_of(by: str, key: Key, about: Callable[[int], str]) -> tuple[str, str]:
    """What the row is called, and what else there is to say of it."""
    if by == SESSION:
        return (str(key[0]), about(key[0])) if key[0] else ("", "")
    if by == DEVICE:
        return key[0], f"{key[1]} {key[2]}".rstrip()
    return key[0], ""


def age(since: int, now: int) -> float | None:
    """Seconds; None if unknown."""
    return max(0, now - since) / 1e9 if since else None


def earlier(one: int, other: int) -> int:
    """The earlier of two times, of which 0 is unknown."""
    return min(one, other) if one and other else one or other


KEYS: Final[Mapping[str, Callable[[Extent], Key]]] = {
    SESSION: lambda extent: (extent.session,),
    NAME: lambda extent: (extent.names[0] if extent.names else "",),
    DEVICE: lambda extent: (extent.device.name, extent.sort, extent.detail if extent.sort == ARENA else ""),
    LOCATION: lambda extent: (extent.session, extent.location) if extent.location else (0, 0),
}
