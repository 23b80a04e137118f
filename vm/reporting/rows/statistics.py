"""Statistics of the engine: counters and residency, as plain values."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ....interpreter.errors import ProtocolError
from ...memory.run_memory import run_bytes
from ...model.device_state import DeviceState
from ...model.tensor import Moved, VmTensor
from .devices import transfers
from .eviction import eviction_row

if TYPE_CHECKING:
    from ...engine import Engine
    from ...model.session import VmSession


def statistics(engine: Engine, session: VmSession) -> dict[str, Any]:
    """Counters of the engine, its devices, and one session."""
    return {
        "instructions": engine.scheduler.ids,
        "retired": engine.scheduler.retired,
        "failed": engine.scheduler.failed,
        "live": len(engine.live),
        "pending": engine.waiting().total(),
        "by_status": dict(Counter(i.status.value for i in engine.live.values())),
        "infer_misses": engine.infer.misses,
        "devices": {name: device_statistics(device) for name, device in engine.pools.items()},
        "nodes": {
            doing: {node: {"count": count, "bytes": nbytes} for node, (count, nbytes) in counted.items()}
            for doing, counted in (("sent", engine.admission.nodes.sent), ("received", engine.admission.nodes.received))
        },
        "collectives": {
            kind: {"count": count, "bytes": nbytes} for kind, (count, nbytes) in engine.scheduler.collectives.items()
        },
        "transfers": {name: transfers(device) for name, device in engine.pools.items()},
        "names": sorted(engine.directory.names),
        "session": {
            "id": session.id,
            "tensors": len(session.tensors),
            "bytes": session.account.bytes,
            "peak": session.account.peak,
            "live": len(session.live),
            "errors": session.counts.errors,
            "cancelled": session.cancelled is not None,
            "shares": share_rows(engine, session),
        },
    }


def share_rows(engine: Engine, session: VmSession) -> dict[str, dict[str, int]]:
    """The session's share of each device with a ceiling for a session's memory."""
    shares = session.account.shares
    return {
        name: {"bytes": shares.get(device, 0), "ceiling": device.ceiling}
        for name, device in engine.pools.items()
        if device.ceiling
    }


def device_statistics(device: DeviceState) -> dict[str, Any]:
    """The counters of a device: memory in bytes, and the length of each stream's queue."""
    cached = device.backend.kept()
    return {
        "allocated": device.backend.allocated,
        "planned": device.planned,
        "limit": device.backend.limit,
        "kept_for_runs": run_bytes(device),
        "cached": cached.nbytes,
        "cached_blocks": cached.blocks,
        "largest_cached": cached.largest,
        "waiting_for_memory": len(device.waiting),
        "eviction": eviction_row(device),
        "queued": {stream.name: stream.queued for stream in device.streams if stream.queued},
    }


def tensor_asked(session: VmSession, id_: int) -> VmTensor:
    """The tensor with this id. ProtocolError if the session does not have it."""
    tensor = session.tensors.get(id_)
    if tensor is None:
        raise ProtocolError(f"tensor {id_} was released")
    return tensor


def residency(tensor: VmTensor) -> dict[str, str]:
    """Device -> "valid", "planned" or "poisoned", for each current copy, and for the copy that a planned move will
    make."""
    storage = tensor.storage
    copies = dict(storage.copies)
    key = tensor.view_key()
    for (device, view), copy in (storage.views or {}).items():
        if view == key:
            copies.setdefault(device, copy)
    states = {}
    for device, copy in copies.items():
        states[device.name] = "planned" if copy.writer is not None else "valid" if copy.poison is None else "poisoned"
    if type(tensor) is Moved and tensor.mover is not None:
        states.setdefault(tensor.home.name, "planned")
    return states
