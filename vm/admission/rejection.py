"""What becomes of a message that cannot be admitted: its sender gets the error, as an answer or as a report; no other
session notices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...interpreter.errors import CancelledError, ProtocolError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...interpreter.wire.fields import Role
from ...interpreter.wire.forms import decode_message, has_kind
from ...interpreter.wire.messages import MessageKind
from ...interpreter.wire.roles import number_of, outputs_of, signatures_of
from ..model.account import let_off
from ..model.device_state import DeviceState
from ..model.tensor import Copy, Tensor
from .lookup import enter, forget_plan
from .quotas import may_name

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.session import VmSession


LONGEST = 1000  # characters of an error that a session keeps


def refuse(engine: Engine, session: VmSession, array: Any, failure: Exception) -> None:
    """Admitting the message raised: it is damaged, or the fault is ours. What it was to define is poisoned."""
    error = describe(array, failure)
    label = name_of(array)
    location = number_of(array, Role.LOCATION)
    for signature in signatures_of(array):
        if signature.number <= session.limits.signatures:
            forget_plan(session, signature.number)
            session.plans[signature.number] = kept(error, signature.op if type(signature.op) is str else label)
    outputs = outputs_of(array)
    if outputs:
        reject(engine, session, error, outputs, location, label)
    else:
        deny(engine, session, error, number_of(array, Role.REQUEST), location, label)


def kept(error: TensordError, name: str) -> TensordError:
    """An error as a session keeps it: without the frames that it came through, and no longer than people read."""
    message = error.message if len(error.message) <= LONGEST else f"{error.message[:LONGEST]}..."
    return type(error)(message, op=(error.op or name)[:LONGEST], location=error.location)


def deny(engine: Engine, session: VmSession, error: TensordError, request: int, location: int, label: str) -> None:
    """Tell who asked, with op and line; report the error if nobody did."""
    error = error.reraisable()
    error.op = error.op or label
    error.location = error.location or session.where(location)
    if request:
        session.reply(request, None, error)
    elif not isinstance(error, CancelledError):
        engine.tell(session, error)


def describe(array: Any, failure: Exception) -> TensordError:
    """The failure as an error for the client."""
    try:
        decode_message(array)
    except ProtocolError as damage:
        return damage
    if isinstance(failure, TensordError):
        return failure
    error = ProtocolError(f"a {name_of(array)} message could not be admitted: {type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error


def name_of(array: Any) -> str:
    """The kind of a message, for people."""
    return MessageKind(array[0]).name.lower() if has_kind(array) else "message"


def reject(
    engine: Engine,
    session: VmSession,
    error: TensordError,
    outputs: Sequence[int],
    location: int,
    label: str,
    metas: Sequence[Meta | None] = (),
    home: DeviceState | None = None,
) -> None:
    """Not admitted: its outputs are defined, poisoned; one report is made."""
    engine.ids += 1
    error = error.reraisable()
    error.op = error.op or label
    error.instruction = engine.ids
    error.location = session.where(location)
    for id_, meta in itertools.zip_longest(outputs, metas[: len(outputs)]):
        tensor = session.tensors.get(id_)
        if tensor is not None:
            poison_existing(engine, session, tensor, error)
        elif isinstance(id_, int) and id_ > session.newest and may_name(session):
            enter(session, id_, poisoned(engine, error, meta, home))
    if not isinstance(error, CancelledError):
        engine.tell(session, error)


def poison_existing(engine: Engine, session: VmSession, tensor: Tensor, error: TensordError) -> None:
    """A rejected write poisons, as a failed one does; but a cancelled one leaves alone what others hold."""
    if tensor.holders > 1 and isinstance(error, CancelledError):
        return
    poison_copy(engine, session, engine.residency.target(tensor, tensor.home, False, session, 0).copy, error)
    let_off(tensor.storage)


def poison_copy(engine: Engine, session: VmSession, copy: Copy, error: TensordError) -> None:
    """Poison a copy at this place in program order."""
    instruction = engine.new_instruction(session, Opcode.CALL, error.op or "call", copy.device, 0)
    instruction.writes = (copy,)
    instruction.error = error
    engine.admit(instruction)


def poisoned(engine: Engine, error: TensordError, meta: Meta | None, home: DeviceState | None) -> Tensor:
    """A tensor that never had a value."""
    device = home or next(iter(engine.devices.values()))
    tensor, copy = engine.residency.new_tensor(meta, device)
    copy.poison = error
    device.give_up(copy)
    tensor.meta_error = error if meta is None else None
    return tensor
