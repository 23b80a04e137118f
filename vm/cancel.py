"""Cancellation of a session, and its end.

Pending instructions become cancellation errors at once; running ones finish. What writes a tensor that a name or
another session holds is not cancelled, nor is what it needs: nobody else notices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..interpreter.errors import CancelledError
from ..interpreter.opcodes import Opcode
from . import names
from .instruction import Status
from .record import Reason

if TYPE_CHECKING:
    from .engine import Engine
    from .session import VmSession


def cancel(engine: Engine, session: VmSession, why: str = "the session was cancelled") -> None:
    """Cancel what the session has pending, and refuse what it sends until `restart`."""
    session.cancelled = CancelledError(why)
    protected = needed_by_others(session)
    victims = [
        instruction
        for instruction in list(session.live.values())
        if instruction.id not in protected
        and instruction.opcode is not Opcode.RELEASE
        and instruction.label != "sync"
        and instruction.status in (Status.WAITING, Status.READY)
        and instruction.error is None
    ]
    for instruction in victims:
        error = CancelledError(why, op=instruction.label, instruction=instruction.id)
        error.location = session.where(instruction.location)
        engine.doom([instruction], error)


def needed_by_others(session: VmSession) -> set[int]:
    """Instructions that write what a name or another session holds, and all that they need."""
    own: dict[int, int] = {}  # handles of this session, per tensor
    for tensor in session.tensors.values():
        own[id(tensor)] = own.get(id(tensor), 0) + 1
    protected: set[int] = set()
    for instruction in reversed(session.live.values()):
        if any(b.tensor.holders > own.get(id(b.tensor), 0) for b in instruction.outputs):
            protected.add(instruction.id)
        if instruction.id in protected:
            protected.update(source for source, reason, _, _ in instruction.edges if reason is Reason.RAW)
    return protected


def restart(session: VmSession) -> None:
    """The session takes instructions again."""
    session.cancelled = None


def close(engine: Engine, session: VmSession) -> None:
    """End a session: cancel, release every handle. What others hold stays."""
    cancel(engine, session, "the session was closed")
    tensors, session.tensors = session.tensors, {}
    for tensor in tensors.values():
        names.release(engine, session, tensor)
    session.chains.clear()
    engine.sessions.pop(session.id, None)
