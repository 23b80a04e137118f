"""Rejection of messages that cannot be admitted.

The outputs of a rejected message are defined, poisoned; its sender gets the error, as an answer or as a report. Other
sessions are not affected.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ...interpreter.errors import CancelledError, ProtocolError, TensordError, without_frames
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...interpreter.wire.fields import Role
from ...interpreter.wire.forms import decode_message, has_kind, name_fields
from ...interpreter.wire.message_kinds import MessageKind
from ...interpreter.wire.messages import Location, Span
from ...interpreter.wire.roles import messages_of, number_of, outputs_of, signatures_of
from ..memory.release import release
from ..model.charges import credit
from ..model.device_state import DeviceState
from ..model.session import Cause, VmSession
from ..model.tensor import Copy, VmTensor
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .lookup import enter, forget_plan
from .quotas import may_name

MAX_ERROR_LENGTH = 1000  # characters of an error that a session keeps


class Rejection:
    """Poisons the outputs of a message, and reports the error to its sender."""

    def __init__(self, scheduler: Scheduler, residency: Residency, devices: Mapping[str, DeviceState]) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.devices = devices

    def refuse(self, session: VmSession, array: Any, error: TensordError) -> None:
        """Poison the outputs of a message whose admission has raised this error."""
        label = name_of(array)
        location = number_of(array, Role.LOCATION)
        damaged: list[Any] = signatures_of(array)  # Any: the fields are not checked
        for signature in damaged:
            if signature.number <= session.limits.signatures:
                forget_plan(session, signature.number)
                session.plans[signature.number] = stored_error(
                    error, signature.op if type(signature.op) is str else label
                )
        forget_locations(session, array)
        outputs = outputs_of(array)
        if outputs:
            self.reject(session, error, outputs, location, label)
        else:
            self.deny(session, error, number_of(array, Role.REQUEST), location, label)

    def deny(self, session: VmSession, error: TensordError, request: int, location: int, label: str) -> None:
        """Answer the request with the error, its op and line; without a request, report the error."""
        error = located(session, error, location, label)
        if request:
            session.reply(request, None, error)
        elif not isinstance(error, CancelledError):
            self.scheduler.tell(session, error)

    def reject(
        self,
        session: VmSession,
        error: TensordError,
        outputs: Sequence[int],
        location: int,
        label: str,
        metas: Sequence[Meta | None] = (),
        home: DeviceState | None = None,
    ) -> None:
        """Define the outputs of a rejected message, poisoned, and report the error once."""
        error = self.rejected(session, error, location, label)
        for id_, meta in itertools.zip_longest(outputs, metas[: len(outputs)]):
            self.poison(session, id_, error, meta, home)
        if not isinstance(error, CancelledError):
            self.scheduler.tell(session, error)

    def rejected(self, session: VmSession, error: TensordError, location: int, label: str) -> TensordError:
        """The error of a rejected message, with an instruction id of its own."""
        self.scheduler.ids += 1
        error = error.reraisable()
        error.op = error.op or label
        error.instruction = self.scheduler.ids
        error.location = session.source.where(location)
        return error

    def poison(
        self, session: VmSession, id_: int, error: TensordError, meta: Meta | None, home: DeviceState | None
    ) -> None:
        """Poison an output of a rejected message; define it if it is new."""
        tensor = session.tensors.get(id_)
        if tensor is not None:
            self.poison_existing(session, tensor, error)
        elif isinstance(id_, int) and id_ > session.newest and may_name(session):
            enter(session, id_, self.poisoned(error, meta, home))

    def poison_existing(self, session: VmSession, tensor: VmTensor, error: TensordError) -> None:
        """Poison the target of a rejected write, as a failed write does; a cancelled write spares a shared target."""
        if tensor.holders > 1 and isinstance(error, CancelledError):
            return
        self.poison_value(session, tensor, error)

    def poison_value(self, session: VmSession, tensor: VmTensor, error: TensordError) -> None:
        """Poison a tensor at this point in program order, even a shared one."""
        self.poison_copy(session, self.residency.target(tensor, tensor.home, False, Cause(session, 0)).copy, error)
        self.residency.releasing.drop_orphans()
        credit(tensor.storage)

    def poison_copy(self, session: VmSession, copy: Copy, error: TensordError) -> None:
        """Poison a copy at this point in program order."""
        instruction = self.scheduler.new_instruction(session, Opcode.CALL, error.op or "call", copy.device, 0)
        instruction.writes = (copy,)
        instruction.error = without_frames(error)
        self.scheduler.admit(instruction)

    def poisoned(self, error: TensordError, meta: Meta | None, home: DeviceState | None) -> VmTensor:
        """A tensor that never had a value."""
        device = home or next(iter(self.devices.values()))
        tensor, copy = self.residency.new_tensor(meta, device)
        tensor.storage.made = self.scheduler.now
        copy.poison = error
        release(copy)
        tensor.meta_error = error if meta is None else None
        return tensor


def located(session: VmSession, error: TensordError, location: int, label: str) -> TensordError:
    """A copy of the error, with this location and label unless it has its own."""
    error = error.reraisable()
    error.op = error.op or label
    error.location = error.location or session.source.where(location)
    return error


def forget_locations(session: VmSession, array: Any) -> None:
    """Forget the old locations and spans under the numbers that a refused message would have set."""
    for message in messages_of(array):
        line: Any = name_fields(message, Location)  # Any: the fields are not checked
        span: Any = name_fields(message, Span)
        if line is not None and type(line.number) is int:
            session.source.lines.forget(line.number)
        if span is not None and type(span.number) is int:
            session.source.spans.forget(span.number)


def stored_error(error: TensordError, name: str) -> TensordError:
    """The error as a session stores it: without traceback, its message cut to `MAX_ERROR_LENGTH` characters."""
    message = error.message if len(error.message) <= MAX_ERROR_LENGTH else f"{error.message[:MAX_ERROR_LENGTH]}..."
    return type(error)(message, op=(error.op or name)[:MAX_ERROR_LENGTH], location=error.location)


def refusal_of(array: Any, failure: Exception) -> TensordError | None:
    """The client's error behind an exception of admission: the message is damaged, or was refused.

    None if the message is well-formed and the exception no TensordError: a bug of the engine.
    """
    try:
        decode_message(array)
    except ProtocolError as damage:
        return damage
    return failure if isinstance(failure, TensordError) else None


def name_of(array: Any) -> str:
    """The kind of a message, for error messages."""
    return MessageKind(array[0]).name.lower() if has_kind(array) else "message"
