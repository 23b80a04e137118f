"""Shares: values that clients read where they lie, in the memory of a GPU.

A share is an export (`exports`): it has an id of its own, a later write goes elsewhere, and its memory stays as it is
until the id is released. The answer to a client in the machine's own process is the array itself. If the value is there
in the order of launches only, an event comes with it, for which the client's stream waits; so neither end waits on the
host.
"""

from __future__ import annotations

from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.wire.messages import Share
from ..memory.binding import bind
from ..memory.mapped import map_copy
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, Tensor
from ..placement.residency import Export, Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .exports import Exports, answer_with_results, define_export
from .inline import ACCESS
from .lookup import check_new, refuse_cancelled, tensor_of
from .quotas import check_tensors
from .rejection import Rejection


class Shares:
    """The handler of SHARE messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, exports: Exports, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.exports = exports
        self.rejection = rejection

    def share(self, session: VmSession, message: Share) -> None:
        """Answer with the value's place at home, as of this place in program order."""
        id_, request, location, export = message
        try:
            refuse_cancelled(session)
            check_new(session, (export,))
            check_tensors(session, 1)
            tensor = tensor_of(session, id_)
            refuse_unshared(session, tensor)
            refuse_lost(tensor.home)
            if session.moves:
                self.residency.begin_moves(session)
        except TensordError as error:
            self.exports.define_refused(session, export, error, location)
            self.rejection.deny(session, error, request, location, "share")
            return
        self.lend(session, define_export(session, export, tensor), request, location)

    def lend(self, session: VmSession, export: Tensor, request: int, location: int) -> None:
        """Answer with an array over the copy at home."""
        residency, backend = self.residency, export.home.backend
        source = residency.bring(export, export.home, Cause(session, location))
        map_copy(source.copy)
        export.bound = True
        mapping = residency.exports[export] = Export(source.copy, export.storage, session)
        if self.lend_now(session, source, request, location):
            return
        instruction = self.scheduler.new_instruction(session, Opcode.ACCESS, "share", export.home, location)
        instruction.inputs = (source,)
        instruction.reads = (source.copy,)
        await_metas(instruction)
        instruction.kernel = lambda array: (backend.lend(array), None)
        instruction.on_control = True  # it touches no byte
        residency.exports[export] = mapping._replace(fetch=instruction)
        answer_with_results(instruction, session, request)
        self.scheduler.admit(instruction)

    def lend_now(self, session: VmSession, source: Binding, request: int, location: int) -> bool:
        """Answer at once if the value is there in the order of launches."""
        copy, tensor, _, _ = source
        device, launches = copy.device, copy.device.launches
        if launches is None or copy.writer is not None or copy.poison is not None or copy.buffer is None:
            return False
        if tensor.meta is None or len(tensor.meta.shape) > device.backend.most_axes:
            return False
        started = self.scheduler.clock()
        event = device.backend.behind_launches()
        if event is None:
            return False
        launches.order.issued = copy.touched = number = launches.order.issued + 1
        launches.cost += launches.least
        traits = (session.id, ACCESS, "share", device.name, "r", tensor.meta.plain)
        used = device.backend.allocated
        self.scheduler.keep_record(traits, (copy.id, copy.version), started, location, used, launch=number)
        session.reply(request, (device.backend.lend(bind(source)), event), None)
        return True


def refuse_unshared(session: VmSession, tensor: Tensor) -> None:
    """MetadataError unless the session may read the value in the memory of its home."""
    home = tensor.home
    if home.backend.cuda_number is None:
        raise MetadataError(f"the tensor is on {home.name}, whose memory is no GPU's; numpy() gives a copy on the host")
    if not session.reads_in_place:
        raise MetadataError(f"this daemon shares no memory of {home.name}; numpy() gives a copy on the host")
