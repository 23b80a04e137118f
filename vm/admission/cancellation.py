"""Cancelling a session's instructions, and closing a session.

A waiting instruction is doomed at once. An instruction that a stream has queued but not started is revoked: the
stream's thread checks for revocation right before it runs the kernel. A running kernel cannot be stopped, so it ends in
the background: waiting clients get the error now, the outputs are poisoned with it, and the memory is released when the
kernel has ended. A loop is stopped between two rounds.

Other sessions are not affected. An instruction is protected if it writes a value that a name or another session holds,
or if a protected instruction, or one of another session, needs its result or the shape of its result. There is one
exception: closing a session also cancels its instructions that wait for another node's half of a transfer or for the
session's client, since that wait might never end.

The cost is bounded by the session's own size. If a session has never published or looked up a name, no other session
holds its values, so only its live instructions are visited. For any other session, its own tensors and the live
instructions of all sessions are visited once; the tensors of other sessions are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ...interpreter.errors import CancelledError, node_lost
from ...interpreter.opcodes import Opcode
from ...streams.stream import StreamKind
from ..model.directory import Directory, Leaving
from ..model.instruction import Instruction
from ..model.lifecycle import UNDER_WAY
from ..model.reason import Reason
from ..model.session import VmSession
from ..model.tensor import Binding, Copy, Storage, VmTensor
from ..placement.residency import Residency, end_moves
from ..scheduler.scheduler import Scheduler
from ..tracing.link_labels import launch_nodes, read_label

CANCELLED = "the session was cancelled"
CLOSED = "the session was closed"
VERBS_OF_THE_PEER = {
    Opcode.SEND: "has taken the value",
    Opcode.LAUNCH: "took part",
}  # how an error names the missing half
AWAITING_STREAMS = frozenset({StreamKind.LINK, StreamKind.CLIENT})  # streams that wait for nodes or clients
PROGRAM_CLOSED = "the session was closed, and with it the program whose function was to compute this"
HANDLES_PER_STEP = 256  # handles of closed sessions that are released in one step


class Cancellation:
    """Cancels sessions, restarts them, ends them."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.directory = directory
        self.piece = HANDLES_PER_STEP

    def cancel(self, session: VmSession, why: str = CANCELLED) -> None:
        """Cancel the session's live instructions, and refuse later ones until a `restart` with this generation."""
        self.begin(session, why)
        self.finish(session, why)

    def begin(self, session: VmSession, why: str = CANCELLED) -> None:
        """Refuse the session's later messages, and keep its side effects from running; `finish` does the rest.

        A callback or a signal handler on the driving thread calls only this half: the engine may be in the middle of a
        step.
        """
        session.generation += 1
        session.cancelled = CancelledError(why)
        for instruction in list(session.live.values()):
            if instruction.on_control and instruction.kernel is not None and instruction.traits.cancellable:
                instruction.revoke(cancellation_of(instruction, why))

    def finish(self, session: VmSession, why: str = CANCELLED) -> None:
        """Cancel the session's live instructions, except those that other sessions need."""
        victims = [i for i in session.live.values() if i.error is None and i.traits.cancellable]
        protected = self._needed_by_others(session) if victims and session.shares else ()
        for instruction in victims:
            spared = instruction.id in protected and not (why == CLOSED and awaits_others(instruction))
            if instruction.error is not None or instruction.retired or spared:
                continue  # protected, ended, or already doomed by an earlier instruction of this loop
            error = cancellation_of(instruction, why)
            if instruction.status in UNDER_WAY:
                self.scheduler.revoke(instruction, error)
            else:
                self.scheduler.doom([instruction], error)

    def withdraw(self, session: VmSession, node: object) -> int:
        """Fail the session's instructions that wait for a node's half of a transfer or launch, and return their number.

        A value that the node has offered still arrives, unless the value is a chunk of a collective, whose other chunks
        may not arrive.
        """
        live = session.live.values()
        victims = [one for one in live if one.error is None and node in awaited_nodes(one)]
        for instruction in victims:
            if instruction.error is None and not instruction.retired:
                does = VERBS_OF_THE_PEER.get(instruction.opcode, "has sent the value")
                error = instruction.describe(node_lost(str(node), f"the session there has ended before it {does}"))
                if instruction.status in UNDER_WAY:
                    self.scheduler.revoke(instruction, error)
                else:
                    self.scheduler.doom([instruction], error)
        return len(victims)

    def restart(self, session: VmSession) -> None:
        """Accept the session's instructions again; its chains go on as if their cancelled effects had not been."""
        if session.cancelled is None:
            return
        session.cancelled = None
        for id_, chain in session.chains.items():
            session.chains[id_] = self.residency.new_copy(chain.device, 0, 1)

    def close(self, session: VmSession) -> None:
        """Close a session: cancel its instructions, and release its handles. Tensors with other holders stay.

        A release takes 1 to 5 us, so a large session would delay the others; `release_some` continues in small pieces.
        Until the last handle is released, no instruction fails for lack of memory (`memory.reservation`), and no value
        is evicted in place of one that is about to be released (`Releasing.catch_up`).
        """
        self.cancel(session, CLOSED)
        if session.unfolding is not None:
            session.unfolding.stop(CancelledError(CLOSED))
        self.residency.releasing.abandon_exports(session)
        end_moves(session)
        tensors, session.tensors = session.tensors, {}
        self.directory.leaving.appendleft(Leaving(session, tensors))  # the table itself: copying it takes time
        self.release_some()
        session.chains.clear()
        session.refused_chains.clear()
        session.files.close_all()
        if session.unfolding is not None:
            self.scheduler.note_run(session, session.unfolding.run)
            session.unfolding = None
        self.scheduler.ring.forget(session)
        session.routines.clear()  # with their graphs, and the callers that wait for runs
        self.directory.sessions.pop(session.id, None)
        session.closed = True
        for device in self.scheduler.tiers.values():
            device.users.pop(session, None)
            if tensors:  # rankings would keep the released objects alive, and then free all of them in one step
                device.eviction.rankings.clear()

    def release_some(self) -> None:
        """Release some handles of closed sessions."""
        self.residency.releasing.release_some(self.piece)

    def _needed_by_others(self, session: VmSession) -> set[int]:
        """The ids of the live instructions that must not be cancelled with the session.

        These are the instructions of other sessions and of checkpoints, the instructions whose results a name or
        another session holds, and the sources of all these. The walk is backwards, since a source comes first.
        """
        scheduler = self.scheduler
        own = held_alone(session, written_now(scheduler.live.values()))
        protected: set[int] = set()
        for instruction in reversed(scheduler.live.values()):
            of_the_system = instruction.session is scheduler.system_session and instruction.opcode is not Opcode.ACCESS
            foreign = instruction.session is not session and not of_the_system
            if foreign or writes_beyond(instruction, own) or is_awaited(instruction, protected):
                protected.add(instruction.id)
            if instruction.id in protected:
                protected.update(source for source, reason, _, _ in instruction.edges if reason is Reason.RAW)
        return protected


def awaits_others(instruction: Instruction) -> bool:
    """Whether the instruction waits for another node or its client, either of which may never act."""
    stream = instruction.stream
    waits = stream is not None and stream.kind in AWAITING_STREAMS and not instruction.outputs
    return waits or bool(launched_with(instruction))


def launched_with(instruction: Instruction) -> Sequence[str]:
    """The other nodes that take part in a launch."""
    return launch_nodes(instruction.label) if instruction.opcode is Opcode.LAUNCH else ()


def awaited_nodes(instruction: Instruction) -> Sequence[str]:
    """The nodes whose half of a transfer, or part in a launch, the instruction waits for.

    A receiving instruction with outputs waits for no node: the value was offered.
    """
    if instruction.opcode is Opcode.LAUNCH or not awaits_others(instruction):
        return launched_with(instruction)
    label = read_label(instruction.label)
    return () if label is None else (label.node,)


def cancellation_of(instruction: Instruction, why: str) -> CancelledError:
    """The error of a cancelled instruction."""
    location = instruction.author.source.where(instruction.location)
    if why == CLOSED and instruction.opcode is Opcode.HOST_CALL and awaits_others(instruction):
        why = PROGRAM_CLOSED
    return CancelledError(why, op=instruction.label, instruction=instruction.id, location=location)


def written_now(live: Iterable[Instruction]) -> set[Storage] | None:
    """The storages whose current copies these instructions write; None if they cannot be determined.

    They cannot if a tensor got a new storage since: its copy stays in the old storage, which others may hold.
    """
    written: set[Storage] = set()
    for instruction in live:
        for binding in written_by(instruction):
            if binding.copy.current:
                storage = binding.tensor.storage
                if binding.copy not in storage.current():
                    return None
                written.add(storage)
    return written


def held_alone(session: VmSession, among: Collection[Storage] | None) -> set[Copy]:
    """The current copies of the values that only this session holds, in the given storages, or in all for None."""
    own = session.tensors.values()
    handles = Counter(own if among is None else [tensor for tensor in own if tensor.storage in among])
    tensors = Counter(tensor.storage for tensor in handles)
    shared = {tensor.storage for tensor, count in handles.items() if tensor.holders > count}
    alone = (storage for storage, count in tensors.items() if storage.sharers == count and storage not in shared)
    return {copy for storage in alone for copy in storage.current()}


def writes_beyond(instruction: Instruction, own: Collection[Copy]) -> bool:
    """Whether the instruction writes a current copy outside `own`, which therefore has another holder."""
    return any(binding.copy.current and binding.copy not in own for binding in written_by(instruction))


def written_by(instruction: Instruction) -> Sequence[Binding]:
    """The bindings of the values that the instruction makes or updates."""
    if not (instruction.traits.exchanges and instruction.inputs):
        return instruction.outputs
    return [one for one in instruction.inputs if isinstance(one, Binding) and one.copy in instruction.writes]


def is_awaited(instruction: Instruction, waiting: Collection[int]) -> bool:
    """Whether an instruction with one of these ids waits for a meta that depends on the instruction's results.

    Such a wait is not an edge: the waiting instruction may overwrite the results without reading them.
    """
    if instruction.plan is None or instruction.plan.in_place:
        return False
    stack = [binding.tensor for binding in instruction.outputs]
    while stack:
        for dependent in stack.pop().dependents or ():
            if isinstance(dependent, VmTensor):  # the same value with another home
                stack.append(dependent)
            elif dependent.id in waiting:
                return True
    return False
