"""The engine admits messages in order, once, and in windows, so that finished instructions do not wait long."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tensord.interpreter.wire.message_kinds import CALL
from tensord.interpreter.wire.messages import Atomic, Chain, Effect, Location, Release, Sync, encode_message
from tensord.vm.engine import WINDOW

from .bare_engine import Bare, array_of


@pytest.fixture
def bare() -> Bare:
    return Bare()


def locations(first: int, count: int) -> list[list[object]]:
    return [encode_message(Location(number, f"line {number}")) for number in range(first, first + count)]


def test_batches_are_admitted_in_the_order_of_their_arrival(bare: Bare) -> None:
    a, b = bare.client().session, bare.client().session
    order: list[tuple[int, int]] = []
    bare.engine.admission.handlers[Location] = lambda session, message: order.append((session.id, message.number))
    bare.engine.receive(a, locations(10, 2))
    bare.engine.receive(b, locations(20, 1))
    bare.engine.receive(a, locations(12, 1))
    bare.schedule()
    assert order == [(a.id, 10), (a.id, 11), (b.id, 20), (a.id, 12)]


@pytest.mark.parametrize("sizes", [(WINDOW,), (WINDOW + 1,), (1, WINDOW), (WINDOW - 1, 1), (100, 300, 50), (0, 3)])
def test_a_pass_admits_a_window_and_nothing_is_lost_between_two(bare: Bare, sizes: tuple[int, ...]) -> None:
    session = bare.client().session
    session.source.lines.forget(1)
    first = 1
    for size in sizes:
        bare.engine.receive(session, locations(first, size))
        first += size
    left = sum(sizes)
    while left:
        assert bare.engine.waiting()[session.id] == left
        assert bare.engine.schedule()
        left = max(left - WINDOW, 0)
        assert [session.source.where(number) is not None for number in range(1, sum(sizes) + 1)] == (
            [True] * (sum(sizes) - left) + [False] * left
        )
    assert bare.engine.waiting().total() == 0
    bare.schedule()
    assert not bare.engine.pending


def test_what_waits_is_counted_by_session(bare: Bare) -> None:
    a, b = bare.client().session, bare.client().session
    for session, count in ((a, 2), (b, 3), (a, 4)):
        bare.engine.receive(session, locations(1, count))
    assert bare.engine.waiting() == {a.id: 6, b.id: 3}


def test_without_messages_and_completions_a_pass_does_nothing(bare: Bare) -> None:
    bare.schedule()
    before = bare.now
    assert not bare.engine.schedule()
    assert bare.now == before


def test_a_fault_of_admission_is_no_refusal_of_the_clients_message(bare: Bare) -> None:
    client = bare.client()

    def broken(*_: Any) -> None:
        raise RuntimeError("made by the test")

    bare.engine.admission.handlers[Sync] = broken
    with pytest.raises(RuntimeError, match="made by the test"):
        client.ask(Sync(0, 1))
    assert isinstance(bare.engine.fault, RuntimeError)
    assert (bare.errors, client.answers) == ([], {})


def test_in_a_group_too(bare: Bare) -> None:
    client = bare.client()

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    bare.engine.admission.handlers[Release] = broken
    with pytest.raises(ZeroDivisionError):
        client.send(Atomic([array_of(Release((1,)))]))
    assert isinstance(bare.engine.fault, ZeroDivisionError)
    assert bare.errors == []


def test_a_damaged_message_on_which_the_short_path_stumbles_is_refused(bare: Bare) -> None:
    client = bare.client()
    client.send([CALL, [], (1,), (2,), 0, 1])  # a list has no hash, so looking it up raises a TypeError
    assert bare.engine.fault is None
    assert "the field 'signature' of a CALL message is list" in str(bare.errors[0])


def test_a_pass_in_which_a_cancellation_failed_raises_even_if_the_canceller_went_on(bare: Bare) -> None:
    client = bare.client()
    client.send(Chain(client.new()))

    def cancel(*_: Any) -> None:
        client.session.live[0] = cast("Any", None)
        with pytest.raises((AttributeError, TypeError)):
            bare.engine.begin_cancel(client.session)

    with pytest.raises((AttributeError, TypeError)):
        client.send(Effect((), client.ids, cancel, 0, 1))


@pytest.mark.parametrize("what", ["begin_cancel", "take"])
def test_a_fault_outside_of_the_passes_is_kept_too(what: str) -> None:
    """An invalid object among a session's instructions, and an invalid batch of messages."""
    bare = Bare(inline=False)
    client, nothing = bare.client(), cast("Any", None)
    client.session.live[1] = nothing
    with pytest.raises((AttributeError, TypeError)) as raised:
        bare.engine.begin_cancel(client.session) if what == "begin_cancel" else bare.engine.take(
            client.session, nothing
        )
    assert bare.engine.fault is raised.value
