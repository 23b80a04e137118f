"""Cancellation of a session, and its end.

Pending instructions become cancellation errors at once; running ones finish. An instruction that a stream has queued
but not started is revoked: the stream's thread checks for that right before the kernel runs. Other sessions notice
nothing: an instruction is kept if it writes a value that a name or another session holds, or if such an instruction, or
one of another session, needs its result or the shape of its result.
"""

from __future__ import annotations

from collections.abc import Collection

from ...interpreter.errors import CancelledError
from ..model.directory import Directory
from ..model.instruction import UNDER_WAY, Instruction
from ..model.reason import Reason
from ..model.session import VmSession
from ..model.tensor import Copy, Tensor
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .names import Names


class Cancellation:
    """Cancels sessions, restarts them, ends them."""

    def __init__(self, scheduler: Scheduler, residency: Residency, names: Names, directory: Directory) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.names = names
        self.directory = directory

    def cancel(self, session: VmSession, why: str = "the session was cancelled") -> None:
        """Cancel the session's pending instructions, and refuse later ones until a `restart` of this generation."""
        session.generation += 1
        session.cancelled = CancelledError(why)
        protected = self._needed_by_others(session)
        for instruction in list(session.live.values()):
            if instruction.error is not None or instruction.id in protected or not instruction.traits.cancellable:
                continue
            error = CancelledError(why, op=instruction.label, instruction=instruction.id)
            error.location = session.where(instruction.location)
            if instruction.status in UNDER_WAY:
                self.scheduler.revoke(instruction, error)
            else:
                self.scheduler.doom([instruction], error)

    def restart(self, session: VmSession) -> None:
        """Let the session take instructions again. Cancelled side effects do not stop later ones of their chain."""
        if session.cancelled is None:
            return
        session.cancelled = None
        for id_, chain in session.chains.items():
            session.chains[id_] = self.residency.new_copy(chain.device, 0, 1)

    def close(self, session: VmSession) -> None:
        """End a session: cancel, release every handle. Tensors that names or other sessions hold stay."""
        self.cancel(session, "the session was closed")
        self.residency.abandon_exports(session)
        tensors, session.tensors = session.tensors, {}
        for tensor in tensors.values():
            self.names.release(session, tensor)
        session.chains.clear()
        session.moves.clear()
        self.directory.sessions.pop(session.id, None)
        session.closed = True
        for device in self.scheduler.devices.values():
            device.users.pop(session, None)

    def _needed_by_others(self, session: VmSession) -> set[int]:
        """Ids of other sessions' instructions, those whose results names or other sessions hold, and all sources.

        Backwards, since an instruction comes before those that need it.
        """
        scheduler = self.scheduler
        held = self._copies_of_others(session)
        protected: set[int] = set()
        for instruction in reversed(scheduler.live.values()):
            foreign = instruction.session is not session and instruction.session is not scheduler.nobody
            if foreign or not held.isdisjoint(instruction.writes) or is_awaited(instruction, protected):
                protected.add(instruction.id)
            if instruction.id in protected:
                protected.update(source for source, reason, _, _ in instruction.edges if reason is Reason.RAW)
        return protected

    def _copies_of_others(self, session: VmSession) -> set[Copy]:
        """The current copies of the tensors that names and other sessions hold."""
        return {copy for tensor in self.directory.tensors(but=session) for copy in tensor.storage.current()}


def is_awaited(instruction: Instruction, waiting: Collection[int]) -> bool:
    """Does an instruction with one of these ids wait for a meta that depends on the instruction's results?

    Such a wait is no edge: the instruction that waits may overwrite the results without reading them.
    """
    if instruction.plan is None or instruction.plan.in_place:
        return False
    stack = [binding.tensor for binding in instruction.outputs]
    while stack:
        for dependent in stack.pop().dependents or ():
            if isinstance(dependent, Tensor):  # the same value with another home
                stack.append(dependent)
            elif dependent.id in waiting:
                return True
    return False
