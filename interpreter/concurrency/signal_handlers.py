"""The handlers of signals, which the main thread's outermost region covers.

`cover` puts a `Cover` over each handler that Python has for any signal, and `uncover` takes the covers off. So it does
not matter who has installed which handler when, and outside of regions the process has those that its program has set.
All handlers are looked at each time: that is the price of noticing each change, 2 us.
"""

from __future__ import annotations

import signal

# Those of `signal` make enums of what they are given and return, which takes longer than all the rest.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], Any]
Arrived: TypeAlias = Callable[[int, Handler, FrameType | None], None]
SIGNALS: Final = sorted(int(each) for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Cover:
    """In place of a signal's handler: says that the signal has arrived."""

    __slots__ = ("_arrived", "handler")

    def __init__(self, arrived: Arrived, handler: Handler) -> None:
        self._arrived = arrived
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._arrived(number, self.handler, frame)


class SignalHandlers:
    """The handlers of this process. Only the main thread may use it, as Python has it. `arrived`: see `Cover`."""

    def __init__(self, arrived: Arrived) -> None:
        self._arrived = arrived
        self._found: list[Any] = []  # the handler of each signal, when they were last looked at
        self._with_covers: list[Any] = []  # the same, under covers
        self._covered: list[int] = []  # the signals that have a handler of Python's
        self._handlers: list[Handler] = []  # theirs
        self._covers: list[Cover] = []

    def cover(self) -> None:
        """Put covers over the handlers that there are now."""
        found = list(map(getsignal, SIGNALS))
        if found == self._with_covers:
            return
        if found != self._found:
            self._look_at(found)
        list(map(set_handler, self._covered, self._covers))

    def _look_at(self, found: list[Any]) -> None:
        there = [(number, handler) for number, handler in zip(SIGNALS, found, strict=True) if callable(handler)]
        handlers = [handler.handler if type(handler) is Cover else handler for _, handler in there]
        covers = [Cover(self._arrived, handler) for handler in handlers]
        self._covered, self._handlers, self._covers = [number for number, _ in there], handlers, covers
        over = dict(zip(self._covered, covers, strict=True))
        self._with_covers = [over.get(number, handler) for number, handler in zip(SIGNALS, found, strict=True)]
        self._found = found

    def uncover(self) -> None:
        """Give the handlers back that were covered, but for those that others have replaced meanwhile.

        To set a handler calls those of signals that have just come. One that is back already may raise: the remaining
        covers come off all the same.
        """
        try:
            if list(map(getsignal, self._covered)) == self._covers:
                list(map(set_handler, self._covered, self._handlers))
                return
            for number, cover, handler in zip(self._covered, self._covers, self._handlers, strict=True):
                if getsignal(number) is cover:
                    set_handler(number, handler)
        except BaseException:
            self.uncover()
            raise
