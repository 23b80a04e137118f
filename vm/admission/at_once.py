"""The conditions under which an op or a run may execute at admission, operands, records, and reads.

An execution at admission has no edges. So each operand needs a healthy, finished copy on the device, or a copy whose
write is an earlier launch on the same stream (`Launches.follows`); and each target needs memory that nothing else uses.
These are exactly the operands for which `edges.consume` would add no edge. `Inline.run` repeats the conditions, written
out for a call with two tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...streams.device import Buffer
from ..memory.binding import bind
from ..memory.release import release
from ..memory.victims import touch
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.launches import Launches
from ..model.lifecycle import Event
from ..model.plan import Plan
from ..model.reason import Reason
from ..model.session import VmSession
from ..model.tensor import Binding, Copy, Storage, VmTensor
from ..scheduler.dispatch import INLINE_BYTES
from ..scheduler.fences import WAIT_NS
from ..scheduler.scheduler import Scheduler

# The opcode in records, as a plain string: reading the value of an enum's member takes much longer.
ACCESS = Opcode.ACCESS.value

# The arrays of a call's operands; the copy and version of each tensor for the trace, flat; the operands' copies.
Bound: TypeAlias = tuple[Sequence[Any], tuple[int, ...], Sequence[Copy]]


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


def elided_edges(read: Sequence[Copy], written: Sequence[Copy]) -> tuple[Any, ...]:
    """The elided edges of a launch to unfinished instructions ahead of it on its stream, as a flat tuple.

    `read` and `written` are the copies that the launch uses, before `begin_write` gives them their next versions.
    """
    seen, edges = set(), ()  # type: tuple[set[Copy], tuple[Any, ...]]
    for copy in read:
        if copy.writer is not None and copy not in seen:
            seen.add(copy)
            edges += (copy.writer.id, Reason.RAW, copy.id, True)
    for copy in written:
        if copy.writer is not None and copy not in read:
            edges += (copy.writer.id, Reason.WAW, copy.id, True)
        for reader in copy.readers or ():
            edges += (reader.id, Reason.WAR, copy.id, True)
    return edges


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


def strides_of(tensors: dict[int, VmTensor], inputs: Sequence[Any], plan: Plan) -> tuple[Any, ...]:
    """The strides of the operands; None for a packed operand."""
    pairs = zip(inputs, plan.metas, strict=True)
    return tuple([tensors[value].strides for value, meta in pairs if type(meta) is Meta])


def own_copies(tensors: dict[int, VmTensor], plan: Plan, output: int) -> tuple[Copy, ...]:
    """The copy that an in-place op writes, if there is one on the device."""
    found = tensors[output].storage.copies.get(plan.device) if plan.in_place and output in tensors else None
    return () if found is None else (found,)


def note_uses(device: DeviceState, tensors: dict[int, VmTensor], inputs: Sequence[Any], metas: Sequence[Any]) -> None:
    """Note the uses of the operands, for the choice of victims."""
    for value, meta in zip(inputs, metas, strict=True):
        if type(meta) is Meta:
            touch(tensors[value].storage, device)


def bind_operands(plan: Plan, tensors: dict[int, VmTensor], inputs: Sequence[Any]) -> Bound | None:
    """The bound operands; None if one is not healthy and finished on the device."""
    device, arguments, used = plan.device, [], []
    traced: tuple[int, ...] = ()
    for value, meta in zip(inputs, plan.metas):  # noqa: B905 - equally long, and `strict` costs more than the loop
        if type(meta) is not Meta:
            if type(value) is not meta:
                return None  # the long way reports the error
            arguments.append(value if plan.number_array is None else plan.number_array.of(value))
            continue
        tensor = tensors.get(value) if type(value) is int else None
        copy = readable(device, tensor, meta)
        if copy is None or tensor is None:
            return None
        buffer: Any = copy.buffer
        plain = buffer.meta is meta and tensor.strides is None
        arguments.append(buffer.array if plain else bind_operand(device, buffer, tensor, meta))
        traced += (copy.id, copy.version)
        used.append(copy)
    return arguments, traced, used


def find_target(plan: Plan, tensor: VmTensor | None, launches: Launches | None) -> Copy | None:
    """The copy of the `out=` tensor, with its next version begun; None if the copy cannot be written now."""
    copy = writable(plan.device, tensor, plan.output, launches)
    if copy is None or tensor is None:
        return None
    touch(tensor.storage, plan.device)
    begin_write(copy, tensor.storage)
    return copy


def may_read_in_order(source: Binding) -> bool:
    """Whether a value can be read by a launch: the device launches, and the value is small, packed and healthy."""
    copy, tensor, _, strides = source
    if copy.device.launches is None or copy.writer is not None or copy.poison is not None or copy.buffer is None:
        return False
    meta, backend = tensor.meta, copy.device.backend
    if strides is not None or meta is None or len(meta.shape) > backend.most_axes:
        return False
    return 0 < meta.nbytes <= INLINE_BYTES and backend.lost is None


class ReadsAtOnce:
    """Fetches at admission. A method that cannot read now returns None, and has changed nothing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def fetch(self, session: VmSession, source: Binding, label: str, location: int) -> Any:
        """Return a copy of the value; None if the value is large, or not computed yet.

        On a device that launches, a value that will be computed very soon is awaited (`read_soon`).
        """
        copy, tensor, _, strides = source
        device, buffer = copy.device, copy.buffer
        if copy.writer is not None or copy.poison is not None or buffer is None or tensor.meta is None:
            return None
        if device.launches is not None:
            return self.read_soon(session, source, device.launches, label, location)
        if not device.backend.host or not device.compute[0].inline or tensor.meta.nbytes > INLINE_BYTES:
            return None
        started = self.scheduler.clock()
        try:
            plain = strides is None and buffer.meta is tensor.meta
            result = device.backend.read(buffer.array if plain else bind(source), tensor.meta)
        except Exception:
            return None  # the long way reports the error
        traits = (session.id, ACCESS, label, device.name, "r", tensor.meta.plain)
        used, moved = device.backend.allocated, tensor.meta.nbytes
        keep_record(self.scheduler, traits, (copy.id, copy.version), started, location, used, moved)
        return result

    def read_soon(self, session: VmSession, source: Binding, launches: Launches, label: str, location: int) -> Any:
        """`fetch` of a value whose launch is done or queued.

        If the device has little left to do, waiting for it here costs less than a fence and waking the waiting thread.
        """
        copy, meta = source.copy, source.tensor.meta
        if meta is None or not may_read_in_order(source) or launches.cost - launches.done > WAIT_NS * launches.pace:
            return None
        backend = copy.device.backend
        started = self.scheduler.clock()
        result = np.empty(meta.shape, meta.dtype)
        there = backend.copy_out_soon(bind(source), result)
        launches.order.issued = copy.touched = number = launches.order.issued + 1
        launches.cost += launches.least_cost
        if not there:
            return None  # the caller's fence reports the error, or waits for the value
        self.scheduler.fences.caught_up(copy.device, launches)
        copy.device.count_move("d2h", meta.nbytes)
        traits = (session.id, ACCESS, label, copy.device.name, "r", meta.plain)
        flat = (copy.id, copy.version)
        keep_record(self.scheduler, traits, flat, started, location, backend.allocated, meta.nbytes, number)
        return result
