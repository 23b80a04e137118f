"""A collective that a library (NCCL) carries out: one LAUNCH in place of the steps, between the ALLOCATEs and the
COMPLETE (`collectives`).

The LAUNCH reads all inputs and results, and writes a token for each result. Its edges are hard (`Traits.exchanges`),
so the LAUNCH begins when all its operands are ready, and, being one instruction, on all its devices at once. The
library runs all launches of the machine in one order; `collective_gang` keeps that order across nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from ...interpreter.collectives.collective import CollectiveKind, CollectiveSpec
from ...interpreter.collectives.library import Calls, calls_of, element_of
from ...interpreter.collectives.regions import Region, whole
from ...interpreter.collectives.request import ResolvedRequest
from ...interpreter.collectives.steps import ChunkRegion
from ...interpreter.opcodes import Opcode
from ...streams.library import CollectiveLaunch, CollectiveLibrary, Operand, Operands
from ...streams.stream import StreamKind
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.session import Cause
from ..model.tensor import Binding, VmTensor
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .collective_group import CollectiveGroup, StepEnd

WHOLE_REGION: Final = whole(())  # the region of a token, which stands for the whole result


def library_of(
    resolved: ResolvedRequest, tensors: Sequence[VmTensor], devices: Sequence[DeviceState]
) -> CollectiveLibrary | None:
    """The library that can carry out the collective; None if the devices do not share a library that supports it."""
    library = devices[0].backend.library
    if library is None or any(device.backend.library is not library for device in devices):
        return None
    given = resolved.collective
    if given.kind is CollectiveKind.BROADCAST and tensors[0].home is not devices[given.root]:
        return None
    return library if calls_of(given) else None


class LaunchedGroup(CollectiveGroup):
    """This node's instructions of a collective that a library carries out."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        cause: Cause,
        resolved: ResolvedRequest,
        devices: Mapping[int, DeviceState],
        inputs: Mapping[int, Binding],
        library: CollectiveLibrary,
    ) -> None:
        super().__init__(scheduler, residency, cause, resolved, devices, inputs)
        self.names = resolved.devices
        self.library = library
        self.algorithm, self.steps = library.name, ()

    def admit_steps(self, name: str) -> None:
        """Admit the LAUNCH."""
        given, device, element = self.given, next(iter(self.devices.values())), element_of(self.given)
        calls = [call for call in calls_of(given) if call.rank in self.devices]
        if element is None:
            raise AssertionError(f"no library takes {name}")
        instruction = self.new_instruction(Opcode.LAUNCH, self.label_of(name), device)
        results, inputs = list(self.results.values()), list(self.inputs.values())
        instruction.inputs = (*results, *inputs)
        instruction.reads = tuple(dict.fromkeys([binding.copy for binding in (*results, *inputs)]))
        instruction.writes = tuple([self.token(ChunkRegion(rank, WHOLE_REGION, 0)) for rank in self.devices])
        here = {rank: one.name for rank, one in self.devices.items()}
        launch = CollectiveLaunch(name, self.names, here, calls, element, self.request.reduction)
        end = self.prepare(instruction, launch)
        self.send(instruction, device.backend.copy_stream(StreamKind.JOINT), given.nbytes, end)

    def label_of(self, name: str) -> str:
        """The label of the LAUNCH."""
        return name

    def prepare(self, instruction: Instruction, launch: CollectiveLaunch) -> StepEnd:
        """Set the kernel, which begins the launch; return the handler for the end of the LAUNCH."""
        instruction.kernel = partial(self.begin, launch)
        return LaunchEnd(instruction.device, self.library, launch)

    def begin(self, launch: CollectiveLaunch, *given: Any) -> None:
        """Start the launch in the library. `given`: the arrays, then the callback for its end."""
        self.library.begin(launch, self.operands(launch, given[:-1]), given[-1])

    def operands(self, launch: CollectiveLaunch, arrays: Sequence[Any]) -> Operands:
        """The regions of the arrays that the library's calls read and write. `arrays`: the results, then the inputs."""
        ranks = len(self.devices)
        results, inputs = dict(zip(self.devices, arrays[:ranks], strict=True)), arrays[ranks:]
        return operands_of(self.given, launch.calls, dict(zip(self.inputs, inputs, strict=True)), results)


class LaunchEnd(StepEnd):
    """Ends a LAUNCH. If it is doomed, it is withdrawn from the library."""

    __slots__ = ("launch", "library")
    at_doom: ClassVar[bool] = True

    def __init__(self, carrier: DeviceState, library: CollectiveLibrary, launch: CollectiveLaunch) -> None:
        super().__init__(carrier, StreamKind.JOINT)
        self.library = library
        self.launch = launch

    def doomed(self, doomed: Instruction) -> None:
        if doomed.error is not None:
            self.library.withdraw(self.launch, doomed.error)


def operands_of(given: CollectiveSpec, calls: Calls, inputs: Mapping[int, Any], results: Mapping[int, Any]) -> Operands:
    """The regions that each call reads and writes.

    `inputs`, `results`: by rank; a broadcast has one input, at 0 whatever its root.
    """
    alone = given.kind is CollectiveKind.BROADCAST
    return [
        (
            None if call.source is None else operand(inputs[0 if alone else call.rank], call.source, given.flat),
            None if call.target is None else operand(results[call.rank], call.target, given.flat),
        )
        for call in calls
    ]


def operand(array: Any, region: Region, flat: bool) -> Operand:
    """A region of a packed array as (array, first element, number of elements).

    `flat`: the region counts elements, not axes.
    """
    return array, region.begins_at((array.size,) if flat else array.shape), region.size
