"""Steps of several sessions in one procedure: for threads, and for event loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tensord as td
from tensord.client.cluster.gate import ClusterGate
from tensord.client.waiting.on_loop import on_loop
from tensord.client.waiting.procedures import of, side_by_side
from tensord.client.waiting.steps import Pause, Within, on_thread
from tensord.interpreter.errors import KernelError

from ...each_case import each_case


def asking(session, log, name):
    """A procedure that asks its machine twice."""
    try:
        log.append(f"{name} asks")
        yield session._core.answers.ask("names", 0)
        log.append(f"{name} asks again")
        yield Pause(0.0)
        yield session._core.answers.ask("names", 0)
    finally:
        log.append(f"{name} ends")
    return name


def failing():
    yield Pause(0.0)
    raise KernelError("it fails")


@pytest.fixture
def two():
    with td.connect("local") as first, td.connect("local") as second:
        yield first, second


def in_thread(steps):
    gate: Any = ClusterGate()
    return on_thread(gate, steps)


def in_loop(steps):
    async def main():
        gate: Any = ClusterGate()
        return await on_loop(gate, steps)

    return asyncio.run(main())


@each_case("taken", [in_thread, in_loop], ids=lambda taken: taken.__name__)
def test_all_ask_before_the_first_one_waits(taken, two):
    log: list[str] = []
    outboxes = [session._core.outbox for session in two]
    procedures = (
        (outbox, asking(session, log, n)) for n, (outbox, session) in enumerate(zip(outboxes, two, strict=True))
    )
    assert taken(side_by_side(procedures)) == [0, 1]
    assert log == ["0 asks", "1 asks", "0 asks again", "0 ends", "1 asks again", "1 ends"]


@each_case("taken", [in_thread, in_loop], ids=lambda taken: taken.__name__)
def test_one_that_fails_leaves_its_error_and_the_others_go_on(taken, two):
    log: list[str] = []
    outboxes = [session._core.outbox for session in two]
    failed, ended = taken(side_by_side([(outboxes[0], failing()), (outboxes[1], asking(two[1], log, "b"))]))
    assert isinstance(failed, KernelError)
    assert ended == "b"
    with pytest.raises(KernelError, match="it fails"):
        taken(of(outboxes[0], failing()))


def test_what_is_given_up_is_closed_on_every_node(two):
    log: list[str] = []
    outboxes = [session._core.outbox for session in two]

    def never(session):
        reply = session._core.transport.request()[1]
        yield Within(reply, 0.01)

    with pytest.raises(TimeoutError):
        in_thread(side_by_side([(outboxes[0], never(two[0])), (outboxes[1], asking(two[1], log, "b"))]))
    assert log == ["b asks", "b ends"]
