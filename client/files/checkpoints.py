"""Checkpoints that a session asks the machine for: taking, restoring, and waiting for durable names."""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import FileError, MetadataError, MetadataTypeError
from ...interpreter.files.tensor_file import printable
from ...interpreter.wire.file_messages import Checkpoint as CheckpointMessage
from ...interpreter.wire.file_messages import Restore
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import refuse_captured
from ..outbox.outbox import Outbox
from ..requests.answers import seconds
from ..sharing.names import listed_names
from ..transport.replies import Reply
from ..waiting.on_loop import on_loop
from ..waiting.steps import Steps, Within
from .writes import UNFINISHED, FileWriting, UnfinishedWrites


class Checkpointing(FileWriting):
    """A checkpoint that is being written to `directory`."""

    def __init__(self, directory: Path, outbox: Outbox, reply: Reply) -> None:
        super().__init__(outbox, reply)
        self.directory = directory

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the checkpoint is on the disk; returns a report (see `Session.checkpoint`), or raises its error.

        TimeoutError after `timeout` seconds; the checkpoint goes on.
        """
        limit = seconds("wait", timeout)
        try:
            report: dict[str, Any] = self._outbox.await_reply(self._reply, limit)
        finally:
            self._waited = self._reply.done
        return report

    def __await__(self) -> Generator[Any, Any, dict[str, Any]]:
        """`report = await checkpoint`, as `wait`, while the loop goes on."""
        return on_loop(self._outbox, self._awaited()).__await__()

    def _awaited(self) -> Steps[dict[str, Any]]:
        try:
            report: dict[str, Any] = yield self._reply
        finally:
            self._waited = self._reply.done
        return report

    @property
    def _failure(self) -> str:
        return f"no checkpoint was written to {printable(str(self.directory))}"

    def __repr__(self) -> str:
        state = "writing" if not self.done else "written" if self.error is None else "failed"
        return f"<checkpoint {state} {printable(str(self.directory))}>"


def checkpoint(
    core: Core, writes: UnfinishedWrites, directory: str | os.PathLike[str], names: Any, keep: int
) -> Checkpointing:
    """Make the machine take a checkpoint; see `Session.checkpoint`."""
    outbox = core.outbox
    refuse_captured(outbox, "no checkpoint can be taken")
    where, listed = directory_of(directory, "checkpoint"), chosen_names(names, "checkpoint")
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
        raise located(MetadataError(f"checkpoint: keep must be a number of generations, 0 for all, not {keep!r}"))
    with outbox.lock, SHIELD:
        reply = outbox.ask(partial(CheckpointMessage, str(where), listed, keep))
        checkpointing = Checkpointing(where, outbox, reply)
        writes.add(checkpointing, core)
        reply.when_done(partial(UNFINISHED.pop, checkpointing, None))
    return checkpointing


def keeping_durable(outbox: Outbox, names: tuple[str, ...] = (), timeout: float | None = None) -> Steps[None]:
    """Wait until the durable names are on the disk. FileError if one of these names (none: any name) is not;
    TimeoutError."""
    reply = outbox.ask(partial(CheckpointMessage, "", (), 0))
    failed = (yield Within(reply, timeout))["failed"]
    missing = [name for name in (names or failed) if name in failed]
    if missing:
        why = failed[missing[0]]
        raise located(
            FileError(f"the latest value of {missing[0]!r} is not on the disk: {why}; write it anew, or unpublish it")
        )


def restoring(
    core: Core, directory: str | os.PathLike[str], names: Any, generation: int, *, deep: bool
) -> Steps[dict[str, Any]]:
    """Make the machine publish the contents of a checkpoint; see `Session.restore`."""
    outbox = core.outbox
    where, listed = directory_of(directory, "restore"), chosen_names(names, "restore")
    if isinstance(generation, bool) or not isinstance(generation, int) or generation < 0:
        raise located(MetadataError(f"restore: a generation must be a number, 0 for the last one, not {generation!r}"))
    reply = outbox.ask(lambda request, _: Restore(str(where), generation, listed, deep, request), located=False)
    report: dict[str, Any] = yield reply
    return report


def chosen_names(names: Any, what: str) -> tuple[str, ...]:
    """The names as messages carry them, () for all. An empty list is refused, since it would mean all."""
    if names is None:
        return ()
    listed = listed_names(names)
    if not listed:
        raise located(MetadataError(f"{what}: the list of names is empty; leave it out for all names"))
    return listed


def directory_of(directory: Any, what: str) -> Path:
    """The absolute path of a directory, as this process sees it."""
    try:
        return Path(directory).absolute()
    except TypeError as error:
        raise located(MetadataTypeError(f"{what}: {error}")) from None
