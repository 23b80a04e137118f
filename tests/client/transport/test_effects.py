"""Callbacks of side effects: their order, their errors, cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensord.client.transport.effects import EffectAnswer, SideEffectRunner, call_back
from tensord.client.transport.outgoing import SideEffect
from tensord.interpreter.errors import CancelledError, KernelError, TensordError

CHECK = 90  # the request that checks the chain


class Effects(SideEffectRunner):
    """Side effects with numbered requests. `settled`: the results of the checks of chains."""

    def __init__(self) -> None:
        self.under_way: dict[int, SideEffect] = {}
        self.settled: list[tuple[int, TensordError | None]] = []
        super().__init__(self.under_way, lambda request, error: self.settled.append((request, error)))

    def expect(self, number: int, callback: Callable[..., Any], chain: int = 1, *, repeats: bool = False) -> None:
        self.under_way[number] = SideEffect(callback, chain, CHECK + chain, f"user.py:{number}", repeats)

    def arrive(self, number: int, *values: Any, error: TensordError | None = None, again: bool = False) -> None:
        self.answers.append(EffectAnswer(number, values, error, again))


@pytest.fixture
def effects() -> Effects:
    return Effects()


def fail() -> None:
    raise ValueError("broken")


def test_callbacks_run_in_the_order_of_the_answers_with_arrays_of_their_own(effects: Effects) -> None:
    seen: list[Any] = []
    sent = np.ones(2)
    for number in (1, 2):
        effects.expect(number, seen.append)
    effects.arrive(2, sent)
    effects.arrive(1, 3.0)
    effects.run()
    sent[:] = 0
    assert [np.array(one).tolist() for one in seen] == [[1, 1], 3.0]
    assert (effects.under_way, effects.settled) == ({}, [(CHECK + 1, None)] * 2)


def test_an_error_stops_its_own_chain_only(effects: Effects) -> None:
    seen: list[int] = []
    effects.expect(1, fail)
    effects.expect(2, lambda: seen.append(2))
    effects.expect(3, lambda: seen.append(3), chain=2)
    for number in (1, 2, 3):
        effects.arrive(number)
    effects.run()
    assert seen == [3]
    (_, first), (_, second), (_, other) = effects.settled
    assert first is second
    assert isinstance(first, KernelError)
    assert (first.location, other) == ("user.py:1", None)


def test_what_was_sent_before_a_cancellation_is_cancelled_although_it_has_arrived(effects: Effects) -> None:
    seen: list[int] = []
    for number in (1, 2):
        effects.expect(number, lambda number=number: seen.append(number))
        effects.arrive(number)
    effects.cancel(2)
    effects.run()
    assert seen == [2]
    assert [type(error) for _, error in effects.settled] == [CancelledError, type(None)]


def test_a_cancellation_restores_broken_chains(effects: Effects) -> None:
    seen: list[int] = []
    effects.expect(1, fail)
    effects.arrive(1)
    effects.run()
    effects.cancel(2)
    effects.expect(3, lambda: seen.append(3))
    effects.arrive(3)
    effects.run()
    assert seen == [3]


def test_one_that_repeats_ends_with_its_last_answer_which_has_no_values(effects: Effects) -> None:
    seen: list[int] = []
    effects.expect(1, seen.append, repeats=True)
    for value in (5, 6):
        effects.arrive(1, value, again=True)
    effects.run()
    assert (seen, effects.settled, len(effects.under_way)) == ([5, 6], [], 1)
    effects.arrive(1)
    effects.run()
    assert (seen, effects.settled, effects.under_way) == ([5, 6], [(CHECK + 1, None)], {})


def test_a_second_thread_leaves_the_callbacks_to_the_first(effects: Effects) -> None:
    """Only the first thread counts as inside of a callback."""
    ran: list[bool] = []

    def elsewhere() -> None:
        effects.run()
        ran.append(effects.thread == threading.get_ident())

    def callback() -> None:
        ran.append(effects.thread == threading.get_ident())
        effects.arrive(2)
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        assert 2 in effects.under_way

    effects.expect(1, callback)
    effects.expect(2, lambda: ran.append(True))
    effects.arrive(1)
    effects.run()
    assert ran == [True, False, True]
    assert effects.thread == 0
    assert effects.settled == [(CHECK + 1, None)] * 2


def test_an_error_that_several_callbacks_raise_stays_as_it_is() -> None:
    """The error may be a tensor's, which others share: each effect adds its own line to a copy."""
    known = KernelError("broken")

    def fail() -> None:
        raise known

    found = [call_back(SideEffect(fail, 1, 0, f"user.py:{line}"), ()) for line in (1, 2)]
    assert [(error.message, error.op, error.location) for error in found if error] == [
        ("broken", "effect", "user.py:1"),
        ("broken", "effect", "user.py:2"),
    ]
    assert (known.op, known.location, known.__traceback__ is None) == (None, None, False)
