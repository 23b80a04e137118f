"""The meanings of signals to the daemon.

| signal | meaning |
|---|---|
| SIGTERM, SIGINT, SIGXCPU | end: pending work has the grace period; a second such signal ends the grace period |
| SIGHUP | the terminal is gone: end, as above; without a terminal, or under nohup, the daemon goes on |
| SIGUSR1, SIGUSR2 | the daemon goes on |
| SIGQUIT | as without a handler: the process dumps core, to be debugged |

The default action of each but the last would end the process at once, without a line in the log or a message to its
clients, and leave the socket behind.

A handler may run between any two bytecodes of the driving thread, so it only makes notes, and wakes the loop. Signals
are noted from before the first lock is taken: a signal that comes while devices are opened ends the daemon once it is
ready to serve, and a second one ends it at once.
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

END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU)
OTHER_SIGNALS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """The signals that have arrived."""

    def __init__(self) -> None:
        self.end_requests: list[str] = []  # names of signals that end the daemon
        self.ignored: deque[str] = deque()  # names of other signals, until they are logged
        self.end: Callable[[], None] | None = None  # called in the handler; set once the daemon serves
        self.had_terminal = has_terminal()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal: the handler of all signals."""
        name = signal.Signals(number).name
        if number in END_SIGNALS or (number == signal.SIGHUP and self.had_terminal):
            self.request_end(name, again=number in END_SIGNALS)
        else:
            self.ignored.append(name)

    def request_end(self, name: str, *, again: bool) -> None:
        """Note that the daemon must end.

        `again`: another signal counts as a second request; not so for the end of a terminal, which both the kernel and
        the shell report.
        """
        if self.end_requests and not again:
            return
        self.end_requests.append(name)
        if self.end is not None:
            self.end()
        elif len(self.end_requests) > 1:
            raise KeyboardInterrupt

    def serve(self, end: Callable[[], None]) -> None:
        """Call `end` for each later signal that ends the daemon, or now if one has arrived already."""
        self.end = end
        if self.end_requests:
            end()

    def ignore_all(self) -> None:
        """Ignore further signals, since the daemon has ended."""
        self.end = lambda: None

    def log_ignored(self) -> None:
        """Log the signals after which the daemon went on."""
        while self.ignored:
            log.info("a signal is passed over", signal=self.ignored.popleft())


def has_terminal() -> bool:
    """Whether the process has a controlling terminal, which may hang up."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@contextmanager
def signals() -> Iterator[Signals]:
    """A block in which signals are noted. Ignored signals, such as SIGHUP under nohup, stay ignored."""
    received = Signals()
    taken = (*END_SIGNALS, *(number for number in OTHER_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN))
    before = {number: signal.signal(number, received.handle) for number in taken}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
