"""The conditions under which an op or a run may execute at admission, and the records of such executions.

An execution at admission has no edges. So each operand needs a healthy, finished copy on the device, or a copy whose
write is an earlier launch on the same stream (`Launches.follows`); and each target needs memory that nothing else uses.
These are exactly the operands for which `edges.consume` would add no edge. `Inline.run` repeats the conditions, written
out for a call with two tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...streams.device import Buffer
from ..memory.release import release
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.launches import Launches
from ..model.lifecycle import Event
from ..model.reason import Reason
from ..model.tensor import Copy, Storage, VmTensor
from ..scheduler.scheduler import Scheduler


def readable(device: DeviceState, tensor: VmTensor | None, meta: Any) -> Copy | None:
    """The copy that a kernel can read now, or that a launch after all earlier ones can read; None without one."""
    if tensor is None or tensor.meta is not meta:
        return None
    copy = tensor.storage.copies.get(device)
    if copy is None or copy.poison is not None or copy.buffer is None:
        return None
    if copy.writer is not None and (device.launches is None or not device.launches.follows(copy)):
        return None
    return copy


def writable(device: DeviceState, tensor: VmTensor | None, meta: Any, launches: Launches | None) -> Copy | None:
    """The copy that a kernel may write now; None without one.

    The tensor must be the only one of its storage, charged to a session, without a copy elsewhere, and unused, or used
    only by launches that come earlier on the same stream.
    """
    if tensor is None or tensor.meta is not meta:
        return None
    storage = tensor.storage
    copy = storage.copies.get(device)
    if copy is None or len(storage.copies) != 1 or storage.views or storage.account is None:
        return None
    if storage.sharers != 1 or tensor.strides is not None or copy.client_mappings:  # `may_overwrite`, without its call
        return None
    if copy.poison is not None or copy.buffer is None:
        return None
    if (copy.uses or copy.readers) and (launches is None or not launches.follows_all(copy)):
        return None
    return copy


def edges_met(read: Sequence[Copy], written: Sequence[Copy]) -> tuple[Any, ...]:
    """The elided edges of a launch to unfinished instructions ahead of it on its stream, as a flat tuple.

    `read` and `written` are the copies that the launch uses, before `begin_write` gives them their next versions.
    """
    seen, found = set(), ()  # type: tuple[set[Copy], tuple[Any, ...]]
    for copy in read:
        if copy.writer is not None and copy not in seen:
            seen.add(copy)
            found += (copy.writer.id, Reason.RAW, copy.id, True)
    for copy in written:
        if copy.writer is not None and copy not in read:
            found += (copy.writer.id, Reason.WAW, copy.id, True)
        for reader in copy.readers or ():
            found += (reader.id, Reason.WAR, copy.id, True)
    return found


def note_launched(launches: Launches, used: Iterable[Copy], written: Iterable[Copy]) -> None:
    """Note the number of the newest launch in the copies that it uses and writes."""
    number = launches.order.issued
    for copy in used:
        copy.touched = number
    for copy in written:
        copy.written = copy.touched = number


def keep_record(
    scheduler: Scheduler,
    traits: tuple[Any, ...],
    copies: tuple[int, ...],
    started: int,
    location: int,
    used: int = 0,
    moved: int = 0,
    launch: int = 0,
    met: tuple[Any, ...] = (),
) -> None:
    """Count an instruction that began and ended at admission, and append its record (`tracing.flat`).

    `used`: the bytes in use on its device; `moved`: the bytes that it moved; `launch`: the number of its launch;
    `met`: its elided edges, flat.
    """
    scheduler.ids = id_ = scheduler.ids + 1
    scheduler.tick = tick = scheduler.tick + 2
    scheduler.counts[traits[1]].done += 1
    ring = scheduler.ring
    if ring.enabled:
        entry = (id_, traits, copies, tick, scheduler.now, started, scheduler.clock(), location, used)
        if launch:
            ring.append((*entry, moved, launch, met))
        else:
            ring.append((*entry, moved) if moved else entry)


def begin_write(copy: Copy, storage: Storage) -> None:
    """Give a copy its next version; the write is done or launched, so later accesses need no edge to earlier ones."""
    copy.writer = copy.readers = None
    storage.placed = copy.device.alone
    storage.version = copy.version = storage.version + 1


def bind_operand(device: DeviceState, buffer: Buffer, tensor: VmTensor, meta: Any) -> Any:
    """The array of an operand: the buffer's own, or a view of the buffer."""
    if tensor.strides is not None:
        return device.backend.bind_view(buffer, meta, tensor.offset, tensor.strides)
    return buffer.array if buffer.meta is meta else device.backend.bind(buffer, meta)


def begin_failed(
    scheduler: Scheduler, instruction: Instruction, reads: Iterable[Copy], writes: Iterable[Copy], started: int
) -> None:
    """Fill in a failed inline instruction as if it had been admitted and dispatched by the scheduler."""
    instruction.reads, instruction.writes = tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))
    instruction.versions = tuple([copy.version for copy in instruction.reads + instruction.writes])
    instruction.admitted = scheduler.tick - 1
    instruction.received = instruction.ready = instruction.dispatched = scheduler.now
    instruction.started = started
    instruction.move(Event.SATISFIED)
    instruction.move(Event.DISPATCHED)


def end_failed(scheduler: Scheduler, instruction: Instruction) -> None:
    """End a failed inline instruction: release the copies that it has poisoned, and add its record."""
    for copy in instruction.writes:
        release(copy)
    instruction.finished = scheduler.latest = scheduler.clock()
    instruction.move_to_outcome()
    scheduler.count(instruction)
    scheduler.ring.add(instruction, scheduler.tick)
