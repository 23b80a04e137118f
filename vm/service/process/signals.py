"""What signals mean to the daemon.

| signal | meaning |
|---|---|
| SIGTERM, SIGINT, SIGXCPU | end: pending work has the grace period; a second one ends that |
| SIGHUP | the terminal is gone: end, as above; without a terminal, or under nohup, the daemon goes on |
| SIGUSR1, SIGUSR2 | the daemon goes on |
| SIGQUIT | as without a handler: the process dumps core, to be debugged |

The default of each but the last would end the process at once, without a line in the log or a word to its clients, and
leave the socket behind.

A handler may run between any two bytecodes of the driving thread, so it only makes notes, and wakes the loop. Signals
count from before the first lock is taken: one that comes while devices are opened ends the daemon once it could serve.
A second one does not wait for that.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from ...log import log

ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU)
OTHERS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """The signals that have come."""

    def __init__(self) -> None:
        self.asked: list[str] = []  # the names of those that end the daemon
        self.passed: deque[str] = deque()  # the names of those after which it goes on, until the log has them
        self.end: Callable[[], None] | None = None  # called in the handler; set once the daemon serves
        self.had_terminal = has_terminal()

    def heard(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal. The handler of all of them."""
        name = signal.Signals(number).name
        if number in ENDING or (number == signal.SIGHUP and self.had_terminal):
            self.to_end(name, again=number in ENDING)
        else:
            self.passed.append(name)

    def to_end(self, name: str, *, again: bool) -> None:
        """Note that the daemon is to end. A terminal's end comes more than once, from the kernel and from the shell; so
        it is no second request (`again`)."""
        if self.asked and not again:
            return
        self.asked.append(name)
        if self.end is not None:
            self.end()
        elif len(self.asked) > 1:
            raise KeyboardInterrupt

    def serve(self, end: Callable[[], None]) -> None:
        """From now on have those that end the daemon call `end`; at once if one has come."""
        self.end = end
        if self.asked:
            end()

    def closed(self) -> None:
        """The daemon has ended: a further signal changes nothing."""
        self.end = lambda: None

    def tell(self) -> None:
        """Log the signals after which the daemon went on."""
        while self.passed:
            log.info("a signal is passed over", signal=self.passed.popleft())


def has_terminal() -> bool:
    """Has the process a controlling terminal, which may hang up?"""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@contextmanager
def signals() -> Iterator[Signals]:
    """Note the signals that come meanwhile. Those that are ignored, as SIGHUP is under nohup, stay ignored."""
    heard = Signals()
    taken = (*ENDING, *(number for number in OTHERS if signal.getsignal(number) is not signal.SIG_IGN))
    before = {number: signal.signal(number, heard.heard) for number in taken}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
