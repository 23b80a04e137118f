"""The instructions of one collective: an ALLOCATE for each result, the steps, one COMPLETE.

`collectives` says how these depend on each other. A step between devices without peer access is two instructions,
through a temporary value on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...interpreter.collectives.choice import Schedule, schedule_of
from ...interpreter.collectives.collective import CollectiveSpec
from ...interpreter.collectives.regions import Region, whole
from ...interpreter.collectives.request import STREAM, ResolvedRequest
from ...interpreter.collectives.steps import ChunkRegion, CollectiveStep, numbered
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import size
from ...streams.device import Device
from ...streams.merging import merged_bytes
from ...streams.stream import Stream, StreamKind
from ..model.device_state import DeviceState, add_to
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Cause
from ..model.signature import NOTHING
from ..model.tensor import Binding, Copy
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .lookup import define, note_maker
from .packing import drop_packed

Array = Any
Receive = Callable[[Array, Array], None]


class Origin(NamedTuple):
    """The source of a chunk, for the device that receives the chunk.

    `binding` and `region`: where the chunk lies; `tokens`: the tokens to wait for; `kind` and `copy`: the stream and
    the function that bring the chunk; `nbytes`: the bytes between devices; `in_place`: a merge may read the chunk in
    place.
    """

    binding: Binding
    region: Region
    tokens: list[Copy]
    kind: StreamKind
    copy: Receive
    nbytes: int
    in_place: bool


class CollectiveGroup:
    """The instructions of one collective on this node.

    `devices` and `inputs` hold the ranks whose device, or input, is on this node. `schedule`: the steps in which this
    node takes part; all steps by default.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        cause: Cause,
        resolved: ResolvedRequest,
        devices: Mapping[int, DeviceState],
        inputs: Mapping[int, Binding],
        schedule: Schedule | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.cause = cause
        self.request, self.given = resolved.request, resolved.collective
        self.flat = resolved.collective.flat
        self.devices = devices
        self.inputs = inputs
        self.algorithm, self.steps = schedule or schedule_of(resolved.collective)
        self.limit = int(resolved.request.timeout * 1e9)  # nanoseconds for each instruction
        self.number = scheduler.ids + 1
        self.results: dict[int, Binding] = {}
        self.tokens: dict[tuple[int, int], Copy] = {}
        self.buffers: dict[tuple[int, int], Copy] = {}

    @property
    def name(self) -> str:
        """`all_reduce 64 MiB ring of 4 #12`, with the id of the first instruction."""
        return name_of(self.given, self.algorithm, self.number)

    def admit(self, outputs: Sequence[int], metas: Sequence[Meta]) -> None:
        """Admit all instructions of the collective."""
        name = self.name
        for id_, (rank, device) in zip(outputs, self.devices.items(), strict=True):
            self.results[rank] = self.make_result(name, id_, metas[rank], device)
        self.admit_steps(name)
        if self.results:
            self.complete(name)
        for binding in self.inputs.values():
            drop_packed(binding)

    def admit_steps(self, name: str) -> None:
        """Admit the steps, which fill the results."""
        for number, label in enumerate(labels_of(name, self.steps, self.given.ranks)):
            self.admit_step(number, label)

    def new_instruction(self, opcode: Opcode, label: str, device: DeviceState) -> Instruction:
        cause = self.cause
        return self.scheduler.new_instruction(cause.session, opcode, label, device, cause.location)

    def make_result(self, name: str, id_: int, meta: Meta, device: DeviceState) -> Binding:
        """Define a result, and admit the ALLOCATE of its memory."""
        tensor, copy = self.residency.new_tensor(meta, device)
        define(self.cause.session, id_, tensor)
        note_maker(tensor.storage, (name, NOTHING), self.cause.location, self.scheduler.now)
        self.scheduler.bound.append(copy)
        binding = Binding(copy, tensor, 0, None)
        instruction = self.new_instruction(Opcode.ALLOCATE, f"{name}, result", device)
        instruction.outputs, instruction.writes = (binding,), (copy,)
        instruction.stream = self.filling_stream(device)
        instruction.on_control = instruction.stream is None
        instruction.limit = self.limit
        self.residency.tiers.admit(instruction)
        return binding

    def filling_stream(self, device: DeviceState) -> Stream | None:
        """The stream that fills a result, in whose order the memory is allocated; None if several streams do."""
        return device.backend.copy_stream(StreamKind.P2P)

    def complete(self, name: str) -> None:
        """Admit the COMPLETE, which poisons all results if a step has failed, or an input that no step reads."""
        instruction = self.new_instruction(Opcode.COMPLETE, name, next(iter(self.devices.values())))
        results = tuple([binding.copy for binding in self.results.values()])
        unread = [self.inputs[rank].copy for rank in unread_inputs(self.given, self.steps) if rank in self.inputs]
        instruction.inputs = tuple(self.results.values())  # updated in place, without new memory
        instruction.reads, instruction.writes = (*self.tokens.values(), *unread, *results), results
        counted = self.scheduler.collectives.setdefault(str(self.given.kind), [0, 0])
        instruction.on_end = CollectiveEnd(counted, self.given.nbytes)
        self.residency.tiers.admit(instruction)

    # -- steps -----------------------------------------------------------------------------------------------------

    def admit_step(self, number: int, label: str) -> None:
        """Admit a step as one instruction, or as two through the host."""
        step = self.steps[number]
        device, source = self.devices[step.rank].backend, self.binding(step.source)
        home, region, tokens = source.copy.device, step.source.region, self.tokens_read(step.source)
        nbytes = region.size * self.given.inputs[0].dtype.itemsize
        if home is self.devices[step.rank]:
            self.receive(step, label, Origin(source, region, tokens, StreamKind.P2P, device.copy, 0, True))
        elif (host := self.residency.routes.stopover(home, self.devices[step.rank])) is not None:
            self.through_host(step, label, host, nbytes)
        else:
            in_place = self.request.merge == STREAM
            self.receive(
                step, label, Origin(source, region, tokens, StreamKind.P2P, device.peer_copy, nbytes, in_place)
            )

    def through_host(self, step: CollectiveStep, label: str, host: DeviceState, nbytes: int) -> None:
        """Admit a step as two instructions: from the source to the host, and from the host to the device."""
        staged = self.staged(step.source, f"{label}, to {host.name}", host, nbytes)
        copy_in = self.devices[step.rank].backend.copy_in
        origin = Origin(staged, whole(step.source.region.shape), [], StreamKind.H2D, copy_in, nbytes, False)
        self.receive(step, f"{label}, from {host.name}", origin)
        self.drop(staged)

    def staged(self, source: ChunkRegion, label: str, host: DeviceState, nbytes: int) -> Binding:
        """Copy a chunk to a temporary value on `host`, which may be the chunk's own device; `drop` releases it."""
        binding, region, flat = self.binding(source), source.region, self.flat
        staged, device = self.scratch(region, host), binding.copy.device
        backend, same_device = device.backend, device is host
        copy_out = flipped(backend.copy) if same_device else backend.copy_out
        instruction = self.new_instruction(Opcode.MOVE, label, host)
        instruction.inputs, instruction.outputs = (binding,), (staged,)
        instruction.reads, instruction.writes = (binding.copy, *self.tokens_read(source)), (staged.copy,)
        instruction.kernel = lambda array, target: copy_out(part(array, region, flat), target)
        stream = backend.copy_stream(StreamKind.P2P if same_device else StreamKind.D2H)
        self.send(instruction, stream, 0 if same_device else nbytes, StepEnd(device, stream.kind))
        return staged

    def scratch(self, region: Region, device: DeviceState) -> Binding:
        """A new temporary value of a chunk's size; `drop` releases it."""
        tensor, copy = self.residency.new_tensor(Meta.of(region.shape, self.given.inputs[0].dtype), device)
        self.scheduler.bound.append(copy)
        return Binding(copy, tensor, 0, None)

    def drop(self, scratch: Binding) -> None:
        """Drop a temporary value, once the instructions admitted so far have finished with it."""
        self.residency.releasing.unshare(scratch.tensor)

    def receive(self, step: CollectiveStep, label: str, origin: Origin) -> None:
        """Admit the instruction that writes the chunk: a MOVE, or a MERGE with the step's base."""
        device, result, base = self.devices[step.rank], self.results[step.rank], step.base
        instruction = self.new_instruction(Opcode.MOVE if base is None else Opcode.MERGE, label, device)
        own = [] if base is None else [self.binding(base)]
        instruction.inputs = operands = (result, *own, origin.binding)
        read = dict.fromkeys([binding.copy for binding in operands])
        instruction.reads = (*read, *origin.tokens, *self.tokens_read(base))
        instruction.writes = (self.token(step.target),)
        if base is not None and not origin.in_place:
            instruction.writes += (self.buffer(step.target),)
            instruction.beside = merged_bytes(origin.region.shape, self.given.inputs[0].dtype.itemsize)
        instruction.kernel = kernel_of(
            self.given, step, origin.region, device.backend, origin.copy, in_place=origin.in_place
        )
        end = StepEnd(device, origin.kind)
        self.send(instruction, device.backend.copy_stream(origin.kind), origin.nbytes, end)

    def send(self, instruction: Instruction, stream: Stream, nbytes: int, end: StepEnd) -> None:
        """Admit a step, which moves `nbytes` bytes, on a stream."""
        instruction.stream = stream
        instruction.bytes_moved = nbytes
        instruction.limit = self.limit
        instruction.on_end = end
        self.residency.tiers.admit(instruction)

    def binding(self, region: ChunkRegion) -> Binding:
        """The binding of the input or result in which a region lies."""
        return (self.inputs if region.is_input else self.results)[region.rank]

    def token(self, region: ChunkRegion) -> Copy:
        """The token of a chunk."""
        key = (region.rank, region.chunk)
        if key not in self.tokens:
            self.tokens[key] = self.residency.new_copy(self.devices[region.rank], 0, 1)
        return self.tokens[key]

    def buffer(self, target: ChunkRegion) -> Copy:
        """The token of one of a rank's two merge buffers: one for the running merge, one for the next in the queue."""
        key = (target.rank, target.chunk % 2)
        if key not in self.buffers:
            self.buffers[key] = self.residency.new_copy(self.devices[target.rank], 0, 1)
        return self.buffers[key]

    def tokens_read(self, region: ChunkRegion | None) -> list[Copy]:
        """The token to wait for before a region is read; none for an input."""
        return [] if region is None or region.is_input else [self.token(region)]


class CollectiveEnd(InstructionEnd):
    """Counts a collective and its bytes in `counted`, unless it has failed."""

    __slots__ = ("counted", "nbytes")

    def __init__(self, counted: list[int], nbytes: int) -> None:
        self.counted = counted
        self.nbytes = nbytes

    def retired(self, done: Instruction) -> None:
        if done.error is None:
            add_to(self.counted, self.nbytes)


class StepEnd(InstructionEnd):
    """Counts the bytes that a step of a collective has moved, in its `carrier`, by the `kind` of its stream."""

    __slots__ = ("carrier", "kind")

    def __init__(self, carrier: DeviceState, kind: StreamKind) -> None:
        self.carrier = carrier
        self.kind = kind

    def retired(self, done: Instruction) -> None:
        done.session.offered.discard(done.id)
        if done.error is None and done.bytes_moved:
            self.carrier.count_move(self.kind.value, done.bytes_moved)
            add_to(done.author.counts.moved, done.bytes_moved)


def name_of(given: CollectiveSpec, algorithm: str, number: int) -> str:
    """`all_reduce 64 MiB ring of 4 #12`, with the id of the first instruction."""
    return f"{given.kind} {size(given.nbytes)} {algorithm} of {given.ranks} #{number}"


def labels_of(name: str, steps: Sequence[CollectiveStep], ranks: int) -> list[str]:
    """The labels of steps: the collective's name, and the number of the step among those of its rank."""
    return [f"{name}, {text}" for text in numbered(steps, ranks)]


def unread_inputs(given: CollectiveSpec, steps: Sequence[CollectiveStep]) -> list[int]:
    """The ranks of the inputs that no step reads."""
    regions = [region for step in steps for region in (step.source, step.base) if region is not None]
    read = {region.rank for region in regions if region.is_input}
    return [rank for rank in range(len(given.inputs)) if rank not in read]


def kernel_of(
    given: CollectiveSpec, step: CollectiveStep, origin: Region, device: Device, copy: Receive, *, in_place: bool
) -> Callable[..., None]:
    """The kernel of a step, whose arguments are the arrays of the result, of the base (if any) and of the source.

    `origin`: the chunk's region in the source; `copy` receives the chunk, unless a merge reads it `in_place`.
    """
    if step.base is None:
        return copying(copy, step.target.region, origin, given.flat)
    merge = partial(device.merge, function=given.merge)
    if not in_place:
        merge = partial(merge, receive=copy)
    return merging(merge, (step.target.region, step.base.region, origin), given.flat)


def flipped(copy: Callable[[Array, Array], None]) -> Callable[[Array, Array], None]:
    """The copy function with its arguments exchanged: source first."""
    return lambda source, target: copy(target, source)


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


def merging(
    merge: Callable[[Array, Array, Array], None], regions: tuple[Region, Region, Region], flat: bool
) -> Callable[[Array, Array, Array], None]:
    """The kernel of a merge. `regions`: of target, base and source."""

    def run(*arrays: Array) -> None:
        target, base, source = [part(array, region, flat) for array, region in zip(arrays, regions, strict=True)]
        merge(target, base, source)

    return run
