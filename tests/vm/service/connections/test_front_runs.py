"""Long runs in the daemon: other sessions' turns in the middle of one, and the end of an endless one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.frames import AGAIN, ARRAY, ERROR, REPLIES, VALUE
from tensord.interpreter.wire.message_kinds import CHAIN, FETCH, RELEASE
from tensord.interpreter.wire.messages import Atomic, encode_message
from tensord.interpreter.wire.program_messages import Link, Run
from tensord.vm.service.connections import front as front_module

from ....compiled import replaces_parts
from ....fuzz.harness import Harness
from ....fuzz.programs import pack
from ...programs import accumulate, chain_of, parts_of

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
    harness.front.admit_next()
    session, rounds = session_of(harness), 0
    while session.unfolding is not None:
        rounds += 1
        harness.receive(OTHER, pack([1, rounds, [[CHAIN, rounds]], []]))
        before = len(session.tensors)
        harness.front.admit_next()
        assert len(session_of(harness, OTHER).chains) == rounds, "the other has its turn first"
        assert len(session.tensors) == before
        harness.front.admit_next()
    assert rounds > LENGTH / 4
    harness.turn()
    assert harness.answers(ME)[5][0] == 2
    harness.check()


def test_no_message_of_others_comes_between_the_ops_of_a_group_s_runs(harness: Harness) -> None:
    linked(harness, chain_of(LENGTH))
    group = Atomic([run_of(RESULT), run_of(2 * RESULT)])
    harness.receive(ME, pack([1, 2, [encode_message(group), [FETCH, 2 * RESULT, 5, 0, 0]], []]))
    harness.front.admit_next()
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
    """However many runs there are: one message may bring thousands."""
    for stream in harness.bare.device.streams:
        stream.may_inline = stream.inline = False
    linked(harness, chain_of(LENGTH))
    harness.receive(ME, pack([1, 2, [run_of(), [FETCH, RESULT, 5, 0, 0]], []]))
    for _ in range(2 * LENGTH):
        harness.front.admit_next()
    session = session_of(harness)
    assert session.unfolding is not None
    assert WINDOW < len(session.live) < WINDOW + 10
    assert harness.front.not_reading
    harness.turn()
    assert harness.answers(ME)[5][0] == 2
    harness.check()


@pytest.mark.parametrize("how", ["leaves", "cancelled"])
def test_a_run_that_does_not_end_leaves_nothing(harness: Harness, how: str) -> None:
    linked(harness, accumulate(), (X,))
    harness.say(ME, [1, 2, [[CHAIN, 50]], []])
    run = encode_message(Run(ROUTINE, (X, X), (1.0,), (RESULT,), ((50, None, 9),), 0))
    harness.receive(ME, pack([1, 3, [run, [FETCH, RESULT, 5, 0, 0]], []]))
    harness.front.admit_next()
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


UNTIL = """\
tensord program 1
parameter %0 x: float64[1] on d0
%1: float64[1] = while_loop %0
block
    number $0: float = 9.0
    parameter %0: float64[1] on d0
    %1: bool[1] = less %0, $0 on d0
    %2: bool[] = any %1 on d0
    return %2
block
    number $0: float = 2.0
    parameter %0: float64[1] on d0
    %1: float64[1] = add %0, $0 on d0
    print %1
    return %1
end
return %1"""


def waiting(harness: Harness) -> Any:
    """A run that waits for a value that no kernel has computed yet; its session."""
    for stream in harness.bare.device.streams:
        stream.may_inline = stream.inline = False
    linked(harness, Program.parse(UNTIL))
    harness.say(ME, [1, 2, [[CHAIN, 50]], []])
    run = encode_message(Run(ROUTINE, (X,), (), (RESULT,), ((50, None, 9),), 0))
    harness.receive(ME, pack([1, 3, [run, [FETCH, RESULT, 5, 0, 0], [RELEASE, [ROUTINE, X]]], []]))
    harness.receive(ME, pack([1, 4, [[RELEASE, [RESULT]]], []]))
    session = session_of(harness)
    while not session.waits():
        harness.front.admit_next()
    return session


def test_a_run_that_waits_for_a_value_keeps_its_session_s_messages_in_order_and_nobody_else_s(harness: Harness) -> None:
    session = waiting(harness)
    assert not harness.front.admit_next(), "the peer has no turn until the value is there"
    assert list(harness.front.waiting) == [harness.registry.peers[harness.listener, ME]]
    assert X in session.tensors
    assert ROUTINE in session.routines
    harness.hello(OTHER)
    harness.receive(OTHER, pack([1, 1, [[CHAIN, 1]], []]))
    harness.front.admit_next()
    assert len(session_of(harness, OTHER).chains) == 1
    harness.turn()
    answers = list(harness.headers(ME))
    told = [(request, kind) for header in answers if header[0] == REPLIES for request, kind, _ in header[4]]
    assert [kind for request, kind in told if request == 9] == [AGAIN] * 5 + [VALUE]
    assert [kind for request, kind in told if request == 5] == [ARRAY]
    assert not session.tensors
    assert not harness.front.waiting
    harness.check()


@replaces_parts
def test_a_turn_ends_where_a_run_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although its time is not over."""
    harness = Harness(window=WINDOW)
    harness.hello(ME)
    take, turns = harness.engine.take, []

    def count(*given: Any) -> None:
        turns.append(given)
        assert len(turns) < 20, "it goes round and round"
        take(*given)

    monkeypatch.setattr(harness.engine, "take", count)
    session = waiting(harness)
    assert session.waits()
    assert X in session.tensors, "the messages behind the run are not admitted yet"
    assert ROUTINE in session.routines


@pytest.mark.parametrize("how", ["leaves", "cancelled"])
def test_a_run_that_waits_for_a_value_when_its_peer_goes_leaves_nothing(harness: Harness, how: str) -> None:
    session = waiting(harness)
    harness.front.admit_next()
    if how == "leaves":
        harness.disconnect()
    else:
        harness.say(ME, [2, 1])
        told = harness.answers(ME)
        assert {request: kind for request, (kind, _) in told.items()} == {5: ERROR, 9: ERROR}
    assert session.unfolding is None
    assert not harness.front.waiting
    harness.check()


def test_a_loop_waits_for_a_client_that_does_not_read_what_it_prints(harness: Harness) -> None:
    text = UNTIL.replace("9.0", "1e5").replace("print %1", f"print {', '.join(['%1'] * 8)}")
    linked(harness, Program.parse(text))
    harness.say(ME, [1, 2, [[CHAIN, 50]], []])
    harness.listener.full.add(ME)
    run = encode_message(Run(ROUTINE, (X,), (), (RESULT,), ((50, None, 9),), 0))
    harness.send(ME, pack([1, 3, [run, [FETCH, RESULT, 5, 0, 0]], []]))
    session, peer = session_of(harness), harness.registry.peers[harness.listener, ME]
    assert session.in_run()
    assert len(peer.unsent) + len(peer.answers) < 2000
    rounds = session.unfolding
    harness.turn()
    assert session.unfolding is rounds
    harness.listener.full.clear()
    harness.listener.sent.clear()
    harness.say(ME, [2, 1])
    assert harness.answers(ME)[9][0] == ERROR
    harness.check()
