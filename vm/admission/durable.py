"""Admission of CHECKPOINT and RESTORE messages: permissions, requests to `durability`, and the answers.

Groups of messages are also watched here, so that their changes to durable names reach the disk together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.wire.file_messages import Checkpoint, Restore
from ...interpreter.wire.message_kinds import MessageKind
from ...streams.stream import StreamKind
from ..client_files import real_path
from ..durability.groups import Member
from ..durability.in_store import RestoringInStore
from ..durability.restoring import FoundGeneration, look
from ..durability.taking import NO_DURABLE_NAMES, CheckpointRequest, Checkpoints
from ..model.instruction import Instruction, InstructionEnd
from ..model.linked import SessionProgram
from ..model.session import VmSession
from ..model.tensor import Storage, VmTensor
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .names import NameHandlers
from .rejection import Rejection

CALL, LINK, RUN = MessageKind.CALL, MessageKind.LINK, MessageKind.RUN
PUBLISH, UNPUBLISH = MessageKind.PUBLISH, MessageKind.UNPUBLISH


class DurableState(NamedTuple):
    """The durable state that a group of messages may change.

    `before`: lasting tensors with their storages and versions before the group; `bound`: the names that the group
    publishes; `unbound`: the durable names that it removes or replaces.
    """

    before: dict[VmTensor, tuple[Storage, int]]
    bound: set[str]
    unbound: set[str]


class Durable:
    """The handlers of CHECKPOINT and RESTORE messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, names: NameHandlers, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection
        self.names = names
        self.checkpoints = Checkpoints(scheduler, residency, names.directory)

    def check_durable(self) -> None:
        """ProtocolError if this machine has no directory for durable names."""
        if self.checkpoints.durable is None:
            raise ProtocolError(NO_DURABLE_NAMES)

    def checkpoint(self, session: VmSession, message: Checkpoint) -> None:
        """Take a checkpoint of published names; without a directory, of the durable names."""
        directory, names, keep, request, location = message
        on_report = partial(session.reply, request)
        try:
            if not directory:
                self.checkpoints.keep_durable(session, on_report, location)
                return
            refuse_strangers(session, directory)
            self.checkpoints.take(
                CheckpointRequest(session, location, on_report), directory, self.names.bound_names(names), keep
            )
        except TensordError as error:
            self.rejection.deny(session, error, request, location, "checkpoint")

    def watch(self, session: VmSession, messages: Sequence[Any]) -> DurableState | None:
        """Note the durable state that a group may change, before the group is admitted.

        None if no name is durable, and the group publishes none. `messages`: well-formed, not yet decoded.
        """
        directory = self.names.directory
        if self.checkpoints.durable is None:
            return None
        published = [fields[0] for kind, *fields in messages if kind == PUBLISH]
        bound = {name for names in published for name in names}
        if not (directory.durable or bound):
            return None
        given = [name for kind, *fields in messages if kind == UNPUBLISH for name in fields[0]]
        dropped = (
            *directory.families.named(given, directory.names)[0],
            *[name for names in (bound, *published) for name in directory.families.replaced(names, directory.names)],
        )
        unbound = {name for name in dropped if name in directory.durable}
        written = (session.tensors.get(id_) for kind, *fields in messages for id_ in ids_written(session, kind, fields))
        tensors = {tensor for tensor in written if tensor is not None and tensor in directory.lasting}
        return DurableState({tensor: (tensor.storage, tensor.storage.version) for tensor in tensors}, bound, unbound)

    def note_changed(self, watched: DurableState) -> None:
        """Join the durable tensors and names that an admitted group has changed, so that they are written together."""
        changed: set[Member] = {
            tensor
            for tensor, (storage, version) in watched.before.items()
            if tensor.storage is not storage or storage.version != version
        }
        changed |= {name for name in watched.unbound if name not in self.names.directory.durable}
        self.note_bound(watched.bound, changed)

    def note_bound(self, bound: Iterable[str], changed: Iterable[Member] = ()) -> None:
        """Join names that were published together, and other changes of the same group."""
        directory, checkpoints = self.names.directory, self.checkpoints
        members = {*changed, *(name for name in bound if name in directory.durable)}
        if len(members) > 1 and checkpoints.durable is not None:
            groups, written = checkpoints.groups, checkpoints.targets.of(checkpoints.durable).written
            groups.prune(groups.join(members), directory.durable, directory.lasting, written)

    def restore(self, session: VmSession, message: Restore) -> None:
        """Publish the contents of a generation, in pieces, so that other sessions are served meanwhile."""
        directory, number, names, deep, request = message
        try:
            refuse_strangers(session, directory)
            path = real_path(directory)
            if self.residency.store is None:
                raise ProtocolError("this machine has no store, so it restores nothing")
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "restore")
            return
        end = RestoreRequest(self, session, names, request)
        self.on_disk(session, partial(look, path, number, frozenset(names), deep=deep), end)

    def on_disk(self, session: VmSession, kernel: Callable[[], Any], end: InstructionEnd) -> None:
        """Run `kernel` on the store's thread for files."""
        store = self.residency.store
        if store is None:
            raise AssertionError("checked by the caller")
        device = next(iter(self.scheduler.devices.values()))
        instruction = self.scheduler.new_instruction(self.scheduler.system_session, Opcode.ACCESS, "restore", device, 0)
        instruction.author = session
        instruction.stream = store.backend.copy_stream(StreamKind.SAVE)
        instruction.kernel = kernel
        instruction.on_end = end
        self.scheduler.admit(instruction)

    def restoring(self, found: FoundGeneration, names: Collection[str] = ()) -> RestoringInStore:
        """The object that publishes the names found in a generation, or only `names` if there are any."""
        return RestoringInStore(self.checkpoints, found, frozenset(names))

    def restore_at_once(self, found: FoundGeneration) -> dict[str, Any]:
        """Publish the names found in a generation at the machine's start, without a session, and return the report."""
        restoring = self.restoring(found)
        while restoring.go_on():
            pass
        return self.publish(self.scheduler.system_session, restoring)

    def publish(self, session: VmSession, restoring: RestoringInStore) -> dict[str, Any]:
        """Bind all restored names, replacing existing ones; return the report."""
        given = restoring.given
        self.names.publish(session, tuple(given), tuple(given.values()))
        return restoring.published()


class RestoreRequest(InstructionEnd):
    """A session's request to restore, which does one more piece each time its instruction has retired."""

    def __init__(self, durable: Durable, session: VmSession, names: Collection[str], request: int) -> None:
        self.durable = durable
        self.session = session
        self.names = names
        self.request = request
        self.restoring: RestoringInStore | None = None

    def retired(self, done: Instruction) -> None:
        """Restore one piece, then queue the next one behind the work that has arrived meanwhile."""
        results, done.results = done.results, None
        if done.error is not None:
            self.fail(done.error)
            return
        try:
            if self.restoring is None:
                self.restoring = self.durable.restoring(results, self.names)
            if self.restoring.go_on():
                self.durable.on_disk(self.session, nothing, self)
            else:
                self.session.reply(self.request, self.durable.publish(self.session, self.restoring), None)
        except TensordError as error:
            self.fail(error)

    def fail(self, error: TensordError) -> None:
        """Answer with the error, and publish nothing."""
        if self.restoring is not None:
            self.restoring.let_go()
        error.is_reported = True
        self.session.reply(self.request, None, error)


def nothing() -> None:
    """The kernel of an instruction that only lets other work run first."""


def ids_written(session: VmSession, kind: int, fields: Sequence[Any]) -> Sequence[int]:
    """The ids of tensors that a message may write: outputs, operands of a run, captured tensors of its routine."""
    if kind == CALL:
        outputs: Sequence[int] = fields[2]
        return outputs
    if kind == LINK:
        captured: Sequence[int] = fields[3]
        return captured
    if kind == RUN:
        routine = session.routines.get(fields[0])
        return (*fields[1], *(routine.captured if isinstance(routine, SessionProgram) else ()))
    return ()


def refuse_strangers(session: VmSession, directory: str) -> None:
    """ProtocolError for a session that may not have the machine write and read files in this directory."""
    if session.files.may_store or (session.files.stores and is_below(real_path(directory), session.files.stores)):
        return
    allowed = ", ".join(map(str, session.files.stores)) or "none"
    raise ProtocolError(
        "checkpoints in any directory are for clients of the daemon's own user, over ipc; other clients may use the "
        f"directories in the daemon's configuration (checkpoints: {allowed})"
    )


def is_below(path: Path, directories: Iterable[Path]) -> bool:
    """Whether a resolved path is one of these directories, or lies below one."""
    return any(path.is_relative_to(one) for one in directories)
