"""A session's unfinished writes: files and checkpoints.

No write is lost silently: a session that is closed first waits for its writes, and so does the end of the program. If
the program has not waited for a failed write, the failure is logged at that time, or when the next write begins.

One thread names the files of all sessions of the process (`Commits`), while there are files to name.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ...interpreter.errors import TensordError
from ..outbox.outbox import Outbox
from ..process.forks import FORKS
from ..requests.printing import EXIT
from ..transport.replies import Reply

PATIENCE: Final = 5.0  # seconds after which the end of a session logs the writes for which it waits
LOG: Final = logging.getLogger("tensord.client")
UNFINISHED: Final[dict[object, object]] = {}  # unfinished writes, with their sessions
FORKS.child_resets.append(UNFINISHED.clear)  # in a forked child they belong to the parent


class FileWriting:
    """A file or a checkpoint that the machine writes for a session."""

    def __init__(self, outbox: Outbox, reply: Reply) -> None:
        self._outbox = outbox
        self._reply = reply
        self._waited = False  # the program has waited for it

    @property
    def done(self) -> bool:
        """Return whether the write is on the disk, or has failed."""
        return self._reply.done

    @property
    def error(self) -> TensordError | None:
        """The error, if there is one."""
        return self._reply.error

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the write is on the disk; raises its error. TimeoutError after `timeout` seconds."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Keep the previous contents, unless everything is written."""

    def tell_failure(self) -> None:
        """Log a failure unless the program has waited for the write."""
        if self.error is not None and not self._waited:
            LOG.warning("%s: %s", self._failure, self.error)

    @property
    def _failure(self) -> str:
        """The failure, as text for the log."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait at the end of the session, and log a failure unless the program has waited for it."""
        waited = self._waited
        with suppress(TensordError):  # `tell_failure` logs it
            self._await()
        self._waited = waited
        self.tell_failure()

    def _await(self) -> None:
        try:
            self.wait(PATIENCE)
        except TimeoutError:
            LOG.warning("still waiting for %r; Ctrl-C gives it up", self)
            self.wait()


class UnfinishedWrites:
    """A session's unfinished writes. Finished ones stay until the next one is added."""

    def __init__(self) -> None:
        self._open: dict[FileWriting, None] = {}

    def add(self, writing: FileWriting, core: object) -> None:
        """Add a file or a checkpoint, which keeps the session alive. Logs failures of writes that have ended."""
        for ended in [one for one in list(self._open) if one.done]:
            ended.tell_failure()
            self._open.pop(ended, None)
        self._open[writing] = None
        UNFINISHED[writing] = (core, self)
        EXIT.add(self)

    def finish(self, deadline: float | None = None) -> None:  # noqa: ARG002 - what is saved is waited for
        """Wait for all writes, and log failures. An interrupt gives up unfinished writes."""
        for writing in list(self._open):
            try:
                writing.finish()
            except BaseException:  # from a signal handler, such as Ctrl-C
                self.give_up()
                raise
            self._open.pop(writing, None)

    def give_up(self) -> None:
        """Stop waiting, and log unfinished writes."""
        for writing in [one for one in self._open if not one.done]:
            writing.give_up()
            UNFINISHED.pop(writing, None)
            LOG.warning("%r was interrupted, and is given up", writing)
        self._open.clear()


SaveTarget: TypeAlias = tuple[int, int, str]  # device and inode of a directory, and a name in it


class Commits:
    """Gives files their names, one after the other, in the order in which their values were complete.

    A save does not replace the file of a later save. `_open` has, for each target and in program order, the saves after
    the last one that got its name: only those may still get the name.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may save, too
        self._waiting: deque[Callable[[], None]] = deque()
        self._open: dict[SaveTarget, list[object]] = {}
        self._running = False

    def expect(self, target: SaveTarget, saving: object) -> None:
        """Add a save, after all earlier ones."""
        with self._lock:
            self._open.setdefault(target, []).append(saving)

    def is_overtaken(self, target: SaveTarget, saving: object) -> bool:
        """Return whether a later save to that target has succeeded."""
        with self._lock:
            return saving not in self._open.get(target, ())

    def overtake(self, target: SaveTarget, saving: object) -> None:
        """Note that a file has its name, which earlier saves must not replace."""
        with self._lock:
            there = self._open[target]
            del there[: there.index(saving)]

    def forget(self, target: SaveTarget, saving: object) -> None:
        """Note that a save has ended, successfully or not."""
        with self._lock:
            there = self._open.get(target, [])
            if saving in there:
                there.remove(saving)
            if not there:
                self._open.pop(target, None)

    def add(self, commit: Callable[[], None]) -> None:
        """Run a commit on a thread that lives while there are commits."""
        with self._lock:
            self._waiting.append(commit)
            if self._running:
                return
            self._running = True
        try:
            threading.Thread(target=self._work, name="tensord save").start()
        except RuntimeError:  # the process ends
            self._work()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                commit = self._waiting.popleft()
            commit()

    def forked(self) -> None:
        """Forget everything in a forked child: the files are the parent's."""
        self.__init__()  # type: ignore[misc]


COMMITS = Commits()
FORKS.child_resets.append(COMMITS.forked)
