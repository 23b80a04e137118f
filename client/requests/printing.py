"""Printing values in program order: side effects that write a line.

A print takes what it can get: where a tensor has failed, its error is written in its place, so that one failure does
not silence what comes after it. Texts of other objects are made at the call, as of that place in program order.

No line is lost without a word. A session that is closed first waits for its open prints, for `PATIENCE` seconds at
most, and logs how many it gives up. The interpreter's exit does the same for all sessions that are still open, with
one deadline; a print keeps its session alive until it is written. Prints that were cancelled are dropped, as they were
asked to be. Another thread may be inside `atomic()` meanwhile, for as long as it likes: prints that were sent before
are waited for, and those that were not are given up at the deadline.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol
from weakref import WeakSet

from ...interpreter.errors import CancelledError, TensordError
from ...interpreter.process_end import AT_END
from ..outbox.outbox import Outbox
from ..process.forks import FORKS
from ..transport.replies import Reply
from .effects import Effects

PATIENCE = 5.0  # seconds that the end of a session waits for its prints
PAUSE = 0.05  # seconds between looks whether another thread has let go of the session
LOG = logging.getLogger("tensord.client")


class Printing:
    """The prints of one session that are not written yet, by their replies."""

    def __init__(self, outbox: Outbox, effects: Effects) -> None:
        self._outbox = outbox
        self._effects = effects
        self._open: dict[Reply, object] = {}  # -> the session, which lives until the line is written
        self._lost = 0  # prints that were not written since their chain is broken, or too late
        self._why = ""

    def issue(self, parts: Sequence[Any], ids: tuple[int, ...], sep: str, chain: int | None, core: object) -> None:
        """Print `parts` in turn: texts, and None for the next tensor's value."""
        self.expect(self._effects.issue_tolerant(line_of(parts, sep), ids, chain), core)

    def expect(self, reply: Reply, core: object) -> None:
        """Await an issued print, whose reply comes when it is written."""
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
        """Wait for all open prints, at most until the deadline; log how many are lost, and why."""
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
        """Stop waiting; log how many are lost."""
        self.finish(0.0)

    def _await(self, reply: Reply, deadline: float) -> None:
        """Wait for a print, which is sent once no other thread has the session. Raises its error, or TimeoutError."""
        while not self._outbox.flush_if_free() and monotonic() + PAUSE < deadline:
            with suppress(TimeoutError):
                self._outbox.await_reply(reply, PAUSE)
                return
        self._outbox.await_reply(reply, max(deadline - monotonic(), 0.0))


def line_of(parts: Sequence[Any], sep: str) -> Callable[..., None]:
    """A callback that writes the line, given the values of tensors."""

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
        """Wait until it is done, or until the deadline."""

    def give_up(self) -> None:
        """Wait no longer; log what is not done."""


class AtExit:
    """Finishes, at the normal end of the process, what sessions that are still open print and save."""

    def __init__(self) -> None:
        self._open: WeakSet[Unfinished] = WeakSet()

    def add(self, work: Unfinished) -> None:
        """Finish this work, too. It is registered after the machine's end, and so done before it."""
        if work not in self._open:
            self._open.add(work)
            AT_END.do(self.finish)

    def finish(self) -> None:
        """Finish all within the time of one session. An interrupt gives up the rest, without a traceback."""
        deadline = monotonic() + PATIENCE
        left = sorted(self._open, key=lambda one: not isinstance(one, Printing))  # which have a deadline
        try:
            for work in left:
                work.finish(deadline)
        except KeyboardInterrupt:
            for work in left:
                work.give_up()

    def forked(self) -> None:
        """Forget everything in a forked child: it is the parent's."""
        self._open.clear()


EXIT = AtExit()
FORKS.anew.append(EXIT.forked)
