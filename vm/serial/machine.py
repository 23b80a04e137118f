"""The serial machine: the serial engine in this process, for sessions that choose it instead of the virtual machine.

Theory of operation. There is no thread and no queue: the thread that submits a message executes it, under `lock`, and
the answer has arrived when `submit` returns. So a thread waits only for the lock.

Guarantees. One thread at a time touches the engine. Messages of a batch are executed in order; batches of several
threads are executed one after the other. Ctrl-C is delayed while a message is executed, as in the virtual machine. A
callback, or a signal handler on the executing thread, gets a ProtocolError if it submits or waits. Ops that a
callback issues are sent after the batch (`later`). Callbacks and signal handlers may cancel: that only adds the
session to `cancellations`. The holder of the lock processes this queue between two messages and between two
iterations of a loop, and once more after it has released the lock. So an endless loop blocks neither a cancellation
nor the end of its session, which cancels first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.concurrency.shielded_lock import ShieldedLock
from ...interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ...interpreter.schema.opdef import lacking
from ...interpreter.types.device_names import on_node
from ...interpreter.wire.messages import Message, Query
from ...streams.catalogue import check_devices
from ...streams.disk.store import NAME as STORE
from ...streams.host.blas import BLAS
from ..client_files import open_own_file
from ..failures import Failures, log_lines
from ..model.session import ReplySink
from .engine import SerialEngine
from .questions import RECENT_ERRORS, SerialQuestionContext, answer
from .values import CANCELLED, CLOSED, SerialSession


class SerialMachine:
    """Executes each message at once. Its devices are only names: every op runs on NumPy, in this process's memory.

    `devices`: as for the virtual machine, checked by the same code. Two options of devices have an effect:
    `missing`, so that handlers run as on the virtual machine, and `blas_threads`, which changes the last bits of a
    matrix product.
    """

    def __init__(self, devices: Sequence[str | Mapping[str, object]], node: str = "") -> None:
        options = {name: chosen for name, (_, chosen) in check_devices(devices).items()}
        self.devices: dict[str, frozenset[str]] = {
            on_node(node, name): getattr(chosen, "missing", frozenset()) | lacking(np)
            for name, chosen in options.items()
            if name != STORE
        }
        self.node = node
        self.engine = engine = SerialEngine(self.devices)
        engine.node = node
        engine.report = self.report
        engine.look_up = self.take_cancellations
        engine.handlers[Query] = engine.request("query", self.query)
        self.recent_errors: deque[TensordError] = deque(maxlen=RECENT_ERRORS)
        self.failures = Failures(time.monotonic)
        self.lock = ShieldedLock()
        self.cancellations: deque[tuple[SerialSession, str]] = deque()
        self.later: deque[Callable[[], object]] = deque()  # to call when no message is being executed
        self.closed = False
        self._asked_blas = [threads for chosen in options.values() if (threads := getattr(chosen, "blas_threads", 0))]
        for threads in self._asked_blas:
            BLAS.ask(threads)
        SHIELD.install()

    def attach(self, reply: ReplySink, name: str = "", *, strict: bool = False) -> SerialSession:
        with self.inside():
            session = self.engine.open_session(reply, name, strict=strict)
        session.files.open = open_own_file
        return session

    def detach(self, session: SerialSession) -> None:
        """End a session and release its tensors."""
        self.end(session)
        with self.inside():
            lines = self.failures.end(session.id)
            self.engine.close(session)
        log_lines(lines)

    def end(self, session: SerialSession) -> None:
        """Stop the loops of a session that is about to end, and refuse its messages."""
        if not self.executes_here():
            self.cancel(session, CLOSED)

    def submit(self, session: SerialSession, messages: Sequence[Message]) -> None:
        if self.closed:
            raise ConnectionLost("the serial machine is closed")
        with self.inside():
            for message in messages:
                self.engine.receive(session, (message,))
                self.take_cancellations()
        while self.later:
            self.later.popleft()()

    def cancel(self, session: SerialSession, why: str = CANCELLED) -> None:
        """Refuse the session's messages until it is restarted.

        Does not wait: the message that is being executed finishes.
        """
        self.cancellations.append((session, why))
        self.look_again()

    def executes_here(self) -> bool:
        """Whether this thread is executing a message, in a caller of this function."""
        return self.lock.owner == threading.get_ident()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Lock the engine for this thread. ProtocolError if the thread is executing a message."""
        if self.executes_here():
            raise ProtocolError("a side effect's callback, or a signal handler there, may neither send nor wait")
        try:
            with self.lock:
                self.take_cancellations()
                yield
        finally:
            self.look_again()

    def take_cancellations(self) -> None:
        """Cancel the sessions in `cancellations`. The caller holds the lock."""
        while self.cancellations:
            self.engine.cancel(*self.cancellations.popleft())

    def look_again(self) -> None:
        """Process cancellations that arrived while the lock was held, unless a thread holds the lock again."""
        while self.cancellations and not self.lock.owner:
            with self.lock:
                self.take_cancellations()

    def report(self, session: SerialSession, error: TensordError) -> None:
        """Keep an error among the recent ones, and log the errors that are due."""
        self.recent_errors.append(error)
        self.failures.add(session.id, error, session.name)
        log_lines(self.failures.due())

    def query(self, session: SerialSession, message: Query) -> Any:
        """Answer a session's question about the machine."""
        return answer(
            SerialQuestionContext(self.engine, session, list(self.recent_errors)), message.what, message.arguments
        )

    def close(self) -> None:
        """End all sessions. Does not wait, since no work is left."""
        if self.closed:
            return
        for session in list(self.engine.sessions.values()):
            self.detach(session)
        self.engine.names.clear()  # frees tensors that only names hold, without waiting for the garbage collector
        self.closed = True
        log_lines(self.failures.close())
        for threads in self._asked_blas:
            BLAS.drop(threads)
        SHIELD.remove()
