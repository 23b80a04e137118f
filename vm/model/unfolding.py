"""A run in the middle of being admitted op by op: what is left of it, and what is done at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...interpreter.errors import TensordError


class Answer:
    """A value that a run asks for: `value` or `error` once it is `done`. `errors`: all that the serial engine knows."""

    __slots__ = ("done", "error", "errors", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: TensordError | None = None
        self.errors: tuple[TensordError, ...] = ()

    def set(self, value: Any, error: TensordError | None = None) -> None:
        self.value, self.error, self.done = value, error, True


class Unfolding:
    """The messages of a run that are still to be admitted, before all others of its session; `finish` ends the run.
    `stop` does instead, with the reason, where the session ends in the middle of it.

    `asks`: has it control flow, so that nobody knows how many messages there are? `asked`: what the next message
    depends on; None for nothing. `rests`: has it just done what takes long, so that others have their turn? `run` is
    what a trace says of it: the routine's number, the first instruction, 0, and where it was called; empty if there is
    no trace.
    """

    __slots__ = ("asked", "asks", "finish", "messages", "rests", "run", "stop")

    def __init__(
        self,
        messages: Iterator[Sequence[Any]],
        finish: Callable[[], None],
        stop: Callable[[TensordError], None],
        asks: bool,
        run: tuple[int, ...] = (),
    ) -> None:
        self.messages = messages
        self.finish = finish
        self.stop = stop
        self.asks = asks
        self.run = run
        self.asked: Answer | None = None
        self.rests = False

    def waits(self) -> bool:
        """Is the next message not known yet?"""
        return self.asked is not None and not self.asked.done
