"""Admission of checkpoints and their restoring (`durability`): who may ask for them, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Collection
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
        """Publish what a generation holds, once the disk was looked at, piece by piece: others are served meanwhile."""
        directory, number, names, deep, request = message
        try:
            refuse_strangers(session)
            path = Path(check_path(directory))
            if self.residency.store is None:
                raise ProtocolError("this machine has no store, so it restores nothing")
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "restore")
            return
        restoring: Restoring | None = None

        def told(error: TensordError) -> None:
            error.heard = True
            session.reply(request, None, error)

        def go_on(done: Instruction) -> None:
            """One piece, and behind what came meanwhile the next one."""
            nonlocal restoring
            found, done.results = done.results, None
            try:
                if done.error is not None:
                    raise done.error
                if restoring is None:
                    restoring = self.restoring(found, names)
                if restoring.go_on():
                    self.on_disk(session, nothing, go_on)
                else:
                    session.reply(request, restoring.publish(session), None)
            except TensordError as error:
                told(error)

        self.on_disk(session, partial(look, path, number, frozenset(names), deep=deep), go_on)

    def on_disk(self, session: VmSession, kernel: Callable[[], Any], then: Callable[[Instruction], None]) -> None:
        """Have the store's thread for files do something, behind what it does now; `then` is told on this thread."""
        store = self.residency.store
        if store is None:
            raise AssertionError("checked by the caller")
        device = next(iter(self.scheduler.devices.values()))
        instruction = self.scheduler.new_instruction(self.scheduler.nobody, Opcode.ACCESS, "restore", device, 0)
        instruction.author = session
        instruction.stream = store.backend.copy_stream(StreamKind.SAVE)
        instruction.kernel = kernel
        instruction.on_retire = then
        self.scheduler.admit(instruction)

    def restoring(self, found: Found, names: Collection[str] = ()) -> Restoring:
        """What is about to publish what was found, or these names of it."""
        return Restoring(self.checkpoints, next(iter(self.scheduler.devices)), found, frozenset(names))

    def restore_at_once(self, found: Found) -> dict[str, Any]:
        """Publish what was found, for nobody in particular, before there is anybody to serve; what there is to say."""
        restoring = self.restoring(found)
        while restoring.go_on():
            pass
        return restoring.publish(self.scheduler.nobody)


def nothing() -> None:
    """The kernel of an instruction that only gives others a turn."""


def refuse_strangers(session: VmSession) -> None:
    """ProtocolError for a session that may not have files of the machine's written and read."""
    if not session.may_store:
        raise ProtocolError("checkpoints are for clients of the daemon's own user, over ipc")
