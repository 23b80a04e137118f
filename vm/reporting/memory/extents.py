"""The contents of the devices' pools, as extents: the purpose, author, holders and age of each byte.

The extents of a device add up to the bytes that its pool has allocated (`tests/model` checks this after every pass).
Most extents are the buffers of copies; the others belong to running instructions, to streams, and to clients that
read in place. All kinds of memory are treated alike.

A storage with one holder is counted when the walk reaches its handle; a storage with several holders is counted
after the walk over all handles, once, with all of its holders. A machine may have a million tensors, so the walk is
sliced, and the machine works between slices. Memory that is allocated or freed during the walk may be missed, or
counted twice; `Walk.still` reports that.

Source of the idea: smem(8) and Linux's `Pss`, which split shared memory so that columns sum up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ....streams.device import Buffer
from ....streams.pool import owner_of
from ...memory.run_memory import run_bytes
from ...model.device_state import DeviceState
from ...model.instruction import Instruction
from ...model.tensor import Copy, Storage
from ...routines.running.instruction import RunInstruction
from .holdings import Named, add_names
from .pools import IdleArenas

if TYPE_CHECKING:
    from ...engine import Engine

PER_SLICE: Final = 512  # handles, names, storages or instructions in a slice, which takes some 2 ms

# The purposes of an extent.
TENSOR: Final = "tensor"  # a current copy of a storage
VIEW: Final = "view"  # a current copy of the bytes of one view
MAPPED: Final = "mapped"  # a copy that clients read in place, current or stale
CHECKPOINT: Final = "checkpoint"  # a stale copy that a checkpoint writes to the disk: its instructions have that label
STANDBY: Final = "standby"  # a stale copy that is kept until the transfer of its value has arrived
IN_USE: Final = "in use"  # a stale copy that instructions still access
ARENA: Final = "arena"  # the inner values of a run that is under way
TEMPORARIES: Final = "temporaries"  # the temporary memory of a running kernel
STREAM: Final = (
    "stream"  # a buffer whose last users are on a stream; only later instructions of that stream may reuse it
)
RUNS: Final = "runs"  # kept for future runs of routines: the memory of graphs, and the arenas of long segments
LEFT_OPEN: Final = "left open"  # a block that the process of an ended session may still have open
VALUES: Final = frozenset({TENSOR, VIEW, MAPPED})
SORTS: Final = (TENSOR, VIEW, MAPPED, CHECKPOINT, STANDBY, IN_USE, ARENA, TEMPORARIES, STREAM, RUNS, LEFT_OPEN)


class PoolExtent(NamedTuple):
    """An extent of a device's pool: bytes with one purpose.

    `since`: when its storage was made, or its instruction was dispatched, by the engine's clock; 0 if unknown.
    `session`, `location`: the session that made it, and the number of the line; for a stale copy, which no longer
    has a storage, those of the instruction that keeps it. `holders`, `names`: the sessions and names that hold it.
    `detail`: the run or the stream. `poisoned`: its value is an error; such an extent may have no bytes.
    """

    device: str
    sort: str
    nbytes: int
    since: int
    session: int
    location: int
    holders: Sequence[int]
    names: Sequence[str] = ()
    detail: str = ""
    poisoned: bool = False

    @property
    def freed_with(self) -> int:
        """The session whose end would free the extent: the only holder of a value; 0 if there is no such session."""
        alone = len(self.holders) == 1 and not self.names and self.sort in VALUES
        return self.holders[0] if alone else 0


class Walk:
    """One walk over all pools.

    `rounding`: by device, by how many bytes the blocks of buffers are larger than requested. `idle`: unused arenas.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rounding = dict.fromkeys(engine.tiers, 0)
        self.idle = IdleArenas()
        self._names: Named = {}
        self._shared: dict[Storage, dict[int, None]] = {}  # storage -> the sessions that hold it
        self._stale: set[Copy] = set()
        self._arenas: dict[
            int, Instruction
        ] = {}  # owner of an arena's memory -> the run on a stream that uses the arena
        self._began = self._state()

    def still(self) -> bool:
        """Whether nothing has changed since the walk began."""
        return self._state() == self._began

    def _state(self) -> tuple[int, ...]:
        engine = self.engine
        return (engine.scheduler.tick, *[device.backend.allocated for device in engine.tiers.values()])

    def slices(self) -> Iterator[list[PoolExtent]]:
        """All extents, in lists; the machine may work between two of them."""
        extents: list[PoolExtent] = []
        room = PER_SLICE
        for piece in self._pieces():
            extents += piece
            room -= 1
            if not room:
                yield extents
                extents, room = [], PER_SLICE
        yield extents

    def _pieces(self) -> Iterator[Iterable[PoolExtent]]:
        """The extents of one storage or instruction after the other; empty if the step has found none."""
        engine, shared = self.engine, self._shared
        for _ in self.idle.add_all(engine):
            yield ()
        for some in list(engine.directory.named()):
            add_names(self._names, (some,))
            yield ()
        for storage in self._names:
            shared[storage] = {}
        for owner, _, tensor in engine.directory.handles():
            session, storage = owner.id, tensor.storage
            if not tensor.holders:  # of an ended session, and released since
                continue
            if tensor.holders > 1 or storage.sharers > 1:
                shared.setdefault(storage, {})[session] = None
                yield ()
            else:
                yield self._values(storage, (session,), ())
        for storage, holders in shared.items():
            yield self._values(storage, tuple(holders), self._names.get(storage, ()))
        for instruction in list(engine.live.values()):
            if not instruction.retired:
                yield self._under_way(instruction)
        yield self._mapped_by_clients()
        for device in engine.tiers.values():
            yield self._standing_by(device)
            yield self._reusable(device)
            if for_runs := run_bytes(device):
                yield [PoolExtent(device.name, RUNS, for_runs, 0, 0, 0, ())]
            yield [
                PoolExtent(device.name, LEFT_OPEN, nbytes, 0, 0, 0, ()) for nbytes in device.backend.blocks_left_open()
            ]

    def _values(self, storage: Storage, holders: Sequence[int], names: Sequence[str]) -> list[PoolExtent]:
        account, extents = storage.account, []
        maker = 0 if account is None else account.session
        for copy in storage.copies.values() if storage.views is None else storage.current():
            poisoned = copy.poison is not None
            nbytes = self._bytes_of(copy)
            if nbytes or poisoned:
                device, line = copy.device, storage.location
                sort = MAPPED if copy in device.mapped else TENSOR if copy.view is None else VIEW
                extent = (device.name, sort, nbytes, storage.made, maker, line, holders, names, "", poisoned)
                extents.append(PoolExtent._make(extent))
        return extents

    def _under_way(self, instruction: Instruction) -> Iterator[PoolExtent]:
        """The extents that a live instruction keeps: its temporaries, its arena, and stale copies that it accesses."""
        since, author, line = instruction.dispatched, instruction.author.id, instruction.location
        if instruction.scratch:
            yield PoolExtent(instruction.device.name, TEMPORARIES, instruction.scratch, since, author, line, (author,))
        arena, use = arena_of(instruction), CHECKPOINT if instruction.label == CHECKPOINT else IN_USE
        if arena is not None and arena.buffer is None and instruction.arguments:
            self._arenas[id(owner_of(instruction.arguments[-1]))] = instruction  # later runs of its stream may reuse it
        for copy in instruction.reads + instruction.writes:
            if copy in self._stale or copy.current or copy in copy.device.mapped or copy in copy.device.standby:
                continue
            self._stale.add(copy)
            if nbytes := self._bytes_of(copy):
                sort, detail = (ARENA, instruction.label) if copy is arena else (use, "")
                yield PoolExtent(copy.device.name, sort, nbytes, since, author, line, (author,), detail=detail)

    def _mapped_by_clients(self) -> Iterator[PoolExtent]:
        """The extents of stale copies that clients map."""
        readers: dict[Copy, tuple[Storage, dict[int, None]]] = {}
        for export in self.engine.residency.releasing.exports.values():
            if not export.copy.current:
                readers.setdefault(export.copy, (export.storage, {}))[1][export.reader.id] = None
        for copy, (storage, sessions) in readers.items():
            account = storage.account
            maker = 0 if account is None else account.session
            if nbytes := self._bytes_of(copy):
                yield PoolExtent(
                    copy.device.name, MAPPED, nbytes, storage.made, maker, storage.location, tuple(sessions)
                )

    def _standing_by(self, device: DeviceState) -> Iterator[PoolExtent]:
        for copy, transfer in device.standby.items():
            nbytes = 0 if copy in device.mapped else self._bytes_of(copy)
            if nbytes:
                author = transfer.author.id
                yield PoolExtent(device.name, STANDBY, nbytes, transfer.received, author, transfer.location, (author,))

    def _reusable(self, device: DeviceState) -> Iterator[PoolExtent]:
        for stream, buffers in device.reusable.items():
            for buffer in buffers:
                nbytes = self._note(device, buffer)
                # The run whose arena was bound to the buffer last.
                run = self._arenas.get(id(owner_of(buffer.raw))) if self._arenas else None
                if run is None:
                    yield PoolExtent(device.name, STREAM, nbytes, 0, 0, 0, (), detail=stream.name)
                else:
                    author, line = run.author.id, run.location
                    yield PoolExtent(
                        device.name, ARENA, nbytes, run.dispatched, author, line, (author,), detail=run.label
                    )

    def _bytes_of(self, copy: Copy) -> int:
        """The bytes of a copy's buffer, as its pool counts them."""
        return 0 if copy.buffer is None else self._note(copy.device, copy.buffer)

    def _note(self, device: DeviceState, buffer: Buffer) -> int:
        self.rounding[device.name] += device.backend.rounding(buffer)
        if self.idle.found:
            self.idle.note(buffer)
        return buffer.nbytes


def arena_of(instruction: Instruction) -> Copy | None:
    """The copy whose memory is the arena of a run; None if it has no arena."""
    if isinstance(instruction, RunInstruction) and instruction.segment.recipe.arena and instruction.outputs:
        return instruction.outputs[-1].copy
    return None
