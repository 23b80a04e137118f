"""`with session.atomic()`: one group, sent at the end; and calls that are refused inside."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.calls import signatures
from tensord.client.outbox import batches
from tensord.client.session.session import Session
from tensord.interpreter.wire.message_kinds import ATOMIC, CALL, LOCATION, RELEASE, RESTART, SIGNATURE, UPLOAD

from ...each_case import each_case

WAIT = 30.0


@pytest.fixture
def sent(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every message that the session sends from now on."""
    session.flush()
    messages: list[Any] = []
    send: Callable[[Any], None] = session._core.transport.send

    def note(batch: Any) -> None:
        messages.extend(batch)
        send(batch)

    monkeypatch.setattr(session._core.transport, "send", note)
    return messages


def kinds(messages: list[Any]) -> list[int]:
    return [message[0] for message in messages if message[0] != LOCATION]


def test_a_block_is_one_message(session: Session, sent: list[Any]) -> None:
    x = session.asarray([1.0, 2.0])
    with session.atomic():
        x += 1.0
        y = session.asarray([5.0])
        x *= 2.0
        session.flush()
        assert kinds(sent) == [UPLOAD]
    assert kinds(sent) == [UPLOAD, ATOMIC]
    assert [message[0] for message in sent[-1][1]] == [SIGNATURE, CALL, UPLOAD, SIGNATURE, CALL]
    assert (x.tolist(), y.tolist()) == ([4.0, 6.0], [5.0])


def test_an_empty_block_sends_nothing(session: Session, sent: list[Any]) -> None:
    with session.atomic():
        pass
    assert sent == []


def test_blocks_inside_of_one_another_are_one_group(session: Session, sent: list[Any]) -> None:
    x = session.asarray([1.0])
    with session.atomic():
        x += 1.0
        with session.atomic():
            x += 1.0
        assert ATOMIC not in kinds(sent)
        x += 1.0
    assert kinds(sent).count(ATOMIC) == 1
    assert x.tolist() == [4.0]


def test_many_ops_are_still_one_group(session: Session, sent: list[Any]) -> None:
    x = session.asarray([0.0])
    with session.atomic():
        for _ in range(1000):
            x += 1.0
    assert kinds(sent) == [UPLOAD, ATOMIC]
    assert x.tolist() == [1000.0]


def test_one_message_too_many_raises_at_its_line_and_the_others_are_sent(
    session: Session, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "GROUP", 5)
    x = session.asarray([0.0])
    with session.atomic(), pytest.raises(td.ProtocolError, match="at most 5 messages; split it") as caught:  # noqa: PT012
        for _ in range(5):  # four, and a signature
            x += 1.0
    assert "test_atomic.py" in (caught.value.location or "")
    assert x.tolist() == [4.0]
    assert kinds(sent).count(ATOMIC) == 1


@each_case(
    "wait",
    [
        lambda _s, x: x.numpy(),
        lambda _s, x: x.item(),
        lambda _s, x: x.wait(),
        lambda _s, x: x.is_ready(),
        lambda _s, x: x.error,
        lambda _s, x: x.residency(),
        lambda s, x: s.call("unique_values", [x])[0].shape,
        lambda s, _x: s.sync(),
        lambda s, _x: s.lookup("x"),
        lambda s, _x: s.names(),
        lambda s, _x: s.stats(),
        lambda s, _x: s.trace(),
        lambda s, _x: s.check_chain(),
        lambda s, _x: s.restart(),
    ],
)
def test_waiting_and_asking_inside_are_errors_at_that_line(session: Session, wait: Any) -> None:
    x = session.asarray([1.0])
    with session.atomic():
        x += 1.0
        with pytest.raises(td.ProtocolError, match=r"inside atomic\(\)") as caught:
            wait(session, x)
        assert "test_atomic.py" in (caught.value.location or "")
        x += 1.0
    assert x.tolist() == [3.0]
    assert session._core.transport._replies.open == {}


def test_publish_inside_returns_at_once_and_takes_effect_with_the_group(make_session: Callable[..., Session]) -> None:
    a, b = (make_session("local:atomic-publish") for _ in range(2))
    x = a.asarray([1.0])
    a.publish("old", x)
    with a.atomic():
        x += 1.0
        a.publish("x", x)
        a.unpublish("old")
        assert b.names() == ["old"]
    assert b.names() == ["x"]
    assert b.lookup("x").tolist() == [2.0]


def test_what_was_issued_before_an_exception_is_sent(session: Session) -> None:
    x = session.asarray([1.0])
    with pytest.raises(ZeroDivisionError), session.atomic():  # noqa: PT012
        x += 1.0
        raise ZeroDivisionError
    assert x.tolist() == [2.0]
    session.sync()  # and nothing is left of the block


def test_side_effects_and_moves_go_with_the_group(sim_session: Session) -> None:
    seen: list[Any] = []
    x = sim_session.asarray([1.0])
    with sim_session.atomic():
        moved = x.to_device("sim:0")
        chain = sim_session.chain()
        sim_session.effect(lambda values: seen.append(values.tolist()), moved, chain=chain)
        x += 1.0
    sim_session.check_chain(chain)
    assert seen == [[1.0]]
    assert x.tolist() == [2.0]


def test_handles_dropped_inside_are_released(session: Session, sent: list[Any]) -> None:
    x = session.asarray([1.0])
    with session.atomic():
        y = x + 1.0
        z = y * 2.0
        del y
        unused = session.asarray([7.0])
        del unused
    assert z.tolist() == [4.0]
    group = next(message[1] for message in sent if message[0] == ATOMIC)
    assert RELEASE not in kinds(group)
    assert [message[4] for message in group if message[0] == CALL] == [0, 1]
    assert session.stats()["session"]["tensors"] == 2


def test_signatures_that_take_old_numbers_leave_the_group_whole(
    session: Session, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signature numbers in a group keep the meaning they had at the call, also for the releases in it."""
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 3)
    x = session.asarray(np.ones((2, 2)))
    session.call("add", [x, 1.0])
    with session.atomic():
        made = [session.call("add", [x, 1.0])[0]]
        for op in ("negative", "exp", "square", "abs", "positive", "add", "multiply"):
            made.append(session.call(op, [made[-1], made[-1]] if op in {"add", "multiply"} else [made[-1]])[0])
        last = made[-1]
        del made
        gc.collect()
    wanted = np.square(np.exp(np.full((2, 2), -2.0)))
    np.testing.assert_allclose(last.numpy(), (2 * wanted) ** 2)
    assert kinds(sent).count(ATOMIC) == 1
    assert session.stats()["session"]["tensors"] == 2


def test_other_threads_wait_until_the_block_is_over(session: Session, sent: list[Any]) -> None:
    x = session.asarray([1.0])
    entered = threading.Event()
    found: list[Any] = []

    def other() -> None:
        entered.set()
        y = session.asarray([5.0])
        found.append((y + 1.0).tolist())

    thread = threading.Thread(target=other)
    with session.atomic():
        thread.start()
        entered.wait(WAIT)
        for _ in range(100):
            x += 1.0
            session._core.outbox.idle_flush()
        assert found == []
        assert ATOMIC not in kinds(sent)
    thread.join(WAIT)
    assert found == [[6.0]]
    group = next(message[1] for message in sent if message[0] == ATOMIC)
    assert UPLOAD not in kinds(group)
    assert x.tolist() == [101.0]


def test_cancel_inside_is_possible(session: Session) -> None:
    x = session.asarray([1.0])
    with session.atomic():
        x += 1.0
        session.cancel()
    with pytest.raises(td.CancelledError):
        x.numpy()
    session.restart()


def test_closing_inside_ends_the_block(session: Session) -> None:
    x = session.asarray([1.0])
    with session.atomic():
        x += 1.0
        session.close()
    with pytest.raises(td.ConnectionLost):
        x.numpy()
    with pytest.raises(td.ConnectionLost), session.atomic():
        session.asarray([1.0])


def test_a_group_that_cannot_be_sent_now_is_sent_later(session: Session) -> None:
    """A handler on the driving thread may issue, and the machine admits nothing there: it waits."""
    x, caught = session.asarray([1.0]), []

    def handler() -> None:
        nonlocal x
        try:
            with session.atomic():
                y = x + 1.0
                x = y * 2.0
        except td.ProtocolError as error:
            caught.append(str(error))

    session._core.effects.issue_tolerant(handler, (), None)  # unlike `effect`, it does not refuse at once
    session.check_chain()
    assert "neither send nor wait" in caught[0]
    assert x.tolist() == [4.0]


def test_a_restart_says_how_many_cancellations_it_knows(session: Session, sent: list[Any]) -> None:
    session.cancel()
    session.restart()
    session.cancel()
    session.cancel()
    session.restart()
    assert [message for message in sent if message[0] == RESTART] == [[RESTART, 1], [RESTART, 3]]
    assert session.asarray([1.0]).tolist() == [1.0]


def test_a_group_within_a_batch_keeps_its_place_and_waits_with_the_rest(session: Session, sent: list[Any]) -> None:
    x = session.asarray([1.0, 2.0])
    x += 1.0
    with session._core.outbox.grouped():
        x *= 2.0
        x -= 1.0
    y = x * 3.0
    assert y.tolist() == [9.0, 15.0]
    assert kinds(sent)[:6] == [UPLOAD, SIGNATURE, CALL, ATOMIC, SIGNATURE, CALL]


def test_a_group_of_one_or_no_message_is_none(session: Session, sent: list[Any]) -> None:
    x = session.asarray([1.0, 2.0])
    x *= 1.0
    for _ in range(2):
        with session._core.outbox.grouped():
            pass
        with session._core.outbox.grouped():
            x *= 1.0
    session.flush()
    assert kinds(sent) == [UPLOAD, SIGNATURE, CALL, CALL, CALL]


def test_a_group_inside_a_block_belongs_to_it(session: Session, sent: list[Any]) -> None:
    x = session.asarray([1.0, 2.0])
    with session.atomic():
        with session._core.outbox.grouped():
            x += 1.0
            x *= 2.0
        x -= 1.0
    assert kinds(sent) == [UPLOAD, ATOMIC]
    assert [message[0] for message in sent[-1][1]] == [SIGNATURE, CALL, SIGNATURE, CALL, SIGNATURE, CALL]


def test_what_was_issued_before_a_group_leaves_first_where_the_group_takes_its_numbers(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 2)
    x = session.asarray([1.0, 2.0])
    y = x + 1.0
    with session._core.outbox.grouped():
        for n in range(2, 6):
            x = session.xp.reshape(x, (1,) * n + (2,))
            y = y * 2.0
    del x
    assert y.tolist() == [32.0, 48.0]
    session.sync()
    assert session.stats()["session"]["tensors"] == 1
