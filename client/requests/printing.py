"""Prints values in program order: side effects that write a line.

If a tensor has failed, its error is written in its place, so that one failure does not suppress later lines. The texts
of other objects are made at the call, as of that point in program order.

No line is lost silently. A session that is closed first waits for its open prints, at most `PATIENCE` seconds, and logs
the number that it gives up. The interpreter's exit does the same for all sessions that are still open, with one
deadline; a print keeps its session alive until it is written. Cancelled prints are dropped, as requested. Meanwhile
another thread may be inside `atomic()` for any time: prints that were sent before are waited for, and unsent ones are
given up at the deadline.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol
from weakref import WeakSet

from ...interpreter.concurrency.process_end import AT_END
from ...interpreter.errors import CancelledError, TensordError
from ..outbox.callbacks import refusing
from ..outbox.outbox import Outbox
from ..process.forks import FORKS
from ..transport.replies import Reply
from .effects import SessionEffects

PATIENCE = 5.0  # seconds that the end of a session waits for its prints
PAUSE = 0.05  # seconds between checks whether another thread has left the session
LOG = logging.getLogger("tensord.client")


class Printing:
    """The unwritten prints of one session, by their replies."""

    def __init__(self, outbox: Outbox, effects: SessionEffects) -> None:
        self._outbox = outbox
        self._effects = effects
        self._open: dict[Reply, object] = {}  # -> the session, which lives until the line is written
        self._lost = 0  # prints that were not written: their chain is broken, or time ran out
        self._why = ""

    def issue(self, parts: Sequence[Any], ids: tuple[int, ...], sep: str, chain: int | None, core: object) -> None:
        """Print `parts` in turn: texts, and None for the next tensor's value."""
        line = refusing(self._outbox, line_of(parts, sep))  # `sys.stdout` may be an object of the program
        self.expect(self._effects.issue_tolerant(line, ids, chain), core)

    def expect(self, reply: Reply, core: object) -> None:
        """Add an issued print; its reply is set when it is written."""
        self._open[reply] = core
        EXIT.add(self)
        reply.when_done(lambda: self._settle(reply))

    def _settle(self, reply: Reply) -> None:
        if self._open.pop(reply, None) is not None and not isinstance(reply.error, CancelledError | None):
            self._lose(str(reply.error))

    def _lose(self, why: str) -> None:
        self._lost += 1
        self._why = self._why or why

    def finish(self, deadline: float | None = None) -> None:
        """Wait for all open prints, at most until the deadline; log the number of lost ones, and the reason."""
        if deadline is None:
            deadline = monotonic() + PATIENCE
        if self._outbox.transport.lost or self._outbox.is_inside():
            deadline = 0.0
        for reply in list(self._open):
            try:
                self._await(reply, deadline)
            except TimeoutError:
                self._lose(f"they were not ready within {PATIENCE:g} s")
            except TensordError:  # `_settle` has counted it
                continue
        if self._lost:
            LOG.warning("%d prints were lost with the end of their session: %s", self._lost, self._why)
        self._open.clear()
        self._lost = 0

    def give_up(self) -> None:
        """Stop waiting; log the number of lost prints."""
        self.finish(0.0)

    def _await(self, reply: Reply, deadline: float) -> None:
        """Wait for a print, which is sent once no other thread holds the session. Raises its error, or TimeoutError."""
        while not self._outbox.flush_if_free() and monotonic() + PAUSE < deadline:
            with suppress(TimeoutError):
                self._outbox.await_reply(reply, PAUSE)
                return
        self._outbox.await_reply(reply, max(deadline - monotonic(), 0.0))


def line_of(parts: Sequence[Any], sep: str) -> Callable[..., None]:
    """A callback that takes the values of tensors and writes the line."""

    def show(*found: Any) -> None:
        rest = iter(found)
        line = sep.join([text_of_value(next(rest)) if text is None else text for text in parts])
        if sys.stdout is not None:  # a program without streams prints nowhere, as with `print`
            sys.stdout.write(line + "\n")

    return show


def text_of_value(value: Any) -> str:
    """The printed text of a value, or of its error."""
    return f"<{type(value).__name__}: {value}>" if isinstance(value, TensordError) else str(value)


class Unfinished(Protocol):
    """Work that a session has to finish before it ends."""

    def finish(self, deadline: float | None = None) -> None:
        """Wait until the work is done, or until the deadline."""

    def give_up(self) -> None:
        """Stop waiting; log unfinished work."""


class AtExit:
    """At the normal end of the process, finishes the prints and saves of open sessions."""

    def __init__(self) -> None:
        self._open: WeakSet[Unfinished] = WeakSet()

    def add(self, work: Unfinished) -> None:
        """Add work. This is registered after the machine's end, and therefore runs before it."""
        if work not in self._open:
            self._open.add(work)
            AT_END.register(self.finish)

    def finish(self) -> None:
        """Finish all work within the time of one session. KeyboardInterrupt gives up the rest, without a traceback."""
        deadline = monotonic() + PATIENCE
        left = sorted(self._open, key=lambda one: not isinstance(one, Printing))  # those with a deadline come last
        try:
            for work in left:
                work.finish(deadline)
        except KeyboardInterrupt:
            for work in left:
                work.give_up()

    def forked(self) -> None:
        """Forget everything in a forked child: it belongs to the parent."""
        self._open.clear()


EXIT = AtExit()
FORKS.child_resets.append(EXIT.forked)
