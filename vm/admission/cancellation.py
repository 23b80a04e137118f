"""Cancellation of a session, and its end.

Pending instructions become cancellation errors at once; running ones finish. What a stream has but has not started
is revoked: the stream's thread looks right before it runs it. What writes a value that a name or another session holds
is not cancelled, nor is what it needs, nor what other sessions' instructions need: nobody else notices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...interpreter.errors import CancelledError
from ...interpreter.opcodes import Opcode
from ..model.instruction import Status
from ..model.reason import Reason
from . import names

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.instruction import Instruction
    from ..model.session import VmSession
    from ..model.tensor import Copy


def cancel(engine: Engine, session: VmSession, why: str = "the session was cancelled") -> None:
    """Cancel what the session has pending, and refuse what it sends until a `restart` that knows of this."""
    session.generation += 1
    session.cancelled = CancelledError(why)
    protected = needed_by_others(engine, session)
    for instruction in list(session.live.values()):
        if instruction.error is not None or instruction.id in protected or is_kept(instruction):
            continue
        error = CancelledError(why, op=instruction.label, instruction=instruction.id)
        error.location = session.where(instruction.location)
        if instruction.status is Status.DISPATCHED:
            engine.revoke(instruction, error)
        else:
            engine.doom([instruction], error)


def is_kept(instruction: Instruction) -> bool:
    """Releases and syncs are never cancelled."""
    return instruction.opcode is Opcode.RELEASE or instruction.label == "sync"


def needed_by_others(engine: Engine, session: VmSession) -> set[int]:
    """Instructions that write what a name or another session holds, other sessions' own, and all that they need."""
    held = copies_of_others(engine, session)
    protected: set[int] = set()
    for instruction in reversed(engine.live.values()):
        foreign = instruction.session is not session and instruction.session is not engine.nobody
        if foreign or not held.isdisjoint(instruction.writes):
            protected.add(instruction.id)
        if instruction.id in protected:
            protected.update(source for source, reason, _, _ in instruction.edges if reason is Reason.RAW)
    return protected


def copies_of_others(engine: Engine, session: VmSession) -> set[Copy]:
    """The current copies of what names and other sessions hold."""
    tensors = list(engine.names.values())
    for other in engine.sessions.values():
        if other is not session:
            tensors.extend(other.tensors.values())
    return {copy for tensor in tensors for copy in tensor.storage.current()}


def restart(engine: Engine, session: VmSession) -> None:
    """The session takes instructions again. Side effects that were cancelled do not stop those that come now."""
    if session.cancelled is None:
        return
    session.cancelled = None
    for id_, chain in session.chains.items():
        session.chains[id_] = engine.residency.new_copy(chain.device, 0, 1)


def close(engine: Engine, session: VmSession) -> None:
    """End a session: cancel, release every handle. What others hold stays."""
    cancel(engine, session, "the session was closed")
    tensors, session.tensors = session.tensors, {}
    for tensor in tensors.values():
        names.release(engine, session, tensor)
    session.chains.clear()
    engine.sessions.pop(session.id, None)
    session.closed = True
    for device in engine.devices.values():
        device.users.pop(session, None)
