"""A run that is being admitted op by op: its remaining messages, and the actions at its end.

The session's later messages wait until all messages of the run are admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...interpreter.errors import TensordError


class Answer:
    """A value that a run with control flow has requested: `value` or `error`, once it is `done`.

    `errors`: all errors of the value; only the serial engine sets these.
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

    `finish` ends the run; `stop` ends it with an error if the session is closed before. `is_data_dependent`: the run
    has control flow, so it may request values, and the number of its messages is unknown. `answer`: the value that was
    requested last, on which the next message depends, or None. `ends_turn`: admitting the last message took long, so
    other sessions get a turn. `run`: the run's entry in the trace, empty without a trace: the routine's number, the ids
    of the first and the last instruction (0: not admitted yet), and the location.
    """

    __slots__ = ("answer", "ends_turn", "finish", "is_data_dependent", "messages", "run", "stop")

    def __init__(
        self,
        messages: Iterator[Sequence[Any]],
        finish: Callable[[], None],
        stop: Callable[[TensordError], None],
        is_data_dependent: bool,
        run: tuple[int, ...] = (),
    ) -> None:
        self.messages = messages
        self.finish = finish
        self.stop = stop
        self.is_data_dependent = is_data_dependent
        self.run = run
        self.answer: Answer | None = None
        self.ends_turn = False

    def waits(self) -> bool:
        """Whether the next message depends on a value that is not computed yet."""
        return self.answer is not None and not self.answer.done
