"""Ctrl-C while the main thread drives: deferred until the engine is consistent again.

Python raises KeyboardInterrupt between any two bytecodes of the main thread. In embedded use that thread drives the
engine, and an exception in the middle of a retirement would leave edges that are never released. So while the main
thread drives, SIGINT is only noted, and raised when the drive ends. That is soon: kernels that run there are small. A
second Ctrl-C is raised at once, for a side effect that never returns. Waiting threads are behind the same shield, and
`exposed` while they sleep. One that comes while a handle is finalised is noted, too: Python ignores what a finaliser
raises.

The handler is installed only over Python's own; a program with a handler of its own keeps it. Source: trio's protection
of its scheduler from KeyboardInterrupt.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType

from .bell import Bell


class Exposed:
    """A context manager around a sleep behind a shield: inside it Ctrl-C is raised, also one noted before.

    Only once: code that runs on the way out is behind the shield again.
    """

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *_: object) -> None:
        self._end()


def _in_finaliser(frame: FrameType | None) -> bool:
    """Is an exception raised here ignored? Called with the frame that a signal has interrupted.

    It need not be the finaliser's own: a handler of another signal may run between, which raises this one in turn.
    """
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code is weakref.finalize.__call__.__code__:
            return True
        frame = frame.f_back
    return False


class Shield:
    """A context manager around driving and waiting. One per process; it affects the main thread only."""

    __slots__ = ("_depth", "_exposed", "_main", "_noted", "_users", "exposed")

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._depth = 0
        self._noted = False
        self._exposed = False
        self._users = 0
        self.exposed = Exposed(self._expose, self._cover)

    def install(self) -> None:
        """Take over SIGINT, if this is the main thread and no other handler was installed."""
        self._users += 1
        if threading.get_ident() == self._main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)

    def remove(self) -> None:
        """Give SIGINT back when the last user leaves."""
        self._users -= 1
        if not self._users and threading.get_ident() == self._main and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def sleeping(self) -> bool:
        """Is the main thread asleep behind the shield? That thread itself can ask only in a signal handler."""
        return self._exposed

    def forked(self) -> None:
        """Begin anew in a forked child, which has no machines. Its main thread is the one that forked.

        If the main thread forked behind the shield, in a side effect's callback, then it is still behind the shield.
        """
        own, self._main = self._main, threading.get_ident()
        if own != self._main:
            self._depth, self._noted, self._exposed = 0, False, False
        self._users = 0
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._noted and ((self._depth and not self._exposed) or _in_finaliser(frame)):
            self._noted = True
        else:
            self._noted = self._exposed = False
            signal.default_int_handler(number, frame)

    def _expose(self) -> None:
        if threading.get_ident() == self._main:
            self._exposed = True
            if self._noted:
                self._noted = self._exposed = False
                raise KeyboardInterrupt

    def _cover(self) -> None:
        if threading.get_ident() == self._main:
            self._exposed = False

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if threading.get_ident() == self._main:
            self._depth -= 1
            if self._noted and not self._depth:
                self._noted = False
                if error is None:
                    raise KeyboardInterrupt


SHIELD = Shield()
os.register_at_fork(after_in_child=SHIELD.forked)


class ShieldedLock:
    """A lock under which Ctrl-C is only noted. `owner` is the ident of the thread inside; 0 while none is.

    Handlers of other signals run between any two bytecodes of the main thread, so also while that thread holds the lock
    but is not yet, or no longer, the owner. Such a handler may enter, since nothing is half done there: the lock is
    re-entrant. Where the handler's thread is the owner, the caller of the lock has to refuse.

    A thread that leaves the lock and enters it again at once is in before a thread that waits has woken. So a thread
    that has the lock for long, in pieces, gives way between them.
    """

    __slots__ = ("_lock", "_waiting", "owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[Bell] = []  # of the threads that wait to enter, each rung once its thread has
        self.owner = 0

    def locked(self) -> bool:
        """Is a thread inside?"""
        return self.owner != 0

    def give_way(self) -> None:
        """Let the thread enter that has waited longest, if any waits. For one thread, which is not inside."""
        for bell in self._waiting[:1]:
            bell.sleep(None)

    def _wait(self) -> None:
        bell = Bell()
        self._waiting.append(bell)
        try:
            self._lock.acquire()
        finally:
            self._waiting.remove(bell)
            bell.ring()

    def __enter__(self) -> None:
        SHIELD.__enter__()
        if not self._lock.acquire(False):
            self._wait()
        self.owner = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.owner = 0
        self._lock.release()
        SHIELD.__exit__(kind, error, traceback)
