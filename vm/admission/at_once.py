"""What may run at admission: the rule about operands, for an op and for a whole run, and what is kept of a failure.

An op or a run that runs where it is admitted has no edges. So each operand has a healthy, finished copy on the device,
or one that a launch comes behind (`Launches.follows`), and what is written has memory that nobody else uses. These are
exactly the operands for which `edges.consume` would find nothing to do. `Inline.run` has the rule once more, written
out for a call with two tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...streams.device import Buffer
from ..memory.release import release
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, Status
from ..model.launches import Launches
from ..model.reason import Reason
from ..model.tensor import Copy, Storage, Tensor
from ..scheduler.scheduler import Scheduler


def readable(device: DeviceState, tensor: Tensor | None, meta: Any) -> Copy | None:
    """The copy that a kernel may read now, or a launch behind all others: it is there, healthy and finished."""
    if tensor is None or tensor.meta is not meta:
        return None
    copy = tensor.storage.copies.get(device)
    if copy is None or copy.poison is not None or copy.buffer is None:
        return None
    if copy.writer is not None and (device.launches is None or not device.launches.follows(copy)):
        return None
    return copy


def writable(device: DeviceState, tensor: Tensor | None, meta: Any, launches: Launches | None) -> Copy | None:
    """The copy that a kernel may write now: the tensor's memory is its own, charged, all here, and unused, or used only
    by what a launch comes behind."""
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
    """The edges of a launch to unfinished instructions ahead of it on its stream, flat. It does not wait for any.
    `read`, `written`: the copies that it uses, before they have their next versions."""
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
    """The copies that the newest launch has used, and those that it has written."""
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
    """Count an instruction that came and went at admission, and keep its record (`tracing.flat`).

    `used`: the bytes of its device's memory in use; `moved`: those that it moved; `launch`: its number; `met`: its
    edges, flat.
    """
    scheduler.ids = id_ = scheduler.ids + 1
    scheduler.tick = tick = scheduler.tick + 2
    scheduler.retired += 1
    scheduler.counts[traits[1]].done += 1
    ring = scheduler.ring
    if ring.enabled:
        entry = (id_, traits, copies, tick, scheduler.now, started, scheduler.clock(), location, used)
        if launch:
            ring.append((*entry, moved, launch, met))
        else:
            ring.append((*entry, moved) if moved else entry)


def begin_write(copy: Copy, storage: Storage) -> None:
    """Give a copy that is written now its next version. Who comes later comes behind this write."""
    copy.writer = copy.readers = None
    storage.placed = copy.device.alone
    storage.version = copy.version = storage.version + 1


def bind_operand(device: DeviceState, buffer: Buffer, tensor: Tensor, meta: Any) -> Any:
    """The array of an operand."""
    if tensor.strides is not None:
        return device.backend.bind_view(buffer, meta, tensor.offset, tensor.strides)
    return buffer.array if buffer.meta is meta else device.backend.bind(buffer, meta)


def begin_failed(
    scheduler: Scheduler, instruction: Instruction, reads: Iterable[Copy], writes: Iterable[Copy], started: int
) -> None:
    """Make the instruction, of which a kernel has failed, as it would be on the long way: admitted and dispatched."""
    instruction.reads, instruction.writes = tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))
    instruction.versions = tuple([copy.version for copy in instruction.reads + instruction.writes])
    instruction.admitted = scheduler.tick - 1
    instruction.received = instruction.ready = instruction.dispatched = scheduler.now
    instruction.started = started


def end_failed(scheduler: Scheduler, instruction: Instruction, status: Status) -> None:
    """End it: release what it has poisoned, and keep its record."""
    for copy in instruction.writes:
        release(copy)
    instruction.finished = scheduler.latest = scheduler.clock()
    instruction.move(status)
    scheduler.count(instruction)
    scheduler.ring.add(instruction, scheduler.tick)
