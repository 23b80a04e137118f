"""A collective that a library carries out on devices of several nodes: one LAUNCH on each node (`collective_launch`).

The LAUNCH begins when its operands on this node are ready, and is done when this node's GPUs have finished.
`streams.gangs` makes all nodes launch together, or none. Until then the LAUNCH waits for other nodes, as an EXPECT
does: the wait blocks no stream, and no instruction that waits for memory. A node that withdraws tells the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from ...interpreter.collectives.over_nodes import is_launchable
from ...interpreter.collectives.request import ResolvedRequest
from ...interpreter.errors import MetadataError, QuotaError
from ...streams.gangs.gang import Gang, Rendezvous
from ...streams.gangs.turns import Turns
from ...streams.library import CollectiveLaunch, CollectiveLibrary
from ...streams.links.link_stream import LinkStream
from ...streams.stream import StreamKind
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.session import Cause
from ..model.tensor import Binding
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from ..tracing.link_labels import launch_label
from .collective_group import StepEnd
from .collective_launch import LaunchedGroup
from .quotas import check_offers


def library_of(
    resolved: ResolvedRequest, homes: Sequence[str], devices: Mapping[int, DeviceState]
) -> CollectiveLibrary | None:
    """The library that the message names; None if it names none. MetadataError if a device here lacks the library."""
    kind, wanted = resolved.collective.kind, resolved.request.library
    if not wanted:
        return None
    if not devices or not is_launchable(resolved, homes):
        raise MetadataError(f"{kind}: {wanted} does not carry this out", op=kind)
    library, *others = {device.backend.library for device in devices.values()}
    if others or library is None or library.version != wanted:
        names = ", ".join(device.name for device in devices.values())
        raise MetadataError(f"{kind}: {wanted} is not there for {names}", op=kind)
    return library


class GangGroup(LaunchedGroup):
    """This node's instructions of one collective, and its part of the launch."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        cause: Cause,
        resolved: ResolvedRequest,
        devices: Mapping[int, DeviceState],
        inputs: Mapping[int, Binding],
        library: CollectiveLibrary,
        rendezvous: Rendezvous,
        turns: Turns,
    ) -> None:
        super().__init__(scheduler, residency, cause, resolved, devices, inputs, library)
        self.rendezvous = rendezvous
        self.turns = turns

    def label_of(self, name: str) -> str:
        return launch_label(name, [node for node in self.rendezvous.nodes if node != self.rendezvous.node])

    def prepare(self, instruction: Instruction, launch: CollectiveLaunch) -> StepEnd:
        gang = Gang(launch, self.library, self.turns, self.rendezvous)
        instruction.remote = True
        instruction.kernel = partial(self.begin_gang, gang, instruction)
        return GangEnd(instruction.device, gang)

    def begin_gang(self, gang: Gang, instruction: Instruction, *given: Any) -> None:
        """Join the launch: the operands on this node are ready. `given`: the arrays, and the callback."""
        session = self.cause.session
        try:
            check_offers(session)
        except QuotaError as error:
            gang.withdraw(instruction.describe(error))
            raise
        session.offered.add(instruction.id)
        if isinstance(instruction.stream, LinkStream):
            instruction.stream.progress[instruction.id] = gang
        gang.begin(self.operands(gang.launch, given[:-1]), given[-1])


class GangEnd(StepEnd):
    """Ends a LAUNCH with other nodes. If it is doomed, this node's part is withdrawn."""

    __slots__ = ("gang",)
    at_doom: ClassVar[bool] = True

    def __init__(self, carrier: DeviceState, gang: Gang) -> None:
        super().__init__(carrier, StreamKind.JOINT)
        self.gang = gang

    def doomed(self, doomed: Instruction) -> None:
        doomed.session.offered.discard(doomed.id)
        if doomed.error is not None:
            self.gang.withdraw(doomed.describe(doomed.error))
