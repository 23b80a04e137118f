"""The transport to a serial machine in this process: an op is done before its call returns.

Messages are sent one by one. When the outbox asks to send its unsent messages later (`rouse`), this transport sends
them at once, so that an op runs on the thread, and under the line, that issued it. In a callback that the machine is
executing this is not possible: the messages are sent when the callback has returned.
"""

from __future__ import annotations

import sys
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import TensordError
from ...vm.serial.machine import SerialMachine
from ..transport.callers import Callers
from ..transport.replies import Reply
from .in_process import InProcessTransport
from .process_memory import ProcessMemory

PATIENCE: Final = 1.0  # seconds until a new thread runs: it never does in a process that is ending


class SerialTransport(InProcessTransport):
    """A session's connection to a serial machine in the same process."""

    machine: SerialMachine

    def __init__(self, machine: SerialMachine, release: Callable[[], object], name: str = "", *, strict: bool) -> None:
        most = sys.maxsize  # no op is so large that it has to be sent early
        super().__init__(machine.devices, most, release, machine.node, ProcessMemory({}))
        self.machine = machine
        self.waker, self.awake = self, False
        self._flush: Callable[[], bool] = lambda: False
        self.callers = Callers(give_nothing)
        self._session = machine.attach(self._answer, name, strict=strict)
        self.send = partial(machine.submit, self._session)

    def _answer(self, request: int, value: Any, error: TensordError | None) -> None:
        """Copy an array, since the caller may write to it."""
        self._replies.answer(request, value.copy() if isinstance(value, np.ndarray) else value, error)

    def distrust(self) -> None:
        """Do nothing: all messages are checked."""

    def await_credit(self) -> None:
        """Do nothing: no message is ever unfinished."""

    def has_room(self, _share: float) -> bool:
        return True

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        """Return whether there is an answer: it arrives while its message is sent."""
        del timeout
        return reply.done

    def flush_with(self, flush: Callable[[], bool]) -> None:
        self._flush = flush

    def rouse(self) -> None:
        """Send now, or as soon as the callback that the machine is executing on this thread has returned."""
        if self.machine.executes_here():
            self.machine.later.append(self._flush_now)
        else:
            self._flush_now()

    def _flush_now(self) -> None:
        """Send unsent messages: the first call notes them, the second sends those still there."""
        self._flush()
        self._flush()

    def ending(self) -> None:
        """Stop the loops of a batch that another thread executes while it holds the outbox's lock."""
        self.machine.end(self._session)

    def abandon(self) -> None:
        """Close the session on a new thread, because the garbage collector may run anywhere, also inside a lock.

        A new thread has its starter's number until it runs, and an exception thrown at the starter would hit the new
        thread. So the starter stays in a region, which delays such an exception, until the new thread runs.
        """
        if self._closed or self.machine.closed or sys.is_finalizing():
            return
        starting = allocate_lock()
        starting.acquire()
        with SHIELD:
            start_new_thread(self._close_there, (starting,))
            starting.acquire(timeout=PATIENCE)

    def _close_there(self, starting: LockType) -> None:
        """Close the session: the work of the new thread."""
        starting.release()
        self.close()


def give_nothing(*_: object) -> None:
    """Do nothing: the machine itself calls functions, and needs nothing back."""
