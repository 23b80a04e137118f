"""Admission of checkpoints and their restoring (`durability`): who may ask for them, and the answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.wire.messages import Checkpoint, Restore
from ...streams.stream import StreamKind
from ..durability.job import check_path
from ..durability.restoring import Found, Restoring, look
from ..durability.taking import NOT_KEPT, Checkpoints
from ..model.instruction import Instruction
from ..model.session import VmSession
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .names import Names
from .rejection import Rejection


class Durable:
    """The handlers of CHECKPOINT and RESTORE messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, names: Names, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection
        self.names = names
        self.checkpoints = Checkpoints(scheduler, residency, names.directory)
        self.checkpoints.publish = names.publish

    def check_durable(self) -> None:
        """ProtocolError if the machine keeps no durable names."""
        if self.checkpoints.durable is None:
            raise ProtocolError(NOT_KEPT)

    def checkpoint(self, session: VmSession, message: Checkpoint) -> None:
        """Take a checkpoint of what is published."""
        directory, names, keep, request, location = message

        def told(report: Any, error: TensordError | None) -> None:
            session.reply(request, report, error)

        try:
            if not directory:
                self.checkpoints.keep_durable(session, told, location)
                return
            refuse_strangers(session)
            names = names or tuple(self.names.directory.names)
            self.checkpoints.take(session, directory, names, keep, location, told)
        except TensordError as error:
            self.rejection.deny(session, error, request, location, "checkpoint")

    def restore(self, session: VmSession, message: Restore) -> None:
        """Publish what a generation holds, once the disk was looked at."""
        directory, number, names, deep, request = message
        store = self.residency.store
        try:
            refuse_strangers(session)
            path = Path(check_path(directory))
            if store is None:
                raise ProtocolError("this machine has no store, so it restores nothing")
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "restore")
            return
        device = next(iter(self.scheduler.devices.values()))
        instruction = self.scheduler.new_instruction(self.scheduler.nobody, Opcode.ACCESS, "restore", device, 0)
        instruction.author = session
        instruction.stream = store.backend.copy_stream(StreamKind.SAVE)
        instruction.kernel = partial(look, path, number, frozenset(names), deep=deep)

        def publish(done: Instruction) -> None:
            found, error = done.results, done.error
            done.results = None
            if error is None:
                try:
                    report = self.publish(session, found, names)
                except TensordError as refused:
                    error = refused
            if error is not None:
                error.heard = True
                session.reply(request, None, error)
            else:
                session.reply(request, report, None)

        instruction.on_retire = publish
        self.scheduler.admit(instruction)

    def publish(self, session: VmSession, found: Found, names: Any) -> dict[str, Any]:
        """Publish what was found; what there is to say of it."""
        restoring = Restoring(self.checkpoints, next(iter(self.scheduler.devices)))
        count = restoring.publish(session, found, frozenset(names))
        durable = self.checkpoints.durable
        if durable is not None and durable.resolve() == found.reader.path.resolve():
            self.names.directory.durable |= dict.fromkeys(restoring.published)
        return {
            "directory": str(found.reader.path),
            "generation": found.generation.number,
            "written": found.generation.written / 1e9,
            "names": count,
            "bytes": found.generation.nbytes,
            "failed": restoring.failed,
            "moved": restoring.moved,
            "notes": {str(number): why for number, why in found.notes.items()},
        }


def refuse_strangers(session: VmSession) -> None:
    """ProtocolError for a session that may not have files of the machine's written and read."""
    if not session.may_store:
        raise ProtocolError("checkpoints are for clients of the daemon's own user, over ipc")
