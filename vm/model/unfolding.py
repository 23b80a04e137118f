"""A run in the middle of being admitted op by op: what is left of it, and what is done at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import VmSession


class Unfolding:
    """The messages of a run that are still to be admitted, before all others of its session; `finish` ends the run.

    `run` is what a trace says of it: the routine's number, the first instruction, 0, and where it was called; empty if
    there is no trace.
    """

    __slots__ = ("finish", "messages", "run")

    def __init__(
        self, messages: Iterator[Sequence[Any]], finish: Callable[[], None], run: tuple[int, ...] = ()
    ) -> None:
        self.messages = messages
        self.finish = finish
        self.run = run


def rest_of_run(session: VmSession, most: int) -> Iterator[Sequence[Any]]:
    """The next messages of the run that the session is in the middle of, at most so many. To be admitted one by one:
    the run ends when the message behind its last one is asked for."""
    unfolding = session.unfolding
    if unfolding is None:
        return
    for _ in range(most):
        message = next(unfolding.messages, None)
        if message is None:
            session.unfolding = None
            unfolding.finish()
            return
        yield message
