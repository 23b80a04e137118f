"""Replies: the answers to a session's requests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ...interpreter.errors import TensordError, without_frames


class Reply:
    """The answer to one request: `value` or `error`, once `done`. Callbacks run on the thread that sets it.

    A reply has no lock, since each request would have to make one. A callback that is added while the answer is set is
    called by the thread that takes it from the list.
    """

    __slots__ = ("_callbacks", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: TensordError | None = None
        self._callbacks: list[Callable[[], object]] = []

    def set(self, value: Any, error: TensordError | None) -> None:
        """Set the answer; only the first one counts."""
        if self.done:
            return
        self.value = value
        self.error = None if error is None else without_frames(error)
        self.done = True
        if self._callbacks:
            self._call_back()

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back once done; at once if it is done already."""
        self._callbacks.append(callback)
        if self.done:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread has taken it
                return
            callback()

    def result(self) -> Any:
        """The value; raises the error. Only once done."""
        if self.error is not None:
            raise self.error.reraisable()
        return self.value


class Replies:
    """The open requests of a session on a machine in this process: replies by number (`open`)."""

    def __init__(self) -> None:
        self.open: dict[int, Reply] = {}
        self._numbers = itertools.count(1)

    def request(self) -> tuple[int, Reply]:
        """A new request number and its reply."""
        number, reply = next(self._numbers), Reply()
        self.open[number] = reply
        return number, reply

    def answer(self, request: int, value: Any, error: TensordError | None) -> None:
        """The machine answers a request."""
        reply = self.open.pop(request, None)
        if hasattr(value, "__next__"):  # slices, for machines with several clients
            value = [one for part in value for one in part]
        if reply is not None:
            if error is not None:
                error.is_reported = True
            reply.set(value, error)

    def fail_all(self, error: TensordError) -> None:
        """Fail all open replies, since no answers will come."""
        for reply in list(self.open.values()):
            reply.set(None, error)
