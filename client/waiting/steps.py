"""Procedures that wait, written once: for threads, which sleep, and for event loops, which must not.

Theory of operation. A procedure that waits is a generator: its *steps*. A step asks, checks and computes, and takes no
longer than an op. Between two steps the procedure yields what it waits for, and gets the result, or has the error
raised at the yield:

- a `Reply`: the answer to a question that it has asked; `Within` a time, otherwise TimeoutError is raised there;
- a `Pause`: some time;
- `MessageRoom` for more messages;
- `LongWork`: slow work in this process, such as opening a file;
- one of these `Elsewhere`: for another session, if a procedure is about several.

`on_thread` takes the steps on the calling thread. `on_loop` makes the event loop take them: the first one where the
form is called, which gives the question its position in program order, and the others when their answers have come.

Guarantees. No step waits. An abandoned procedure is closed like any generator, so its `finally` and `with` blocks undo
what it has begun; they do not wait either.

Rejected. A thread for each wait: questions would enter program order whenever these threads run, and an abandoned
wait would leave a thread behind. Coroutines in place of generators: a driver of threads would have to act as a loop.
Two forms of each procedure: a rule would be stated twice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ...interpreter.concurrency.interrupts import SHIELD
from ..transport.replies import Reply

if TYPE_CHECKING:
    from ..outbox.callbacks import Lock
    from ..outbox.outbox import Outbox

T = TypeVar("T")


def keep(_result: Any) -> None:
    """Do nothing with an abandoned result: it is freed with its last reference."""


class Within(NamedTuple):
    """The answer to a question, if it comes within that many seconds; None is no limit."""

    reply: Reply
    seconds: float | None


class Pause(NamedTuple):
    """Some time, in seconds."""

    seconds: float


class MessageRoom(NamedTuple):
    """Room for more messages."""


class LongWork(NamedTuple):
    """Slow work in this process. `drop` undoes an abandoned result; `stops`: an exception from outside may stop the
    work anywhere, since it only computes."""

    function: Callable[[], Any]
    drop: Callable[[Any], None] = keep
    stops: bool = False


class Elsewhere(NamedTuple):
    """A wait for another session than the one whose lock the steps are taken under."""

    outbox: Outbox
    wait: Wait


Wait: TypeAlias = Reply | Within | Pause | MessageRoom | LongWork | Elsewhere
Steps: TypeAlias = Generator[Wait, Any, T]
Awaiting: TypeAlias = Coroutine[Any, Any, T]  # the result of awaitable forms


def on_thread(outbox: Outbox, steps: Steps[T]) -> T:
    """Take the steps on this thread, and sleep in between; returns their result.

    The steps are regions (`interpreter/concurrency/interrupts`): an exception from outside is raised in the sleeps,
    where the procedure undoes what it has begun, or at the end. While another thread's `atomic` block is open, a step
    waits for its end in such a sleep, too.
    """
    try:
        with outbox.lock, SHIELD:
            wait = next(steps)
            while isinstance(wait, Reply) and wait.done:
                wait = next_wait(steps, outbox, wait)
        while True:
            with SHIELD:
                wait = next_wait(steps, outbox, wait)
    except StopIteration as end:
        result: T = end.value
        return result
    except BaseException:
        with SHIELD:
            steps.close()  # now, since a traceback may keep it
        raise


def next_wait(steps: Steps[Any], outbox: Outbox, wait: Wait) -> Wait:
    """Send a wait's result to a procedure; returns its next wait."""
    try:
        value = result_of_wait(outbox, wait)
        lock = lock_for_step(outbox, wait, value)
    except BaseException as error:  # also an interrupt: the procedure undoes what it has begun
        return steps.throw(error)
    try:
        return steps.send(value)
    finally:
        lock.release()


def lock_for_step(outbox: Outbox, wait: Wait, value: Any) -> Lock:
    """Take the session's lock for the next step. An exception in that sleep drops the wait's result."""
    try:
        return outbox.enter()
    except BaseException:
        if isinstance(wait, LongWork):
            wait.drop(value)
        raise


def result_of_wait(outbox: Outbox, wait: Wait) -> Any:
    """The result of one wait."""
    if isinstance(wait, Reply):
        return outbox.await_reply(wait)
    if isinstance(wait, Within):
        return outbox.await_reply(wait.reply, wait.seconds)
    if isinstance(wait, Elsewhere):
        return result_of_wait(wait.outbox, wait.wait)
    if isinstance(wait, MessageRoom):
        return outbox.transport.await_credit()
    if isinstance(wait, LongWork) and not wait.stops:
        return wait.function()
    with SHIELD.interruptible:
        return wait.function() if isinstance(wait, LongWork) else sleep(wait.seconds)
