"""Exports: fetched values that clients read in place, in the machine's memory.

A client may read the mapped memory at any time until it releases the export. So an export is a tensor of its own, an
alias of the fetched tensor, which lives until a RELEASE of its id or the end of its session. The alias keeps the value:
a write to another tensor of the storage finds the storage shared, and goes to a new one. The mapped copy must also keep
its buffer, even if the copy leaves the storage's map because of memory pressure, a lost device, or another use of the
export's id. So the copy counts as mapped (`memory.mapped`), and a mapped copy is never written in place, not even
through the export's own id (`memory.overwriting`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from ...interpreter.errors import TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.wire.segments import SHARED_FROM
from ..memory.binding import bind
from ..model.charges import has_share
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Again, Cause, VmSession
from ..model.tensor import Binding, VmTensor
from ..placement.residency import Residency
from ..placement.views import alias
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .at_once import ACCESS, keep_record
from .lookup import enter
from .quotas import may_name
from .rejection import Rejection


class Exports:
    """Answers fetches with memory that clients map."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection

    def define_refused(self, session: VmSession, id_: int, error: TensordError, location: int) -> None:
        """Define a poisoned export for a refused fetch; the caller answers the request."""
        error = error.reraisable()
        error.op, error.location = error.op or "fetch", error.location or session.source.where(location)
        if id_ > session.newest and may_name(session):
            enter(session, id_, self.rejection.poisoned(error, None, None))

    def device_to_map(self, base: VmTensor) -> DeviceState | None:
        """The device in whose memory a client may read the value; None if the client gets a copy of the bytes.

        Small values, small parts of large storages, and values that do not fit on that device are copied.
        """
        storage, meta = base.storage, base.meta
        shared = (copy.device for copy in storage.copies.values() if copy.device.backend.shared)
        device = next(shared, self.residency.host)
        if device is None or not device.backend.shared or device.backend.lost is not None:
            return None
        if meta is None:
            return device
        if meta.nbytes < SHARED_FROM:
            return None
        if device in storage.copies:
            return device if 2 * meta.nbytes >= storage.nbytes else None
        account, nbytes = storage.account, self.residency.bytes_to_bring(base)
        fits = device.planned + nbytes <= device.backend.limit and has_share(account, device, nbytes)
        return device if fits else None

    def fetch(self, session: VmSession, export: VmTensor, device: DeviceState, request: int, location: int) -> None:
        """Answer with the buffer's own array, read-only, once the value is computed and on `device`."""
        scheduler, residency = self.scheduler, self.residency
        source = residency.bring(export, device, Cause(session, location))
        residency.releasing.keep_export(export, source.copy, session)
        if self.answer_now(session, source, request, location):
            return
        instruction = scheduler.new_instruction(session, Opcode.ACCESS, "fetch", device, location)
        instruction.inputs = (source,)
        instruction.reads = (source.copy,)
        await_metas(instruction)
        instruction.kernel = sealed
        instruction.on_control = True  # the kernel copies nothing
        residency.releasing.note_fetch(export, instruction)
        instruction.on_end = ReplyEnd(session, request)
        scheduler.admit(instruction)

    def answer_now(self, session: VmSession, source: Binding, request: int, location: int) -> bool:
        """Answer at once if the value is computed; False if it is not."""
        copy, tensor, _, _ = source
        if copy.writer is not None or copy.poison is not None or copy.buffer is None or tensor.meta is None:
            return False
        started = self.scheduler.clock()
        result = sealed(bind(source))
        traits = (session.id, ACCESS, "fetch", copy.device.name, "r", tensor.meta.plain)
        keep_record(self.scheduler, traits, (copy.id, copy.version), started, location)
        session.reply(request, result, None)
        return True


def define_export(session: VmSession, id_: int, base: VmTensor) -> VmTensor:
    """Define the export: a tensor with the fetched value."""
    export = alias(base, base.home)
    enter(session, id_, export)
    return export


class ReplyEnd(InstructionEnd):
    """Answers a request with the results of the kernel, or with the error as soon as it is known.

    `nbytes`: the bytes of the answer, which count until the answer is sent. `again`: the request stays open for another
    answer, except after an error.
    """

    __slots__ = ("again", "nbytes", "request", "session")
    at_doom: ClassVar[bool] = True

    def __init__(self, session: VmSession, request: int, nbytes: int = 0, *, again: bool = False) -> None:
        self.session = session
        self.request = request
        self.nbytes = nbytes
        self.again = again
        session.answering += nbytes

    def retired(self, done: Instruction) -> None:
        self.session.answering -= self.nbytes
        results, done.results = done.results, None
        value = None if done.error is not None else Again(results) if self.again else results
        self.session.reply(self.request, value, done.error)


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view of the array, which itself belongs to the buffer."""
    view = array.view()
    view.flags.writeable = False
    return view
