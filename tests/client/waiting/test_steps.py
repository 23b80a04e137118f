"""Steps on a thread: their results and errors, and the rollback of abandoned steps."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

import pytest

from tensord.client.waiting.on_loop import on_loop
from tensord.client.waiting.steps import LongWork, MessageRoom, Pause, Steps, Within, on_thread

from ...behaviours.looking_inside import held


def test_a_thread_takes_the_steps_in_turn(session):
    def steps() -> Steps[list[Any]]:
        found: list[Any] = [(yield session._core.answers.ask("names", 0))]
        found.append((yield Pause(0.0)))
        found.append((yield MessageRoom()))
        found.append((yield LongWork(threading.get_ident)))
        return found

    names, *others = on_thread(session._core.outbox, steps())
    assert list(names) == []
    assert others == [None, None, threading.get_ident()]


def test_errors_are_raised_where_the_procedure_waits(session):
    def fail() -> None:
        raise LookupError

    def steps() -> Steps[str]:
        try:
            yield LongWork(fail)
        except LookupError:
            return "caught"
        return "not raised"

    assert on_thread(session._core.outbox, steps()) == "caught"


def test_an_interrupt_undoes_what_was_begun(session):
    undone = []

    def steps() -> Steps[None]:
        try:
            yield LongWork(lambda: signal.raise_signal(signal.SIGINT))
        finally:
            undone.append(True)

    with pytest.raises(KeyboardInterrupt):
        on_thread(session._core.outbox, steps())
    assert undone == [True]


def test_an_answer_that_is_late_is_a_timeout_on_threads_and_in_loops(session):
    """An error is caught where the procedure waits; the answer that comes later is taken all the same."""
    x = session.asarray([1.0])
    session.sync()

    def steps(timeout: float | None) -> Steps[str]:
        try:
            yield Within(session._core.answers.ask_ready(x + 1), timeout)
        except TimeoutError as error:
            return str(error)
        return "in time"

    async def main() -> list[str]:
        return [await on_loop(session._core.outbox, steps(0.001)), await on_loop(session._core.outbox, steps(0))]

    with held(session, "cpu:0", "compute"):
        assert on_thread(session._core.outbox, steps(0.001)) == "no result within 0.001 s"
        assert asyncio.run(main()) == ["no result within 0.001 s", "no result within 0 s"]
    assert on_thread(session._core.outbox, steps(None)) == "in time"
    assert asyncio.run(one(on_loop(session._core.outbox, steps(None)))) == "in time"


async def one(form: Any) -> Any:
    """A form by itself."""
    return await form


def test_a_lookup_that_is_interrupted_leaves_no_tensor(session):
    """The answer comes, and no caller makes handles of it."""
    session.publish("w", session.asarray([1.0]))
    session.sync()
    before = session.stats()["session"]["tensors"]
    steps = session._core.names.looking_up(("w",), snapshot=False, wait=None)
    next(steps)
    steps.close()
    session.sync()
    session.flush()
    assert session.stats()["session"]["tensors"] == before
    session.unpublish("w")
