"""Rows that describe the devices' pools: what they have allocated, what they keep, and what no limit counts.

Besides what is allocated, a device has memory that nobody waits for, told apart here:

- `cached`: freed blocks that the pool keeps for reuse;
- `run_arena`: the one block for runs at admission, which no limit counts;
- `idle_arenas`: blocks of arenas that replays of routines are still bound to, though the pool has let go of them; as
  long as the pool keeps such a block, or somebody uses it, it counts there.

Blocks of these pools come from the system one by one, so free memory that is not cached is in no pieces. What there is
of fragmentation is `rounding`, the bytes that blocks have beyond those that were asked for, and among the cached blocks
the largest against all of them: one buffer can reuse one block.
"""

from __future__ import annotations

from typing import Any

from ....streams.pool import owner_of
from ...model.device_state import DeviceState
from .idle_arenas import IdleArenas


def pool_row(device: DeviceState, held: int, rounding: int, idle: IdleArenas) -> dict[str, Any]:
    """A device's pool. `held`: the bytes that have a holder, by a walk over all; `rounding`: of their blocks."""
    backend = device.backend
    kept = backend.kept()
    return {
        "device": device.name,
        "allocated": backend.allocated,
        "unaccounted": backend.allocated - held,
        "limit": backend.limit,
        "rounding": rounding,
        "cached": kept.nbytes,
        "cached_blocks": kept.blocks,
        "largest_cached": kept.largest,
        "run_arena": run_arena(device),
        "idle_arenas": idle.on(device),
    }


def run_arena(device: DeviceState) -> int:
    """Bytes of the memory for runs at admission."""
    return 0 if device.arena is None else int(owner_of(device.arena).nbytes)
