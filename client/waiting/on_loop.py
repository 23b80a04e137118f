"""How an event loop takes the steps of a procedure that waits.

Theory of operation. The first step is taken where the awaitable form is called: this gives the question its position in
program order and its line, and errors in the arguments are raised there. The rest is a coroutine. It awaits the answer,
which the thread that sets it announces to the loop (`Reply.when_done`); the background thread reads answers that no
thread waits for (`Transport.attend`).

Guarantees. The loop's thread never sleeps in a step. A step takes the session's locks, which no thread holds while it
waits. One lock may be held for long nevertheless: the outbox's, by a thread inside `atomic`. Then a helper's thread
takes the step, after that block. A question needs no room: if a session has several windows of messages unfinished, the
transport keeps the question at its position (`transport/outgoing`). A coroutine that is cancelled, or dropped with its
loop, closes the procedure; the answer is still read, and dropped. A coroutine yields to the loop at least once, so that
a task that awaits ready values in turn does not keep others from running.

Room. A program that issues ops faster than the machine executes them has to wait. Of a loop's tasks that wait for room
in a session, the first one checks every few milliseconds, and the others wait for it. Meanwhile the background thread
reads the daemon's reports of progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import TensordError
from ..locations.locations import HANDLED, user_line
from ..locations.tracebacks import PUBLIC_ERRORS, hide
from ..transport.replies import Reply
from .helper import start, started
from .steps import Awaiting, Elsewhere, LongWork, MessageRoom, Steps, Wait, Within

if TYPE_CHECKING:
    from ..outbox.outbox import Outbox


T = TypeVar("T")
MOMENT: Final = 0.001  # seconds within which a thread usually hands a batch over


class Returned(NamedTuple):
    """The end of a procedure, and its result."""

    value: Any


def on_loop(outbox: Outbox, steps: Steps[T]) -> Awaiting[T]:
    """Take the first step; the coroutine takes the others. Raises the error of the first step."""
    line = user_line()
    reached = None
    with SHIELD:
        if enter(outbox):
            try:
                reached = taken(partial(next, steps))
            finally:
                outbox.lock.release()
    return rest(outbox, steps, reached, line)


async def rest(outbox: Outbox, steps: Steps[T], reached: Wait | Returned | None, line: str | None) -> T:
    """Take the steps after `reached`; None: the first step is not taken yet, since another thread had the lock."""
    try:
        if reached is None:
            reached = await step(outbox, partial(next, steps), line)
        elif type(reached) is Returned:
            await asyncio.sleep(0)
        while not isinstance(reached, Returned):
            reached = await step(outbox, await following(outbox, steps, reached, line), line)
    except PUBLIC_ERRORS as error:
        if isinstance(error, TensordError) and error.location is None:
            error.location = line
        hide(error)
        raise
    value: T = reached.value
    return value


async def following(outbox: Outbox, steps: Steps[T], wait: Wait, line: str | None) -> Callable[[], Wait]:
    """The next step after a wait."""
    try:
        value = await over(outbox, wait, line)
    except Exception as error:
        return partial(steps.throw, error)
    except BaseException:  # the task is cancelled, or the coroutine dropped
        close(outbox, steps)
        raise
    return partial(steps.send, value)


async def over(outbox: Outbox, wait: Wait, line: str | None) -> Any:
    """The result of one wait."""
    if isinstance(wait, Reply):
        return await answer(outbox, wait)
    if isinstance(wait, Within):
        return await answer_within(outbox, wait)
    if isinstance(wait, LongWork):
        return await started(wait, line)
    if isinstance(wait, MessageRoom):
        return await room(outbox)
    if isinstance(wait, Elsewhere):
        return await over(wait.outbox, wait.wait, line)
    return await asyncio.sleep(wait.seconds)


async def answer(outbox: Outbox, reply: Reply) -> Any:
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


async def answer_within(outbox: Outbox, wait: Within) -> Any:
    """The value of a reply; TimeoutError if it does not come in time."""
    try:
        async with asyncio.timeout(wait.seconds):
            return await answer(outbox, wait.reply)
    except TimeoutError:
        raise TimeoutError(f"no result within {wait.seconds:g} s") from None


def announce(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """Announce an answer to a loop. Called on the thread that sets it, inside any lock."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(finish, future)


def finish(future: asyncio.Future[None]) -> None:
    """Let the coroutine go on; on the loop's thread."""
    if not future.done():
        future.set_result(None)


# -- steps, and their lock ---------------------------------------------------------------------------------------------


async def step(outbox: Outbox, move: Callable[[], Wait], line: str | None) -> Wait | Returned:
    """Take a step: here, or after another thread's `atomic` block on a helper's thread."""
    with SHIELD:
        if enter(outbox):
            before, HANDLED.line = HANDLED.line, line
            try:
                return taken(move)
            finally:
                HANDLED.line = before
                outbox.lock.release()
    reached: Wait | Returned = await started(LongWork(partial(inside, outbox, move)), line)
    return reached


def taken(move: Callable[[], Wait]) -> Wait | Returned:
    """The result of a step: the next wait, or the end."""
    try:
        return move()
    except StopIteration as end:
        return Returned(end.value)


def inside(outbox: Outbox, move: Callable[[], Any]) -> Any:
    """Take a step once the session's lock is free."""
    with outbox.lock:
        return taken(move)


def close(outbox: Outbox, steps: Steps[Any]) -> None:
    """Close an abandoned procedure."""
    with SHIELD:
        if enter(outbox):
            try:
                steps.close()
            finally:
                outbox.lock.release()
        else:
            start(partial(inside, outbox, steps.close))


def enter(outbox: Outbox) -> bool:
    """Take the session's lock; False if another thread holds it in an `atomic` block."""
    while not outbox.lock.acquire(blocking=False):
        if outbox.depth:
            return False
        if outbox.lock.acquire(timeout=MOMENT):
            return True
    return True


# -- room for more messages --------------------------------------------------------------------------------------------

ENOUGH: Final = 0.5  # of a window: unfinished messages that still count as room
PAUSE: Final = 0.002  # seconds between two checks

# The task that checks is the only owner of its future, so a loop that is closed meanwhile leaves nothing behind.
Looks: TypeAlias = "WeakValueDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]]"
_looking: WeakKeyDictionary[Outbox, Looks] = WeakKeyDictionary()


async def room(outbox: Outbox) -> None:
    """Wait until half a window is free, or the session has ended."""
    loop = asyncio.get_running_loop()
    looks = _looking.setdefault(outbox, WeakValueDictionary())
    while not outbox.transport.has_room(ENOUGH):
        seen = looks.get(loop)
        if seen is None:
            looks[loop] = seen = loop.create_future()
            await look(outbox, looks, seen)
        else:
            await asyncio.shield(seen)


async def look(outbox: Outbox, looks: Looks, seen: asyncio.Future[None]) -> None:
    """Check until there is room, or the session has ended, and wake the other tasks. If this task is cancelled, one of
    them goes on."""
    read = Reply()  # makes the background thread read reports of progress
    try:
        with suppress(TensordError):
            outbox.transport.attend(read)
            while not outbox.transport.has_room(ENOUGH):  # noqa: ASYNC110 - no thread announces room
                await asyncio.sleep(PAUSE)
    finally:
        read.set(None, None)
        looks.pop(seen.get_loop(), None)  # the collector may have taken it already, with a closed loop
        with suppress(RuntimeError):  # the loop is closed
            seen.set_result(None)
