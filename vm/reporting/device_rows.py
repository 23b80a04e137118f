"""The devices of a machine, described: memory, options, transfers, what each stream does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ...streams.stream import Stream
from ..model.device_state import Lane
from ..tracing.flat import Where

if TYPE_CHECKING:
    from ..engine import Engine


def describe(engine: Engine, lane: Lane, where: Where) -> dict[str, Any]:
    """Everything about one device."""
    device = lane.device
    others = [other for other in engine.lanes.values() if other is not lane]
    return {
        "name": lane.name,
        "options": plain(getattr(device, "options", None)),
        "memory": {
            "used": device.allocated,
            "planned": lane.planned,
            "limit": device.limit,
            "cached": cached(lane),
            "waiting": len(lane.waiting),
        },
        "lost": lost(lane),
        "streams": [_stream(engine, stream, where) for stream in device.streams],
        "transfers": transfers(lane),
        "peers": [
            other.name for other in others if not (device.host or other.device.host) and device.reaches(other.device)
        ],
        "missing": sorted(device.missing),
    }


def _stream(engine: Engine, stream: Stream, where: Where) -> dict[str, Any]:
    now = stream.running()
    return {
        "name": stream.name,
        "kind": stream.kind.value,
        "queued": stream.queued,
        "backlog": len(engine.backlog.get(stream, ())),
        "running": None if now is None else _running(engine, *now, where),
    }


def _running(engine: Engine, task: Any, since: int, where: Where) -> dict[str, Any]:
    author = getattr(task, "author", None)
    return {
        "instruction": task.id,
        "op": task.label,
        "seconds": max(0, engine.clock() - since) / 1e9,
        "session": author.id if author is not None else 0,
        "location": where(author.id, task.location) if author is not None else "",
    }


def transfers(lane: Lane) -> dict[str, dict[str, int]]:
    """Kind of transfer -> how many, and bytes."""
    return {kind: {"count": count, "bytes": size} for kind, (count, size) in sorted(lane.moved.items())}


def cached(lane: Lane) -> int:
    """Bytes of freed memory kept for reuse."""
    pool = getattr(lane.device, "pool", None)
    return int(pool.cached) if pool is not None else 0


def lost(lane: Lane) -> str:
    """Why the device is lost; empty while it works."""
    error = lane.lost or lane.device.lost
    return "" if error is None else str(error) or type(error).__name__


def plain(value: Any) -> Any:
    """Options and the like as msgpack's types."""
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
