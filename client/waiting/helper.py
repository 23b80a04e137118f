"""A thread for slow work in this process, while the event loop goes on.

Each piece of work has a thread of its own, in the context of the task that awaits it. Rejected: the loop's own pool, in
which other work may wait for this, and where `asyncio.run` would wait at its end for abandoned work. If the
task is cancelled, or the loop closed, before it takes the result, `drop` undoes the result, also on such a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from ...interpreter.concurrency.finalisers import redone
from ..locations.locations import HANDLED, user_line
from ..locations.tracebacks import PUBLIC_ERRORS, hide
from .steps import LongWork, keep


def start_work(work: LongWork, line: str | None) -> asyncio.Future[Any]:
    """Start the work; returns its future in the running loop. `line`: the line for its errors."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def run() -> None:
        HANDLED.line = line
        ending = Ending(future, *outcome(partial(context.run, work.function)), work.drop)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ending)

    start_thread(run)
    return future


def start_thread(run: Callable[[], None]) -> None:
    """Start a thread that does not keep the process alive."""
    threading.Thread(target=run, name="tensord helper", daemon=True).start()


def outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The function's result, or its error."""
    try:
        return function(), None
    except BaseException as error:
        return None, error


class Ending:
    """The end of a piece of work: called on the loop's thread, it sets the future. A loop that is closed first forgets
    the call. A result that no task has taken is dropped with this object."""

    __slots__ = ("_drop", "_error", "_future", "_left", "_value")

    def __init__(
        self, future: asyncio.Future[Any], value: Any, error: BaseException | None, drop: Callable[[Any], None]
    ) -> None:
        self._future = future
        self._value = value
        self._error = error
        self._drop = drop
        self._left = error is None  # the result is not taken yet

    def __call__(self) -> None:
        if self._future.done():
            return
        if self._error is None:
            self._left = False
            self._future.set_result(self._value)
        else:
            self._future.set_exception(self._error)

    @redone
    def __del__(self) -> None:
        if self._left:
            start_thread(partial(self._drop, self._value))
            self._left = False


async def in_helper(function: Callable[[], Any], drop: Callable[[Any], None] = keep) -> Any:
    """The result of a slow function of this process. Its errors name the caller's line."""
    line = user_line()
    try:
        return await start_work(LongWork(function, drop), line)
    except PUBLIC_ERRORS as error:
        hide(error)
        raise
