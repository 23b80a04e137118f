"""Admission of collectives: a message is unfolded into a group of instructions, admitted one after the other.

- an ALLOCATE for each result makes its memory, in the order of the stream that fills it;
- the steps (`interpreter.collectives`), each a MOVE or a MERGE on the stream that brings the chunk to the device that
  receives it, or two of them through the host where there is no way without;
- one COMPLETE, which has no work, writes all results.

Dependences are edges, as everywhere. Of a result that is being made, each chunk has a *token*, a copy without data: a
step reads the tokens of the chunks that it reads, and writes that of the chunk that it writes. The result's own copy is
only read by steps, so that they keep its memory and come behind its making, but not behind each other; COMPLETE reads
all tokens and updates the copies. So a step begins as soon as its chunk is there, whatever the others do; a failure
anywhere reaches all results; and what is behind the collective in the program waits for COMPLETE alone.

No deadlock: a step is dispatched when all that it waits for is done (`Traits.exchanges`), so no stream ever waits for
another device, and the order of admission is one for all sessions and devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...interpreter.collectives.choice import schedule_of
from ...interpreter.collectives.collective import Collective as Given
from ...interpreter.collectives.regions import Region
from ...interpreter.collectives.request import STREAM, Asked, asked_for
from ...interpreter.collectives.steps import Place, Step
from ...interpreter.errors import TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import size
from ...interpreter.wire.messages import Collective
from ...streams.merging import merged_bytes
from ...streams.stream import Stream, StreamKind
from ..memory.replicas import drop_copies
from ..model.device_state import DeviceState, add_to
from ..model.instruction import Instruction
from ..model.session import Cause, VmSession
from ..model.signature import NOTHING
from ..model.tensor import Binding, Copy, Tensor
from ..placement.residency import Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.scheduler import Scheduler
from .lookup import check_new, define, device_of, note_maker, refuse_cancelled, tensor_of
from .quotas import check_results
from .rejection import Rejection

Array = Any


class Collectives:
    """The handler of COLLECTIVE messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection

    def collective(self, session: VmSession, message: Collective) -> None:
        """Admit the group, or define its results poisoned."""
        cause, outputs = Cause(session, message.location), message.outputs
        metas: Sequence[Meta] = ()
        devices: list[DeviceState] = []
        try:
            refuse_cancelled(session)
            check_new(session, outputs)
            tensors = [known(tensor_of(session, id_)) for id_ in message.inputs]
            asked = asked_by(message, tensors)
            devices = [device_of(self.scheduler.devices, name) for name in asked.devices]
            metas = asked.collective.outputs()
            bound = self.bind(cause, asked.collective, tensors, devices, metas)
        except TensordError as error:
            self.refuse(cause, message, error, metas, devices)
            return
        group = Group(self.scheduler, self.residency, cause, asked, devices, bound)
        group.admit(outputs, metas)

    def bind(
        self,
        cause: Cause,
        given: Given,
        tensors: Sequence[Tensor],
        devices: Sequence[DeviceState],
        metas: Sequence[Meta],
    ) -> list[Binding]:
        """The inputs on their homes, once it is certain that the group can be admitted."""
        residency = self.residency
        for device in (*devices, *(tensor.home for tensor in tensors)):
            refuse_lost(device)
        for source in (*devices, *(tensor.home for tensor in tensors)):
            for device in devices:
                if source is not device:
                    residency.routes.stopover(source, device)
        check_results(cause.session, metas, 0)
        bound = [residency.operand(tensor, tensor.home, cause) for tensor in tensors]
        for device, meta in zip(devices, metas, strict=True):
            if device.ceiling:
                residency.tiers.require_share(None, device, meta.nbytes, cause)
        return [self.packed(one, cause) if given.flat else one for one in bound]

    def packed(self, binding: Binding, cause: Cause) -> Binding:
        """The binding, or that of a packed copy of its view, which is dropped with the group."""
        meta = binding.tensor.meta
        if meta is None or binding.strides is None or binding.strides == meta.strides or meta.size < 2:
            return binding
        tensor, copy = self.residency.new_tensor(meta, binding.copy.device)
        target = Binding(copy, tensor, 0, None)
        self.residency.transfers.copy(binding, target, cause)
        self.scheduler.bound.append(copy)
        tensor.storage.sharers = 0
        return target

    def refuse(
        self,
        cause: Cause,
        message: Collective,
        error: TensordError,
        metas: Sequence[Meta],
        devices: Sequence[DeviceState],
    ) -> None:
        """Define the results, poisoned, each on its device as far as that is known."""
        session, rejection = cause.session, self.rejection
        if len(metas) != len(message.outputs) or not devices:
            rejection.reject(session, error, message.outputs, cause.location, message.kind)
            return
        error = rejection.rejected(session, error, cause.location, message.kind)
        for id_, meta, device in zip(message.outputs, metas, devices, strict=True):
            rejection.poison(session, id_, error, meta, device)
        self.scheduler.tell(session, error)


class Group:
    """The instructions of one collective."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        cause: Cause,
        asked: Asked,
        devices: Sequence[DeviceState],
        inputs: Sequence[Binding],
    ) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.cause = cause
        self.request, self.given = asked.request, asked.collective
        self.devices = devices
        self.inputs = inputs
        self.algorithm, self.steps = schedule_of(asked.collective)
        self.number = scheduler.ids + 1
        self.results: list[Binding] = []
        self.tokens: dict[tuple[int, int], Copy] = {}
        self.done = [0] * len(devices)  # steps of each rank that have been admitted

    @property
    def name(self) -> str:
        """`all_reduce 64 MiB ring of 4 #12`, with the id of the first instruction."""
        given = self.given
        return f"{given.kind} {size(given.nbytes)} {self.algorithm} of {given.ranks} #{self.number}"

    def admit(self, outputs: Sequence[int], metas: Sequence[Meta]) -> None:
        """Admit all of it."""
        name = self.name
        for id_, meta, device in zip(outputs, metas, self.devices, strict=True):
            self.results.append(self.make_result(name, id_, meta, device))
        most = max([sum(step.rank == rank for step in self.steps) for rank in range(self.given.ranks)])
        for step in self.steps:
            self.done[step.rank] += 1
            self.admit_step(step, f"{name}, step {self.done[step.rank]} of {most}")
        self.complete(name)
        for binding in self.inputs:
            if not binding.tensor.storage.sharers:
                drop_copies(binding.tensor.storage)

    def new_instruction(self, opcode: Opcode, label: str, device: DeviceState) -> Instruction:
        cause = self.cause
        return self.scheduler.new_instruction(cause.session, opcode, label, device, cause.location)

    def make_result(self, name: str, id_: int, meta: Meta, device: DeviceState) -> Binding:
        """Define a result, and make its memory."""
        tensor, copy = self.residency.new_tensor(meta, device)
        define(self.cause.session, id_, tensor)
        note_maker(tensor.storage, (name, NOTHING), self.cause.location, self.scheduler.now)
        self.scheduler.bound.append(copy)
        binding = Binding(copy, tensor, 0, None)
        instruction = self.new_instruction(Opcode.ALLOCATE, f"{name}, result", device)
        instruction.outputs, instruction.writes = (binding,), (copy,)
        instruction.stream = device.backend.copy_stream(StreamKind.P2P)
        self.scheduler.admit(instruction)
        return binding

    def complete(self, name: str) -> None:
        """All results are there, or none."""
        instruction = self.new_instruction(Opcode.COMPLETE, name, self.devices[0])
        results = tuple([binding.copy for binding in self.results])
        instruction.inputs = tuple(self.results)  # they are updated: it makes no memory
        instruction.reads, instruction.writes = (*self.tokens.values(), *results), results
        counted = self.scheduler.collectives.setdefault(str(self.given.kind), [0, 0])
        nbytes = self.given.nbytes

        def count(done: Instruction) -> None:
            if done.error is None:
                add_to(counted, nbytes)

        instruction.on_retire = count
        self.scheduler.admit(instruction)

    # -- steps -----------------------------------------------------------------------------------------------------

    def admit_step(self, step: Step, label: str) -> None:
        """Admit a step: one instruction, or two through the host."""
        device = self.devices[step.rank]
        source = self.binding(step.source)
        home = source.copy.device
        host = None if home is device else self.residency.routes.stopover(home, device)
        if host is not None:
            self.through_host(step, label, source, host)
        elif home is device:
            self.receive(step, label, source, step.source.region, StreamKind.P2P, device.backend.copy, 0)
        else:
            nbytes = self.bytes_of(step.source.region)
            copy = device.backend.peer_copy
            self.receive(step, label, source, step.source.region, StreamKind.P2P, copy, nbytes)

    def through_host(self, step: Step, label: str, source: Binding, host: DeviceState) -> None:
        """Bring the chunk to the host, and from there to the device."""
        region, dtype = step.source.region, self.given.inputs[0].dtype
        meta = Meta.of((region.size,) if self.given.flat else region.shape, dtype)
        tensor, copy = self.residency.new_tensor(meta, host)
        self.scheduler.bound.append(copy)
        staged = Binding(copy, tensor, 0, None)
        backend, flat = source.copy.device.backend, self.given.flat
        instruction = self.new_instruction(Opcode.MOVE, f"{label}, to {host.name}", host)
        instruction.inputs, instruction.outputs = (source,), (staged,)
        instruction.reads, instruction.writes = (source.copy, *self.tokens_read(step.source)), (copy,)
        instruction.kernel = lambda array, target: backend.copy_out(part(array, region, flat), target)
        self.send(instruction, backend.copy_stream(StreamKind.D2H), source.copy.device, meta.nbytes)
        there = self.devices[step.rank].backend.copy_in
        whole = Region((0,) * meta.ndim, meta.shape)
        self.receive(step, f"{label}, from {host.name}", staged, whole, StreamKind.H2D, there, meta.nbytes)
        tensor.storage.sharers = 0
        drop_copies(tensor.storage)

    def receive(
        self,
        step: Step,
        label: str,
        source: Binding,
        region: Region,
        kind: StreamKind,
        copy: Callable[[Array, Array], None],
        nbytes: int,
    ) -> None:
        """Admit what writes the chunk, from a region of a value: by copying, or by merging with the base."""
        device, result = self.devices[step.rank], self.results[step.rank]
        token = self.token(step.target)
        instruction = self.new_instruction(Opcode.MOVE if step.base is None else Opcode.MERGE, label, device)
        bases = [] if step.base is None else [self.binding(step.base)]
        instruction.inputs = (result, *bases, source)
        read = dict.fromkeys([binding.copy for binding in (result, *bases, source)])
        staged = region is not step.source.region
        tokens = [*([] if staged else self.tokens_read(step.source)), *self.tokens_read(step.base)]
        instruction.reads, instruction.writes = (*read, *tokens), (token,)
        if step.base is None:
            instruction.kernel = copying(copy, step.target.region, region, self.given.flat)
        else:
            in_place = not nbytes or (self.request.merge == STREAM and not staged)
            regions = (step.target.region, step.base.region, region)
            instruction.kernel = self.merging(device, regions, None if in_place else copy)
            if not in_place:
                instruction.beside = merged_bytes(region.shape, self.given.inputs[0].dtype.itemsize)
        self.send(instruction, device.backend.copy_stream(kind), device, nbytes)

    def send(self, instruction: Instruction, stream: Stream, carrier: DeviceState, nbytes: int) -> None:
        """Admit a step on a stream, whose device counts what it moves."""
        instruction.stream = stream
        instruction.bytes_moved = nbytes
        instruction.limit = int(self.request.timeout * 1e9)

        def count(done: Instruction) -> None:
            if done.error is None and nbytes:
                carrier.count_move(stream.kind.value, nbytes)
                add_to(done.author.moved, nbytes)

        instruction.on_retire = count
        self.scheduler.admit(instruction)

    def merging(
        self,
        device: DeviceState,
        regions: tuple[Region, Region, Region],
        receive: Callable[[Array, Array], None] | None,
    ) -> Callable[[Array, Array, Array], None]:
        """The kernel of a merge."""
        merge, function, flat = device.backend.merge, self.given.merge, self.given.flat
        to, own, origin = regions

        def run(target: Array, base: Array, source: Array) -> None:
            merge(part(target, to, flat), part(base, own, flat), part(source, origin, flat), function, receive)

        return run

    def binding(self, place: Place) -> Binding:
        """Where a place lies: in an input, or in a result."""
        return (self.inputs if place.is_input else self.results)[place.rank]

    def token(self, place: Place) -> Copy:
        """The token of a chunk."""
        key = (place.rank, place.chunk)
        if key not in self.tokens:
            self.tokens[key] = self.residency.new_copy(self.devices[place.rank], 0, 1)
        return self.tokens[key]

    def tokens_read(self, place: Place | None) -> list[Copy]:
        """The token of a place that is a chunk."""
        return [] if place is None or place.is_input else [self.token(place)]

    def bytes_of(self, region: Region) -> int:
        """The bytes of a region."""
        return region.size * self.given.inputs[0].dtype.itemsize


def asked_by(message: Collective, tensors: Sequence[Tensor]) -> Asked:
    """What the message asks for, on these tensors."""
    homes, metas = [tensor.home.name for tensor in tensors], [tensor.meta for tensor in tensors]
    return asked_for(message.kind, homes, metas, message.devices, message.attributes, len(message.outputs))


def known(tensor: Tensor) -> Tensor:
    """The tensor; the error in place of its meta, if that will never be known."""
    if tensor.meta_error is not None:
        raise tensor.meta_error.reraisable()
    return tensor


def part(array: Array, region: Region, flat: bool) -> Array:
    """A region of an array, or of its elements in one dimension."""
    return (array.reshape(-1) if flat else array)[region.slices]


def copying(
    copy: Callable[[Array, Array], None], to: Region, origin: Region, flat: bool
) -> Callable[[Array, Array], None]:
    """The kernel of a copy."""

    def run(target: Array, source: Array) -> None:
        copy(part(target, to, flat), part(source, origin, flat))

    return run
