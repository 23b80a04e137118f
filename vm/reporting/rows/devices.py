"""Rows that describe devices: memory, options, transfers, the state of each stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ....streams.stream import Stream
from ...model.device_state import DeviceState
from ...tracing.flat import Where
from .eviction import eviction_row

if TYPE_CHECKING:
    from ...engine import Engine


def describe(engine: Engine, device: DeviceState, where: Where) -> dict[str, Any]:
    backend = device.backend
    others = [other for other in engine.pools.values() if other is not device]
    return {
        "name": device.name,
        "options": plain(getattr(backend, "options", None)),
        "memory": {
            "used": backend.allocated,
            "planned": device.planned,
            "limit": backend.limit,
            "cached": cached(device),
            "waiting": len(device.waiting),
        },
        "eviction": eviction_row(device),
        "lost": lost(device),
        "streams": [_stream(engine, stream, where) for stream in device.streams],
        "transfers": transfers(device),
        "peers": [
            other.name
            for other in others
            if not (backend.host or other.backend.host) and backend.reaches(other.backend)
        ],
        "missing": sorted(backend.missing),
    }


def _stream(engine: Engine, stream: Stream, where: Where) -> dict[str, Any]:
    now = stream.running()
    return {
        "name": stream.name,
        "kind": stream.kind.value,
        "queued": stream.queued,
        "backlog": len(engine.scheduler.dispatcher.backlog.get(stream, ())),
        "running": None if now is None else _running(engine, *now, where),
    }


def _running(engine: Engine, task: Any, since: int, where: Where) -> dict[str, Any]:
    author = getattr(task, "author", None)
    return {
        "instruction": task.id,
        "op": task.label,
        "seconds": max(0, engine.scheduler.clock() - since) / 1e9,
        "session": author.id if author is not None else 0,
        "location": where(author.id, task.location).line if author is not None else "",
    }


def transfers(device: DeviceState) -> dict[str, dict[str, int]]:
    """Kind of transfer -> the number of transfers, and their bytes."""
    return {kind: {"count": count, "bytes": size} for kind, (count, size) in sorted(device.moved.items())}


def cached(device: DeviceState) -> int:
    """The bytes of freed memory that the pool keeps for reuse."""
    return device.backend.kept().nbytes


def lost(device: DeviceState) -> str:
    """Why the device is lost; "" while it works."""
    error = device.lost or device.backend.lost
    return "" if error is None else str(error) or type(error).__name__


def plain(value: Any) -> Any:
    """Convert options and similar values to msgpack's types."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if value is None or type(value) in {bool, int, float, str}:
        return value
    return str(value)
