"""The handlers of signals, which the main thread's outermost region covers.

`cover` puts a `Cover` over each handler that Python has for any signal, and `uncover` removes the covers. So any
program may install any handler at any time, and outside of regions the process has the handlers that its program has
set. All handlers are read each time, in 2 us: that is the price of noticing each change.
"""

from __future__ import annotations

import signal

# The functions of `signal` make enums of their arguments and results, which takes longer than everything else.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], Any]
Arrived: TypeAlias = Callable[[int, Handler, FrameType | None], None]
SIGNALS: Final = sorted(int(each) for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Cover:
    """Replaces a signal's handler: reports that the signal has arrived."""

    __slots__ = ("_arrived", "handler")

    def __init__(self, arrived: Arrived, handler: Handler) -> None:
        self._arrived = arrived
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._arrived(number, self.handler, frame)


class SignalHandlers:
    """The handlers of this process. As in Python, only the main thread may use it. `arrived`: see `Cover`."""

    def __init__(self, arrived: Arrived) -> None:
        self._arrived = arrived
        self._found: list[Any] = []  # the handler of each signal, at the last reading
        self._with_covers: list[Any] = []  # the same, under covers
        self._covered: list[int] = []  # the signals with a handler in Python
        self._handlers: list[Handler] = []  # theirs
        self._covers: list[Cover] = []

    def cover(self) -> None:
        """Put covers over the handlers that there are now."""
        handlers = list(map(getsignal, SIGNALS))
        if handlers == self._with_covers:
            return
        if handlers != self._found:
            self._look_at(handlers)
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
        """Restore the covered handlers, except those that others have replaced meanwhile.

        Setting a handler calls those of signals that have just come. A handler that is restored already may raise: the
        remaining covers are removed nevertheless.
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
