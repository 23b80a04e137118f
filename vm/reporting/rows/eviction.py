"""Eviction for users and operators: totals of a device, tensors that are evicted again and again, the question `evict`.

Most questions only read; `evict` plans transfers. Each such question evicts few values, since other sessions wait
meanwhile; the command `tensord evict` repeats the question while there are more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any

from ....interpreter.errors import ProtocolError
from ...memory.making_room import gather, may_evict
from ...memory.pins import pinned_bytes
from ...memory.replicas import may_forget
from ...model.device_state import DeviceState
from ...model.session import Cause, VmSession
from ...model.tensor import Storage
from ...placement.hints import evict_copies
from ...tracing.flat import Where
from ..answering import batched, device_or_any, session_or_any
from ..memory.holdings import PER_SLICE, add_names, maker_of, tensors

if TYPE_CHECKING:
    from ...engine import Engine
    from ..memory.holdings import Named

AT_ONCE = 256  # the most values that one question evicts, which takes some milliseconds
OFTEN = 3  # how often a tensor must have come back to be listed


def eviction_row(device: DeviceState) -> dict[str, Any]:
    """The values that left a device to make room, by a transfer (`evicted`) or without (`dropped`); returns; pinned
    bytes."""
    return {
        "below": "" if device.below is None else device.below.name,
        "evicted": total(device.eviction.evicted),
        "dropped": total(device.eviction.dropped),
        "returned": total(device.eviction.returned),
        "pinned": pinned_bytes(device) if device.pinned else 0,
    }


def total(counted: Sequence[int]) -> dict[str, int]:
    return {"count": counted[0], "bytes": counted[1]}


NO_EVICTION: Mapping[str, Any] = {
    "below": "",
    "evicted": total((0, 0)),
    "dropped": total((0, 0)),
    "returned": total((0, 0)),
    "pinned": 0,
}


def returning_slices(engine: Engine, limit: int, where: Where) -> Iterator[list[dict[str, Any]]]:
    """The `limit` storages with the most bytes that came back to a device after an eviction, of those that did so at
    least `OFTEN` times. All slices but the last are empty: they divide the work."""
    homes: dict[Storage, str] = {}  # storage -> the home of one of its tensors
    everything = tensors(engine.directory)
    for chunk in batched(everything, PER_SLICE):
        homes |= {one.storage: one.home.name for one in chunk if one.storage.returns >= OFTEN}
        yield []
    most = nlargest(limit, homes, key=lambda storage: storage.returns * storage.nbytes)
    names: Named = {}
    if most:
        for some in batched(list(engine.directory.named()), PER_SLICE):
            add_names(names, some)
            yield []
    yield [returning_row(storage, homes[storage], names, where) for storage in most]


def returning_row(storage: Storage, device: str, names: Named, where: Where) -> dict[str, Any]:
    """The row of a storage that was evicted and came back: how often, and its maker."""
    session, location = maker_of(storage, where)
    return {
        "names": sorted(names.get(storage, ())),
        "session": session,
        "op": storage.maker[0],
        "location": location,
        "bytes": max(storage.nbytes, 0),
        "returns": storage.returns,
        "device": device,
    }


def evict(
    engine: Engine, session: VmSession, names: object, owner: object, device: object
) -> dict[str, list[dict[str, Any]] | bool]:
    """Evict values to the tiers below: those with the given names, those that the session `owner` made, those on a
    device. If several are given, values must meet all. Returns the evicted values by device, and whether there may be
    more."""
    only = storages_named(engine, names)
    account = session_or_any(owner, engine.directory.sessions)
    name = device_or_any(device, engine.pools)
    if only is None and not account and not name:
        raise ProtocolError("nothing was chosen to evict: give names, a session or a device")
    evicted: Counter[tuple[DeviceState, str]] = Counter()
    freed: Counter[tuple[DeviceState, str]] = Counter()
    chosen = list(islice(evictable_values(engine, only, account, name), AT_ONCE))
    for source, storage in chosen:
        nbytes = evict_copies(engine.residency, storage, source, Cause(session, 0))
        if nbytes:
            route = (source, destination(storage, source))
            evicted[route] += 1
            freed[route] += nbytes
    rows = [
        {"device": source.name, "to": to, "values": count, "bytes": freed[source, to]}
        for (source, to), count in evicted.items()
    ]
    return {"left": rows, "more": bool(rows) and len(chosen) == AT_ONCE}


def destination(storage: Storage, device: DeviceState) -> str:
    """The tier below to which a value was evicted; the next one below, if the value was dropped without a transfer."""
    tiers = device.tiers
    return next((tier for tier in tiers if tier in storage.copies), tiers[0]).name


def evictable_values(
    engine: Engine, only: Mapping[Storage, None] | None, account: int, name: str
) -> Iterator[tuple[DeviceState, Storage]]:
    """(device, storage) for each value that may be evicted from a device.

    Without names these are the device's candidates, which are first gathered if its memory was never short.
    """
    for device in engine.pools.values():
        if device.below is None or name not in {"", device.name}:
            continue
        if only is None and not device.short:
            gather(device, engine.directory.storages())
        if only is None:
            found = list(device.candidates.items())
        else:
            found = [(copy, storage) for storage in only for copy in storage.current() if copy.device is device]
        for copy, storage in found:
            owner = 0 if storage.account is None else storage.account.session
            if account and owner != account:
                continue
            if copy.nbytes > 0 and (may_forget(copy, storage) or may_evict(copy, storage)):
                yield device, storage


def storages_named(engine: Engine, names: object) -> dict[Storage, None] | None:
    """The storages of published tensors, and those that published routines capture; None if no names are given."""
    if not isinstance(names, list | tuple) or not all(type(name) is str for name in names):
        raise ProtocolError("the names must be a list of texts")
    if not names:
        return None
    found = engine.admission.names.lookup(names)
    return {tensor.storage: None for published in found for tensor in published.tensors}
