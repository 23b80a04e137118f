"""Rows about the devices' pools: allocated memory, cached memory, and memory that does not count towards limits.

A device has, besides allocated memory, three kinds of unused memory:

- `cached`: freed blocks that the pool keeps for reuse;
- `run_arena`: the block for runs at admission, which does not count towards the limit;
- `idle_arenas`: blocks that the pool has released, but that replays of routines keep as arenas. While the pool caches
  such a block, or a buffer uses it, the block counts as cached or allocated instead.

A replay that waits for the next run of its routine keeps the pages of its arena (`running.segment`), even while a
buffer uses the block.

The pools get each block from the system separately, so free memory that is not cached is not fragmented. There are two
measures of fragmentation: `rounding`, the bytes by which blocks are larger than requested; and the largest cached block
compared with all cached bytes, since a buffer can reuse only one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....streams.device import Buffer
from ....streams.pool import bytes_of, owner_of
from ...model.device_state import DeviceState
from ...model.linked import SessionProgram
from ...routines.running.replay import Replay

if TYPE_CHECKING:
    from ...engine import Engine


class IdleArenas:
    """The arenas that idle replays keep.

    `found`: the object that owns an arena's memory, by id -> device, name of the routine, bytes. `used`: the owners
    whose memory a buffer uses.
    """

    def __init__(self) -> None:
        self.found: dict[int, tuple[DeviceState, str, int]] = {}
        self.used: set[int] = set()

    def add_all(self, engine: Engine) -> Iterator[None]:
        """Find the arenas of all sessions, one session per step."""
        for session in list(engine.directory.sessions.values()):
            for routine in list(session.routines.values()):
                if isinstance(routine, SessionProgram):
                    self.add(routine, routine.name)
            yield

    def add(self, routine: SessionProgram, name: str) -> None:
        """Note the arenas of a routine and of its parts."""
        for segment in routine.segments.values():
            for replay in () if segment is None else list(segment.idle):
                self.add_replay(replay, segment.plan.device, name)
        for part in routine.parts():
            self.add(part, name)

    def add_replay(self, replay: Replay, device: DeviceState, name: str) -> None:
        """Note the arena of a replay; several replays may have the same arena."""
        if replay.arena is not None:
            owner = owner_of(replay.arena)
            self.found[id(owner)] = (device, name, bytes_of(owner))

    def on(self, device: DeviceState) -> list[dict[str, Any]]:
        """The arenas on a device that its pool does not cache and no buffer uses, by routine, the largest first."""
        cached = device.backend.kept_owners() if self.found else set()
        sums: dict[str, int] = {}
        for owner, (where, name, nbytes) in self.found.items():
            if where is device and owner not in cached and owner not in self.used:
                sums[name] = sums.get(name, 0) + nbytes
        rows = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
        return [{"routine": name, "bytes": nbytes} for name, nbytes in rows]

    def note(self, buffer: Buffer) -> None:
        """Note that a buffer is in use; if its memory is an arena, that is not idle."""
        owner = id(owner_of(buffer.raw))
        if owner in self.found:
            self.used.add(owner)


def pool_row(device: DeviceState, held: int, rounding: int, idle: IdleArenas) -> dict[str, Any]:
    """The row of a device's pool. `held`: the bytes of all extents; `rounding`: of their blocks."""
    backend = device.backend
    cached = backend.kept()
    return {
        "device": device.name,
        "allocated": backend.allocated,
        "unaccounted": backend.allocated - held,
        "limit": backend.limit,
        "rounding": rounding,
        "cached": cached.nbytes,
        "cached_blocks": cached.blocks,
        "largest_cached": cached.largest,
        "run_arena": run_arena(device),
        "idle_arenas": idle.on(device),
    }


def run_arena(device: DeviceState) -> int:
    """The bytes of the arena for runs at admission."""
    return 0 if device.arena is None else bytes_of(owner_of(device.arena))
