"""Long runs in the daemon: whose turn it is in the middle of one, and what becomes of one that does not end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import CHAIN, FETCH, RELEASE, Atomic, Link, Run, encode_message
from tensord.vm.service import front as front_module

from ...fuzz.harness import Harness
from ...fuzz.programs import pack
from ..programs import accumulate, chain_of, parts_of

ME, OTHER = b"me", b"other"
LENGTH = 500
WINDOW = 64
X, PROGRAM, ROUTINE, RESULT = 1, 2, 3, 2000
ONE = [2, X, [1], "float64", "cpu:0", None, 0]
BYTES = [0, -1, bytes(8)]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A daemon whose quantum is over after each message."""
    monkeypatch.setattr(front_module, "QUANTUM_NS", 0)
    found = Harness(window=WINDOW)
    found.hello(ME)
    return found


def linked(harness: Harness, program: Program, captured: Sequence[int] = ()) -> None:
    """Upload x and link the program."""
    link: list[Any] = [*parts_of(PROGRAM, program), Link(ROUTINE, PROGRAM, ("cpu:0",), captured, 0)]
    messages = [encode_message(message) for message in link]
    harness.say(ME, [1, 1, [ONE, *messages, [RELEASE, [PROGRAM]]], [BYTES]])
    harness.listener.sent.clear()


def run_of(result: int = RESULT) -> list[Any]:
    return encode_message(Run(ROUTINE, (X,), (), (result,), (), 0))


def session_of(harness: Harness, who: bytes = ME) -> Any:
    return harness.registry.peers[harness.listener, who].session


def test_others_messages_come_between_the_ops_of_a_long_run(harness: Harness) -> None:
    linked(harness, chain_of(LENGTH))
    harness.hello(OTHER)
    harness.receive(ME, pack([1, 2, [run_of(), [FETCH, RESULT, 5, 0, 0]], []]))
    harness.front.feed()
    session, rounds = session_of(harness), 0
    while session.unfolding is not None:
        rounds += 1
        harness.receive(OTHER, pack([1, rounds, [[CHAIN, rounds]], []]))
        before = len(session.tensors)
        harness.front.feed()
        assert len(session_of(harness, OTHER).chains) == rounds, "the other has its turn first"
        assert len(session.tensors) == before
        harness.front.feed()
    assert rounds > LENGTH / 4
    harness.turn()
    assert harness.answers(ME)[5][0] == 2
    harness.check()


def test_no_message_of_others_comes_between_the_ops_of_a_group_s_runs(harness: Harness) -> None:
    linked(harness, chain_of(LENGTH))
    group = Atomic([run_of(RESULT), run_of(2 * RESULT)])
    harness.receive(ME, pack([1, 2, [encode_message(group), [FETCH, 2 * RESULT, 5, 0, 0]], []]))
    harness.front.feed()
    session = session_of(harness)
    assert session.unfolding is None
    assert {RESULT, 2 * RESULT} <= set(session.tensors)
    harness.turn()
    assert harness.answers(ME)[5][0] == 2
    harness.check()


def test_the_session_s_own_messages_wait_for_its_run(harness: Harness) -> None:
    linked(harness, chain_of(LENGTH))
    harness.receive(ME, pack([1, 2, [run_of(), [RELEASE, [ROUTINE, X]]], []]))
    harness.receive(ME, pack([1, 3, [[FETCH, RESULT, 5, 0, 0]], []]))
    harness.turn()
    assert harness.answers(ME)[5][0] == 2
    assert set(session_of(harness).tensors) == {RESULT}
    harness.check()


def test_a_run_whose_ops_pile_up_waits_until_some_are_done(harness: Harness) -> None:
    """However many there are: one message may bring thousands."""
    for stream in harness.bare.device.streams:
        stream.may_inline = stream.inline = False
    linked(harness, chain_of(LENGTH))
    harness.receive(ME, pack([1, 2, [run_of(), [FETCH, RESULT, 5, 0, 0]], []]))
    for _ in range(2 * LENGTH):
        harness.front.feed()
    session = session_of(harness)
    assert session.unfolding is not None
    assert WINDOW < len(session.live) < WINDOW + 10
    assert harness.front.stuck
    harness.turn()
    assert harness.answers(ME)[5][0] == 2
    harness.check()


@pytest.mark.parametrize("how", ["leaves", "cancelled"])
def test_a_run_that_does_not_end_leaves_nothing(harness: Harness, how: str) -> None:
    linked(harness, accumulate(), (X,))
    harness.say(ME, [1, 2, [[CHAIN, 50]], []])
    run = encode_message(Run(ROUTINE, (X, X), (1.0,), (RESULT,), ((50, None, 9),), 0))
    harness.receive(ME, pack([1, 3, [run, [FETCH, RESULT, 5, 0, 0]], []]))
    harness.front.feed()
    session = session_of(harness)
    assert session.unfolding is not None
    if how == "leaves":
        harness.disconnect()
    else:
        harness.engine.cancel(session)
        harness.turn()
        assert {request: kind for request, (kind, _) in harness.answers(ME).items()}.keys() == {5, 9}
    assert session.unfolding is None
    harness.check()
