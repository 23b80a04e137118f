"""Admission of collectives: a COLLECTIVE message becomes a group of instructions, admitted one after the other.

- One ALLOCATE for each result makes its memory, in the order of the stream that fills the result.
- Each step (`interpreter.collectives`) is a MOVE or a MERGE on the stream that brings a chunk to the receiving device,
  or two such instructions through the host, for devices without peer access.
- One COMPLETE, which does no work, writes all results.

If all devices share a library that supports the collective, one LAUNCH replaces the steps (`collective_launch`).

Dependences are edges, as everywhere. Each chunk of an unfinished result has a *token*, a copy without data: a step
reads the tokens of its source chunks, and writes the token of its target chunk. Steps only read the result's own copy,
which orders the steps after the ALLOCATE but not among each other; COMPLETE reads all tokens and updates the result's
copy. So a step begins as soon as its chunks are ready; a failure of any step reaches all results; and later
instructions of the program wait for COMPLETE alone.

There is no deadlock: a step is dispatched only once its dependences are done (`Traits.exchanges`), so no stream ever
waits for another device, and all sessions and devices have one order of admission.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...interpreter.collectives.collective import CollectiveSpec as Given
from ...interpreter.collectives.request import ResolvedRequest, check_ranks, resolve_request
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.node_messages import Collective
from ..model.device_state import DeviceState
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, VmTensor
from ..placement.residency import Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.scheduler import Scheduler
from .collective_group import CollectiveGroup
from .collective_launch import LaunchedGroup, library_of
from .groups_at_once import GroupAtOnce
from .lookup import check_new, device_of, refuse_cancelled, tensor_of
from .packing import packed
from .quotas import check_results
from .rejection import Rejection


class CollectiveHandler:
    """The handler of COLLECTIVE messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection

    def collective(self, session: VmSession, message: Collective) -> None:
        """Admit the group; if it is refused, define the results, poisoned."""
        cause, outputs = Cause(session, message.location), message.outputs
        metas: Sequence[Meta] = ()
        devices: list[DeviceState] = []
        try:
            refuse_cancelled(session)
            check_new(session, outputs)
            check_inputs(message)
            check_ranks(message.kind, len(message.inputs), len(outputs), len(self.scheduler.devices))
            tensors = [known_tensor(tensor_of(session, id_)) for id_ in message.inputs]
            resolved = resolve_message(message, tensors, self.scheduler.devices)
            devices = [device_of(self.scheduler.devices, name) for name in resolved.devices]
            metas = resolved.collective.outputs()
            if GroupAtOnce(self.scheduler, self.residency, cause, resolved, tensors, devices, metas).run(outputs):
                return
            library = library_of(resolved, tensors, devices)
            bound = self.bind(cause, resolved.collective, tensors, devices, metas, launched=library is not None)
        except TensordError as error:
            self.refuse(cause, message, error, metas, devices)
            return
        ranks, inputs = dict(enumerate(devices)), dict(enumerate(bound))
        if library is not None:
            group: CollectiveGroup = LaunchedGroup(
                self.scheduler, self.residency, cause, resolved, ranks, inputs, library
            )
        else:
            group = CollectiveGroup(self.scheduler, self.residency, cause, resolved, ranks, inputs)
        group.admit(outputs, metas)

    def bind(
        self,
        cause: Cause,
        given: Given,
        tensors: Sequence[VmTensor],
        devices: Sequence[DeviceState],
        metas: Sequence[Meta],
        *,
        launched: bool = False,
    ) -> list[Binding]:
        """Check that the group can be admitted, and return the inputs on their homes.

        `launched`: a library carries out the collective, so routes do not matter, and inputs must be packed.
        """
        residency = self.residency
        for device in (*devices, *(tensor.home for tensor in tensors)):
            refuse_lost(device)
        for source in () if launched else (*devices, *(tensor.home for tensor in tensors)):
            for device in devices:
                if source is not device:
                    residency.routes.stopover(source, device)
        check_results(cause.session, metas, 0)
        bound = [residency.operand(tensor, tensor.home, cause) for tensor in tensors]
        for device, meta in zip(devices, metas, strict=True):
            if device.ceiling:
                residency.tiers.require_share(None, device, meta.nbytes, cause)
        return [packed(residency, one, cause) if given.flat or launched else one for one in bound]

    def refuse(
        self,
        cause: Cause,
        message: Collective,
        error: TensordError,
        metas: Sequence[Meta],
        devices: Sequence[DeviceState],
    ) -> None:
        """Define the results, poisoned, on their devices if these are known."""
        session, rejection = cause.session, self.rejection
        if len(metas) != len(message.outputs) or not devices:
            rejection.reject(session, error, message.outputs, cause.location, message.kind)
            return
        error = rejection.rejected(session, error, cause.location, message.kind)
        for id_, meta, device in zip(message.outputs, metas, devices, strict=True):
            rejection.poison(session, id_, error, meta, device)
        self.scheduler.tell(session, error)


def resolve_message(message: Collective, tensors: Sequence[VmTensor], known: Collection[str]) -> ResolvedRequest:
    """The request of a message, checked. `known`: the names of the machine's devices."""
    devices = [own_name(name, known) for name in message.devices]
    homes, metas = [tensor.home.name for tensor in tensors], [tensor.meta for tensor in tensors]
    return resolve_request(message.kind, homes, metas, devices, message.attributes, len(message.outputs))


def check_inputs(message: Collective) -> None:
    """MetadataError for a message without inputs, which is valid only for a part of a collective over nodes."""
    if not message.inputs:
        raise MetadataError(f"{message.kind}: it needs at least one tensor", op=message.kind)


def known_tensor(tensor: VmTensor) -> VmTensor:
    """The tensor. Raises the tensor's error if its meta will never be known."""
    if tensor.meta_error is not None:
        raise tensor.meta_error.reraisable()
    return tensor
