"""Running a small collective at admission, as `inline` does for small ops.

If all inputs are healthy and finished, and the results fit now, the group's instructions would have nothing to wait
for. Making and retiring them would cost several times as much as their work. So the steps run here, and only the
records of the instructions are made, with the tokens that the instructions would have had. If a kernel fails, nothing
has changed yet: the collective is then admitted as a group, whose instructions report the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...interpreter.collectives.choice import schedule_of
from ...interpreter.collectives.request import STREAM, ResolvedRequest
from ...interpreter.collectives.steps import ChunkRegion, CollectiveStep
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...streams.merging import merged_bytes
from ...streams.stream import StreamKind
from ..memory.ledger import has_spare
from ..memory.recycling import make_tensor
from ..model.charges import has_share
from ..model.device_state import DeviceState, add_to
from ..model.session import Cause
from ..model.signature import NOTHING
from ..model.tensor import Copy, VmTensor
from ..placement.residency import Residency
from ..scheduler.dispatch import INLINE_BYTES
from ..scheduler.scheduler import Scheduler
from .at_once import readable
from .collective_group import kernel_of, labels_of, name_of, unread_inputs

MAX_STEPS = 32  # steps
Used: TypeAlias = tuple[int, int]  # a copy, by its number and its version
Key: TypeAlias = tuple[int, int]  # of a token


class GroupAtOnce:
    """One collective that may run at admission. `sources`, `results`: the copies of its inputs and results."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        cause: Cause,
        resolved: ResolvedRequest,
        tensors: Sequence[VmTensor],
        devices: Sequence[DeviceState],
        metas: Sequence[Meta],
    ) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.cause = cause
        self.given, self.reads_in_place = resolved.collective, resolved.request.merge == STREAM
        self.tensors = tensors
        self.devices = devices
        self.metas = metas
        self.algorithm, self.steps = schedule_of(resolved.collective)
        self.sources: list[Copy] = []
        self.results: list[Copy] = []
        self.buffers: list[Any] = []
        self.times: list[tuple[int, int]] = []
        self.tokens: dict[Key, Used] = {}
        self.pieces: dict[Key, Used] = {}

    def run(self, outputs: Sequence[int]) -> bool:
        """Run the collective; False, with nothing changed, if it cannot run now."""
        if not (self.is_small() and self.find_sources() and self.is_direct() and self.has_room()):
            return False
        if not (self.allocate() and self.compute()):
            for device, buffer in zip(self.devices, self.buffers, strict=False):
                device.backend.free(buffer)
            return False
        self.define(outputs)
        self.keep_records()
        return True

    # -- conditions for running inline -----------------------------------------------------------------------------

    def is_small(self) -> bool:
        """Whether each instruction would run on the driving thread, and all of them in a short time."""
        largest = max([meta.nbytes for meta in (*self.given.inputs, *self.metas)])
        devices = (*self.devices, *[tensor.home for tensor in self.tensors])
        return len(self.steps) <= MAX_STEPS and 3 * largest <= 2 * INLINE_BYTES and all(map(is_quick, devices))

    def find_sources(self) -> bool:
        """Find the inputs' copies; False if one is not packed, healthy and finished."""
        for tensor in self.tensors:
            copy = readable(tensor.home, tensor, tensor.meta)
            if copy is None or tensor.strides is not None:
                return False
            self.sources.append(copy)
        return True

    def is_direct(self) -> bool:
        """Whether each device can reach the memory of all others."""
        sources, stopover = [*self.devices, *[copy.device for copy in self.sources]], self.residency.routes.stopover
        return all(one is other or stopover(one, other) is None for one in sources for other in self.devices)

    def has_room(self) -> bool:
        """Whether the results fit into free memory now, and into the session's quotas."""
        session, account = self.cause.session, self.cause.session.account
        if len(session.tensors) + len(self.metas) > account.tensors:
            return False
        if account.bytes + sum(meta.nbytes for meta in self.metas) > account.limit:
            return False
        for device, meta in zip(self.devices, self.metas, strict=True):
            if not has_spare(device, meta.nbytes + merged_bytes(meta.shape, meta.dtype.itemsize)):
                return False
            if not has_share(account, device, meta.nbytes):
                return False
        return True

    # -- the work --------------------------------------------------------------------------------------------------

    def allocate(self) -> bool:
        """Allocate the results' memory; False if a device has none left."""
        for device, meta in zip(self.devices, self.metas, strict=True):
            buffer = device.backend.allocate(meta.nbytes)
            if buffer is None:
                return False
            self.buffers.append(buffer)
        return True

    def compute(self) -> bool:
        """Run all steps; False if one fails."""
        clock = self.scheduler.clock
        pairs = zip(self.sources, self.given.inputs, strict=True)
        inputs = [copy.device.backend.bind(copy.buffer, meta) for copy, meta in pairs]  # type: ignore[arg-type]
        kinds = zip(self.devices, self.buffers, self.metas, strict=True)
        results = [device.backend.bind(buffer, meta) for device, buffer, meta in kinds]
        try:
            for step in self.steps:
                backend, own = self.devices[step.rank].backend, self.is_own(step)
                copy = backend.copy if own else backend.peer_copy
                kernel = kernel_of(self.given, step, step.source.region, backend, copy, in_place=self.is_in_place(step))
                arrays = [(inputs if region.is_input else results)[region.rank] for region in operands(step)]
                started = clock()
                kernel(results[step.rank], *arrays)
                self.times.append((started, clock()))
        except BaseException:  # the group, which is admitted next, reports the error
            return False
        return True

    def is_own(self, step: CollectiveStep) -> bool:
        """Whether the source of a step is in the memory of the step's own device."""
        region = step.source
        home = self.sources[region.rank].device if region.is_input else self.devices[region.rank]
        return home is self.devices[step.rank]

    def is_in_place(self, step: CollectiveStep) -> bool:
        """Whether a step reads its source in place, without a merge buffer."""
        return self.reads_in_place or self.is_own(step)

    def define(self, outputs: Sequence[int]) -> None:
        """Define the results."""
        session, location, now = self.cause.session, self.cause.location, self.scheduler.now
        maker = (self.name, NOTHING)
        for id_, meta, device, buffer in zip(outputs, self.metas, self.devices, self.buffers, strict=True):
            number = self.new_copy()
            tensor, copy = make_tensor(meta, device, buffer, number, session.account, maker, location, now)
            session.tensors[id_] = tensor
            session.newest = max(session.newest, id_)
            self.results.append(copy)
        add_to(self.scheduler.collectives.setdefault(str(self.given.kind), [0, 0]), self.given.nbytes)

    def new_copy(self) -> int:
        """A number for a new copy."""
        self.residency.copies = number = self.residency.copies + 1
        return number

    # -- records ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The group's name, with the id of the next instruction; valid until `keep` takes this id."""
        return name_of(self.given, self.algorithm, self.scheduler.ids + 1)

    def keep_records(self) -> None:
        """Add the records that the instructions of the group would have left."""
        name, results = self.name, [used(copy) for copy in self.results]
        begun, ended = self.times[0][0] if self.times else 0, self.times[-1][1] if self.times else 0
        for device, result, meta in zip(self.devices, results, self.metas, strict=True):
            self.keep(Opcode.ALLOCATE, f"{name}, result", device, [], [result], [], [meta], (begun, begun))
        for step, label, times in zip(self.steps, labels_of(name, self.steps, len(results)), self.times, strict=True):
            self.keep_step(step, label, times)
        unread = [used(self.sources[rank]) for rank in unread_inputs(self.given, self.steps)]
        reads = [*self.tokens.values(), *unread, *results]
        self.keep(Opcode.COMPLETE, name, self.devices[0], reads, results, self.metas, [], (ended, ended))

    def keep_step(self, step: CollectiveStep, label: str, times: tuple[int, int]) -> None:
        """Add the record of a step, and count the bytes that it moved between devices."""
        device, session, regions = self.devices[step.rank], self.cause.session, operands(step)
        copies = dict.fromkeys([self.results[step.rank], *[self.copy_of(region) for region in regions]])
        tokens = [
            self.token(region) for region in (step.source, step.base) if region is not None and not region.is_input
        ]
        writes = [self.token(step.target)]
        if step.base is not None and not self.is_in_place(step):
            writes.append(self.piece(step.target))
        metas = [self.metas[step.rank], *[self.meta_of(region) for region in regions]]
        moved = 0 if self.is_own(step) else step.source.region.size * self.given.inputs[0].dtype.itemsize
        if moved:
            device.count_move(StreamKind.P2P.value, moved)
            add_to(session.counts.moved, moved)
        opcode = Opcode.MOVE if step.base is None else Opcode.MERGE
        self.keep(opcode, label, device, [*map(used, copies), *tokens], writes, metas, [], times, moved)

    def keep(
        self,
        opcode: Opcode,
        label: str,
        device: DeviceState,
        reads: Sequence[Used],
        writes: Sequence[Used],
        inputs: Sequence[Meta],
        outputs: Sequence[Meta],
        times: tuple[int, int],
        moved: int = 0,
    ) -> None:
        """Count an instruction, and add its record (`tracing.flat`)."""
        scheduler, (started, finished) = self.scheduler, times
        scheduler.ids += 1
        scheduler.tick += 2
        scheduler.counts[opcode.value].done += 1
        if not scheduler.ring.enabled:
            return
        kinds = "r" * len(reads) + "w" * len(writes)
        signature = (tuple([meta.plain for meta in inputs]), tuple([meta.plain for meta in outputs]), "", 0)
        traits = (self.cause.session.id, opcode.value, label, device.name, kinds, signature)
        copies = tuple([part for access in (*reads, *writes) for part in access])
        position, location, taken = scheduler.tick, self.cause.location, device.backend.allocated
        entry = (scheduler.ids, traits, copies, position, scheduler.now, started, finished, location, taken)
        scheduler.ring.append((*entry, moved) if moved else entry)

    def copy_of(self, region: ChunkRegion) -> Copy:
        return (self.sources if region.is_input else self.results)[region.rank]

    def meta_of(self, region: ChunkRegion) -> Meta:
        return (self.given.inputs if region.is_input else self.metas)[region.rank]

    def token(self, region: ChunkRegion) -> Used:
        """The token of a chunk."""
        return self.access(self.tokens, (region.rank, region.chunk))

    def piece(self, target: ChunkRegion) -> Used:
        """The token of a merge buffer."""
        return self.access(self.pieces, (target.rank, target.chunk % 2))

    def access(self, known: dict[Key, Used], key: Key) -> Used:
        if key not in known:
            known[key] = (self.new_copy(), 1)
        return known[key]


def is_quick(device: DeviceState) -> bool:
    """Whether small copies on the device run on the driving thread, and no other instruction waits for memory there."""
    backend = device.backend
    if device.launches is not None or device.short or device.lost is not None or backend.lost is not None:
        return False
    return backend.copy_stream(StreamKind.P2P).inline


def operands(step: CollectiveStep) -> tuple[ChunkRegion, ...]:
    """The regions that the kernel of a step gets after the result: base, if any, and source."""
    return (step.source,) if step.base is None else (step.base, step.source)


def used(copy: Copy) -> Used:
    return copy.id, copy.version
