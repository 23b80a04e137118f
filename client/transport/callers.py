"""The threads that call the program's functions for the machine (`session.host_call`).

Theory of operation
    The thread that receives a call from the machine only queues it. A thread of the session's own calls the function,
    and passes its result, or its error, back. A coroutine function runs on an event loop: that of a session that was
    opened in one, else a loop of the session's own, on another thread.

Guarantees
    A function begins only while no other function of the session runs on these threads, or while those that run wait
    for a machine. So a function may use its own session, and wait for the results of further calls; others may run
    meanwhile. Coroutines run concurrently. A call that ends before its function runs is dropped, and a coroutine whose
    call has ended is cancelled; no thread waits for a function that does not return. A wait on the event loop's own
    thread that would keep a coroutine from running raises.

Who owns what
    Any thread calls `call` and `end_call`, inside any lock of the transport; neither waits. `give_back` is called on
    these threads, without a lock.

Rejected
    The thread that reads the answers, or drives the machine, as for side effects: a slow function would block
    all sessions. A pool of threads: most functions are not thread-safe, and a pool of any size is stuck once that many
    functions wait for each other. The default executor of the event loop: other code may fill it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from numpy.typing import NDArray

from ...interpreter.concurrency.leader_followers import Awaited, Until
from ...interpreter.errors import ProtocolError, TensordError
from ..locations.locations import user_line
from .host_functions import HostFunction, failure_of, read_only

T = TypeVar("T")
Arrays = Sequence[NDArray[Any]]
GiveBack = Callable[[int, TensordError | None, Arrays], None]

IDLE_TIMEOUT: Final = 1.0  # seconds after which a thread without work ends
STALLED: Final = (
    "this wait stops the event loop on which the coroutine function of a host_call has to run: await the tensor instead"
)
_calling: dict[int, Callers] = {}  # threads that call functions


class Callers:
    """The functions that the machine has asked one session to call. `loop`: of a session that was opened in one."""

    def __init__(self, give_back: GiveBack) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._give_back = give_back
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._open: dict[int, Future[Any] | None] = {}  # calls that have not ended; the futures of coroutines
        self._running = 0  # threads that run a function and do not wait for a machine
        self._idle = 0
        self._own: OwnLoop | None = None
        self._closed = False

    @property
    def has_calls(self) -> bool:
        """Return whether any call has not ended."""
        return bool(self._open)

    def call(self, number: int, function: HostFunction, arrays: Arrays) -> None:
        """Call a function with arrays of its own."""
        begin = self._begin_coroutine if function.is_async else self._run
        with self._changed:
            if not self._closed:
                self._open[number] = None
                self._put(partial(begin, number, function, arrays))

    def end_call(self, number: int) -> None:
        """End a call whose results were taken, or are no longer awaited."""
        with self._changed:
            future = self._open.pop(number, None)
        if future is not None:
            future.cancel()

    def let_others_run(self, wait: Callable[[], T]) -> T:
        """Wait for a machine, on one of these threads; meanwhile another function may run."""
        with self._changed:
            self._running -= 1
            self._start_next()
        try:
            return wait()
        finally:
            with self._changed:
                self._running += 1

    def wait(self, wait: Callable[[Awaited, float | None], bool], awaited: Awaited, timeout: float | None) -> bool:
        """Wait for a machine, by the given function. ProtocolError on the thread of the session's event loop, if a
        coroutine has to run there."""
        if self.loop is None or asyncio._get_running_loop() is not self.loop:  # noqa: SLF001 - documented
            return wait_for_machine(lambda: wait(awaited, timeout))
        ended = wait_for_machine(lambda: wait(Until(lambda: awaited.done or self.has_coroutines()), timeout))
        if not awaited.done and self.has_coroutines():
            raise ProtocolError(STALLED, location=user_line())
        return ended

    def has_coroutines(self) -> bool:
        """Return whether coroutines run, or are about to."""
        return any(future is not None for future in list(self._open.values()))

    def close(self) -> None:
        """Accept no more calls. Does not wait for running functions."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            left, self._open = self._open, {}
            own, self._own = self._own, None
            self._changed.notify_all()
        for future in filter(None, left.values()):
            future.cancel()
        if own is not None:
            own.end()

    # -- threads -----------------------------------------------------------------------------------------------------

    def _put(self, job: Callable[[], None]) -> None:
        """Queue a job; the caller holds the lock."""
        self._jobs.append(job)
        self._start_next()

    def _start_next(self) -> None:
        """Make a thread take the next job, unless a function runs; the caller holds the lock."""
        if self._running or not self._jobs:
            return
        if self._idle:
            self._changed.notify()
        else:
            self._running += 1
            threading.Thread(target=self._work, name="tensord-host-call", daemon=True).start()

    def _work(self) -> None:
        """The loop of each thread."""
        me = threading.get_ident()
        _calling[me] = self
        try:
            while (job := self._next()) is not None:
                job()
        finally:
            del _calling[me]

    def _next(self) -> Callable[[], None] | None:
        """The next job, for a thread that counts as running; None if the thread has to end."""
        with self._changed:
            self._running -= 1
            self._idle += 1
            try:
                self._changed.wait_for(lambda: self._closed or (self._jobs and not self._running), IDLE_TIMEOUT)
            finally:
                self._idle -= 1
            if self._closed or self._running or not self._jobs:
                return None
            self._running += 1
            return self._jobs.popleft()

    # -- functions ---------------------------------------------------------------------------------------------------

    def _run(self, number: int, function: HostFunction, arrays: Arrays) -> None:
        """Call a function, unless its call is over."""
        if number not in self._open:
            return
        try:
            results = function(*arrays)
        except BaseException as error:
            self._end(number, failure_of(error), ())
        else:
            self._end(number, None, results)

    def _begin_coroutine(self, number: int, function: HostFunction, arrays: Arrays) -> None:
        """Begin a coroutine function on its loop."""
        coroutine = function.function(*map(read_only, arrays))
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop_of(function))
        except BaseException as error:  # the loop is closed
            coroutine.close()
            self._end(number, failure_of(error), ())
            return
        with self._changed:
            is_over = number not in self._open
            if not is_over:
                self._open[number] = future
        if is_over:
            future.cancel()
        future.add_done_callback(partial(self._coroutine_ended, number, function))

    def _loop_of(self, function: HostFunction) -> asyncio.AbstractEventLoop:
        if function.loop is not None:
            return function.loop
        with self._changed:
            if self._own is None:
                self._own = OwnLoop()
            return self._own.loop

    def _coroutine_ended(self, number: int, function: HostFunction, future: Future[Any]) -> None:
        """On the loop's thread: make one of these threads pass the coroutine's result back."""
        with self._changed:
            if number in self._open and not self._closed:
                self._open[number] = None
                self._put(partial(self._end_coroutine, number, function, future))

    def _end_coroutine(self, number: int, function: HostFunction, future: Future[Any]) -> None:
        try:
            results = function.results(future.result())
        except BaseException as error:
            self._end(number, failure_of(error), ())
        else:
            self._end(number, None, results)

    def _end(self, number: int, error: TensordError | None, arrays: Arrays) -> None:
        """Pass a function's result, or its error, back. A session that has ended ignores it."""
        try:
            self._give_back(number, error, arrays)
        except BaseException as failure:  # for example, no memory for the results
            with suppress(Exception):
                self._give_back(number, failure_of(failure), ())


class OwnLoop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tensord-host-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Run until the end, and then cancel the rest."""
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._stop.wait())

    def end(self) -> None:
        """Cancel the running coroutines, and end the thread."""
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self._stop.set)


def wait_for_machine(wait: Callable[[], T]) -> T:
    """Wait for a machine. On a thread that calls functions, others of its session may run meanwhile."""
    callers = _calling.get(threading.get_ident())
    return wait() if callers is None else callers.let_others_run(wait)
