"""A run that is being admitted op by op: its remaining messages, and the actions at its end.

The session's later messages wait until all messages of the run are admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...interpreter.errors import TensordError


class Answer:
    """The answer to a run that needs a value: `value` or `error` once it is `done`.

    `errors`: in the serial engine, all errors.
    """

    __slots__ = ("done", "error", "errors", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: TensordError | None = None
        self.errors: tuple[TensordError, ...] = ()

    def set(self, value: Any, error: TensordError | None = None) -> None:
        self.value, self.error, self.done = value, error, True


class Unfolding:
    """The messages of a run that are still to be admitted, before the session's next message.

    `finish` ends the run; `stop` ends it with an error if the session is closed before. `asks`: the run has control
    flow, so the number of its messages is unknown. `asked`: the value on which the next message depends, or None.
    `rests`: the run has just taken long, so other sessions get a turn. `run`: the run's entry in the trace: the
    routine's number, the first instruction, 0, and the location; empty without a trace.
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
        """Whether the next message depends on a value that is not computed yet."""
        return self.asked is not None and not self.asked.done
