"""A reply calls back exactly once, in every order of the threads."""

from __future__ import annotations

import threading

import pytest

from tensord.client.transport.replies import Reply
from tensord.interpreter.errors import KernelError


def test_callbacks_are_called_once_and_in_order_when_the_answer_is_set() -> None:
    reply, called = Reply(), []
    for number in range(3):
        reply.when_done(lambda number=number: called.append((number, reply.value)))  # type: ignore[misc]
    assert called == []
    reply.set(7, None)
    reply.set(8, KernelError("late"))
    assert called == [(0, 7), (1, 7), (2, 7)]
    assert reply.result() == 7


def test_a_callback_that_comes_later_is_called_at_once() -> None:
    reply, called = Reply(), []
    reply.set(None, KernelError("broken"))
    reply.when_done(lambda: called.append(reply.done))
    assert called == [True]
    with pytest.raises(KernelError, match="broken"):
        reply.result()


def test_an_error_in_a_callback_is_its_own() -> None:
    def fail() -> None:
        raise IndexError("of the callback")

    reply = Reply()
    reply.when_done(fail)
    with pytest.raises(IndexError, match="of the callback"):
        reply.set(1, None)


def test_a_callback_that_races_with_the_answer_is_called_once() -> None:
    called: list[int] = []
    for number in range(300):
        reply, start = Reply(), threading.Barrier(2)

        def add(reply: Reply = reply, start: threading.Barrier = start, number: int = number) -> None:
            start.wait()
            reply.when_done(lambda: called.append(number))

        thread = threading.Thread(target=add)
        thread.start()
        start.wait()
        reply.set(None, None)
        thread.join()
    assert called == list(range(300))
