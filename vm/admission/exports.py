"""Exports: ids that stand for fetched values which their clients read in the daemon's memory.

A client that maps the memory of a result reads the memory for as long as it likes. So the fetched value is a tensor of
its own (`twin`: same storage, this version), which ends with an ordinary RELEASE of its id or with its session. That
alone keeps the value: a write to any other tensor of the storage finds the storage shared and goes to a new one. One
copy is left to protect: the mapped one, on a device whose memory is shared. That copy must stay where it is, and must
serve nobody else, whatever becomes of its place in the storage's map: dropped under memory pressure, abandoned with its
device, or left behind by a client that uses the export's id for something else. So an export pins the copy
(`memory/mapped`), and the export has strides even where it is packed: a write to the export itself detaches it, like a
view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...interpreter.errors import TensordError
from ...interpreter.opcodes import ACCESS_TEXT, Opcode
from ...interpreter.wire.segments import SHARED_FROM
from ..memory.binding import bind
from ..memory.mapped import pin
from ..model.device_state import DeviceState
from ..model.operand import Binding
from ..model.tensor import Tensor
from ..placement.views import twin
from ..scheduler.pending_metas import await_metas
from .inline import leave_record
from .lookup import enter
from .quotas import may_name
from .rejection import poisoned

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.instruction import Instruction
    from ..model.session import VmSession


def define_export(session: VmSession, id_: int, base: Tensor) -> Tensor:
    """A tensor with the value that is fetched."""
    export = twin(base, base.home)
    enter(session, id_, export)
    return export


def define_refused(engine: Engine, session: VmSession, id_: int, error: TensordError, location: int) -> None:
    """The fetch was not admitted: its export is an id all the same, poisoned. The sender is told by an answer."""
    error = error.reraisable()
    error.op, error.location = error.op or "fetch", error.location or session.where(location)
    if id_ > session.newest and may_name(session):
        enter(session, id_, poisoned(engine, error, None, None))


def device_to_map(engine: Engine, base: Tensor) -> DeviceState | None:
    """The device in whose memory a client may read the value; None if it is better served with bytes.

    Those are small values, small parts of what would be kept whole for them, and what has no room there.
    """
    storage, meta = base.storage, base.meta
    device = next(
        (copy.device for copy in storage.copies.values() if copy.device.backend.shared), engine.residency.host
    )
    if device is None or not device.backend.shared or device.backend.lost is not None:
        return None
    if meta is None:
        return device
    if meta.nbytes < SHARED_FROM:
        return None
    if device in storage.copies:
        return device if 2 * meta.nbytes >= storage.nbytes else None
    return device if device.planned + meta.nbytes <= device.backend.limit else None


def fetch_in_place(
    engine: Engine, session: VmSession, id_: int, export: Tensor, device: DeviceState, request: int, location: int
) -> None:
    """Answer with the array of the buffer itself, read-only, once the value is there; it may move to `device`."""
    residency = engine.residency
    residency.place(export, device, session, location)
    source = residency.operand(export, device, session, location)
    pin(engine, export, source.copy)
    detach_writes(export)
    if answer_now(engine, session, source, request, location):
        return
    instruction = engine.new_instruction(session, Opcode.ACCESS, "fetch", device, location)
    instruction.inputs = (source,)
    instruction.reads = (source.copy,)
    await_metas(instruction)

    def read(array: NDArray[Any]) -> NDArray[Any]:
        detach_writes(export)
        if session.tensors.get(id_) is export:
            return sealed(array)
        device.refuse_vast(array.nbytes, "a value")
        return array.copy()  # released before it was read

    instruction.kernel = read
    instruction.on_control = True  # it touches no byte
    answer_with_results(instruction, session, request)
    engine.admit(instruction)


def answer_now(engine: Engine, session: VmSession, source: Binding, request: int, location: int) -> bool:
    """Answer at once if the value is there."""
    copy, tensor, _, _ = source
    if copy.writer is not None or copy.poison is not None or copy.buffer is None or tensor.meta is None:
        return False
    started = engine.clock()
    result = sealed(bind(source))
    traits = (session.id, ACCESS_TEXT, "fetch", copy.device.name, "r")
    leave_record(engine, traits, (copy.id, copy.version), started, location, 0)
    session.reply(request, result, None)
    return True


def answer_with_results(
    instruction: Instruction,
    session: VmSession,
    request: int,
    before: Callable[[Instruction], None] | None = None,
    nbytes: int = 0,
) -> None:
    """Answer a request with what the instruction's kernel returns, or with its error, as soon as that is known.

    `nbytes`: bytes that are made for the answer.
    """
    session.answering += nbytes

    def answer(done: Instruction) -> None:
        session.answering -= nbytes
        if before is not None:
            before(done)
        session.reply(request, None if done.error is not None else done.results, done.error)
        done.results = None

    def refuse(doomed: Instruction) -> None:
        session.answering -= nbytes
        session.reply(request, None, doomed.error)

    instruction.on_retire = answer
    instruction.on_doom = refuse


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, read-only. A view: the array itself belongs to the buffer."""
    view = array.view()
    view.flags.writeable = False
    return view


def detach_writes(export: Tensor) -> None:
    """A write to the export goes elsewhere: the export has the strides of a view, even if it is packed."""
    if export.strides is None and export.meta is not None:
        export.strides = export.meta.strides


def expose(engine: Engine, session: VmSession) -> None:
    """Before a session ends whose client did not say that it is done: it may read what it has mapped for ever.

    So that memory is not reused for anything. It goes back to the system when the last one has unmapped it.
    """
    for tensor in session.tensors.values():
        pinned = engine.residency.holds.get(tensor)
        if pinned is not None and pinned[0].buffer is not None:
            pinned[0].buffer.expose()
