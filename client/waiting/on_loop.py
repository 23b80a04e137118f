"""How an event loop takes the steps of a procedure that waits.

Theory of operation. A procedure (`steps`) is a generator. Its first step is taken where the awaitable form is called:
that step sends the question to the machine, so the call decides the question's position in program order and the line
of the program that errors name, and errors in the arguments are raised there. A coroutine takes the other steps. It
awaits the answer, which the thread that sets it announces to the loop (`Reply.when_done`); the background thread reads
answers that no thread waits for (`Transport.attend`).

Guarantees. The loop's thread never sleeps in a step. A step takes the session's locks, which no thread holds while it
waits. One lock may be held for long nevertheless: the outbox's, by a thread inside `atomic`. Then a helper thread
(`helper`) takes the step, after that block. A question needs no room: if a session has several windows of messages
unfinished, the transport keeps the question at its position (`transport/outgoing`). A coroutine that is cancelled, or
dropped with its loop, closes the procedure; the answer is still read, and dropped. A coroutine yields to the loop at
least once, so that a task that awaits ready values in turn does not keep others from running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import TensordError
from ..locations.locations import HANDLED, user_line
from ..locations.tracebacks import PUBLIC_ERRORS, hide
from ..transport.replies import Reply
from .helper import start_thread, start_work
from .message_room import await_room
from .steps import Awaiting, Elsewhere, LongWork, MessageRoom, Steps, Wait, Within

if TYPE_CHECKING:
    from ..outbox.outbox import Outbox


T = TypeVar("T")
MOMENT: Final = 0.001  # seconds within which a thread usually hands a batch over


class Returned(NamedTuple):
    """The end of a procedure, and its result."""

    value: Any


def on_loop(outbox: Outbox, steps: Steps[T]) -> Awaiting[T]:
    """Take the first step, and raise its error; the returned coroutine takes the other steps."""
    line = user_line()
    reached = None
    with SHIELD:
        if lock_unless_atomic(outbox):
            try:
                reached = outcome_of_step(partial(next, steps))
            finally:
                outbox.lock.release()
    return remaining_steps(outbox, steps, reached, line)


async def remaining_steps(outbox: Outbox, steps: Steps[T], reached: Wait | Returned | None, line: str | None) -> T:
    """Take the steps after the first one, and return the result.

    `reached`: the outcome of the first step; None if another thread had the lock, so that step is not taken yet.
    `line`: the line of the program for errors.
    """
    try:
        if reached is None:
            reached = await take_step(outbox, partial(next, steps), line)
        elif type(reached) is Returned:
            await asyncio.sleep(0)
        while not isinstance(reached, Returned):
            reached = await take_step(outbox, await step_after(outbox, steps, reached, line), line)
    except PUBLIC_ERRORS as error:
        if isinstance(error, TensordError) and error.location is None:
            error.location = line
        hide(error)
        raise
    value: T = reached.value
    return value


async def step_after(outbox: Outbox, steps: Steps[T], wait: Wait, line: str | None) -> Callable[[], Wait]:
    """Wait; returns the function that takes the next step with the result of the wait, or its error."""
    try:
        value = await result_of_wait(outbox, wait, line)
    except Exception as error:
        return partial(steps.throw, error)
    except BaseException:  # the task is cancelled, or the coroutine dropped
        close_steps(outbox, steps)
        raise
    return partial(steps.send, value)


async def result_of_wait(outbox: Outbox, wait: Wait, line: str | None) -> Any:
    """The result of one wait."""
    if isinstance(wait, Reply):
        return await await_reply(outbox, wait)
    if isinstance(wait, Within):
        return await await_reply_within(outbox, wait)
    if isinstance(wait, LongWork):
        return await start_work(wait, line)
    if isinstance(wait, MessageRoom):
        return await await_room(outbox)
    if isinstance(wait, Elsewhere):
        return await result_of_wait(wait.outbox, wait.wait, line)
    return await asyncio.sleep(wait.seconds)


async def await_reply(outbox: Outbox, reply: Reply) -> Any:
    """The value of a reply; raises its error."""
    if reply.done:
        await asyncio.sleep(0)
    else:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        reply.when_done(partial(announce, loop, future))
        outbox.transport.attend(reply)
        await future
    return reply.result()


async def await_reply_within(outbox: Outbox, wait: Within) -> Any:
    """The value of a reply; TimeoutError if it does not come in time."""
    try:
        async with asyncio.timeout(wait.seconds):
            return await await_reply(outbox, wait.reply)
    except TimeoutError:
        raise TimeoutError(f"no result within {wait.seconds:g} s") from None


def announce(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """Announce an answer to a loop. Called on the thread that sets the answer, which may hold any lock."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(resume, future)


def resume(future: asyncio.Future[None]) -> None:
    """Let the coroutine go on; on the loop's thread."""
    if not future.done():
        future.set_result(None)


# -- steps, and their lock ---------------------------------------------------------------------------------------------


async def take_step(outbox: Outbox, advance: Callable[[], Wait], line: str | None) -> Wait | Returned:
    """Take a step: here, or after another thread's `atomic` block on a helper thread."""
    with SHIELD:
        if lock_unless_atomic(outbox):
            before, HANDLED.line = HANDLED.line, line
            try:
                return outcome_of_step(advance)
            finally:
                HANDLED.line = before
                outbox.lock.release()
    reached: Wait | Returned = await start_work(LongWork(partial(take_step_with_lock, outbox, advance)), line)
    return reached


def outcome_of_step(advance: Callable[[], Wait]) -> Wait | Returned:
    """The result of a step: the next wait, or the end."""
    try:
        return advance()
    except StopIteration as end:
        return Returned(end.value)


def take_step_with_lock(outbox: Outbox, advance: Callable[[], Any]) -> Any:
    """Take a step once the session's lock is free; on a helper thread."""
    with outbox.lock:
        return outcome_of_step(advance)


def close_steps(outbox: Outbox, steps: Steps[Any]) -> None:
    """Close an abandoned procedure."""
    with SHIELD:
        if lock_unless_atomic(outbox):
            try:
                steps.close()
            finally:
                outbox.lock.release()
        else:
            start_thread(partial(take_step_with_lock, outbox, steps.close))


def lock_unless_atomic(outbox: Outbox) -> bool:
    """Take the session's lock. False if another thread holds it in an `atomic` block; other holders are waited for."""
    while not outbox.lock.acquire(blocking=False):
        if outbox.depth:
            return False
        if outbox.lock.acquire(timeout=MOMENT):
            return True
    return True
