"""The transport to a serial machine in this process: what is issued is done before the call returns.

Messages leave one by one. The outbox asks to have its unsent messages looked after "in a while" (`rouse`); here that is
at once, so that an op runs on the thread, and under the line, that issued it. Where this is not possible, in a callback
that the machine is executing, the messages leave when the callback has returned.
"""

from __future__ import annotations

import os
import sys
from _thread import start_new_thread
from collections.abc import Callable, Sequence

import numpy as np

from ...interpreter.errors import TensordError
from ...interpreter.wire.messages import Message
from ...vm.serial.machine import SerialMachine
from ..transport.interface import Reply
from .in_process import InProcessTransport


class SerialTransport(InProcessTransport):
    """A session's connection to a serial machine in the same process."""

    def __init__(self, machine: SerialMachine, release: Callable[[], object], *, strict: bool) -> None:
        super().__init__(machine.devices, sys.maxsize)  # no op is so large that it would have to leave early
        self.machine = machine
        self._release = release
        self._session = machine.attach(self._answer, strict=strict)
        self._closed = False
        self._process = os.getpid()

    @property
    def lost(self) -> bool:
        """Has the machine been closed?"""
        return self.machine.closed

    def release_exports_with(self, release: Callable[[int], None]) -> None:
        """Results are copies."""

    def send(self, messages: Sequence[Message]) -> None:
        """Execute the batch."""
        self.machine.submit(self._session, messages)

    def _answer(self, request: int, value: object, error: TensordError | None) -> None:
        """The array of an answer is the caller's own: the caller may write to it."""
        super()._answer(request, value.copy() if isinstance(value, np.ndarray) else value, error)

    def await_credit(self) -> None:
        """Nothing is ever unfinished."""

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        """The answer has come with the message."""
        del timeout
        return reply.done

    def attend(self, reply: Reply) -> None:
        """The answer has come with the message."""

    def rouse(self, idle_flush: Callable[[], bool]) -> None:
        """Send now, or as soon as the callback that the machine is executing on this thread has returned."""
        if self.machine.executes_here():
            self.machine.later.append(lambda: flush_now(idle_flush))
        else:
            flush_now(idle_flush)

    def cancel(self) -> None:
        """Refuse what the session sends until it is restarted."""
        self.machine.cancel(self._session)

    def close(self) -> None:
        """End the session, and the machine with its last one."""
        if self._closed:
            return
        self._closed = True
        self.machine.detach(self._session)
        self._lose_replies()
        self._release()

    def abandon(self) -> None:
        """Close it on a thread of its own: the garbage collector may have come anywhere, also inside a lock."""
        if not self._closed and not self.machine.closed and self._process == os.getpid():
            start_new_thread(self.close, ())


def flush_now(idle_flush: Callable[[], bool]) -> None:
    """Have what is unsent sent: the first call sees it, the second one sends what has not left since."""
    idle_flush()
    idle_flush()
