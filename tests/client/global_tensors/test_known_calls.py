"""Repeated calls: one message with the calls of all parts."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.calls import signatures
from tensord.client.outbox import batches
from tensord.interpreter.wire.message_kinds import ATOMIC, CALL, LOCATION

ROWS = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def session(make_session):
    return make_session(devices=["cpu:0", "sim:0", "sim:1"])


@pytest.fixture
def x(session):
    return session.global_tensor(ROWS, td.placement(["sim:0", "sim:1"]))


@pytest.fixture
def sent(session, monkeypatch):
    session.flush()
    messages = []
    send = session._core.transport.send

    def note(batch):
        messages.extend(batch)
        send(batch)

    monkeypatch.setattr(session._core.transport, "send", note)
    return messages


CALLS = {
    "operator": lambda x: x + x,
    "number": lambda x: x * 2,
    "unary": lambda x: -x,
    "in place": lambda x: x.__iadd__(1.5),
    "by name": lambda x: x.sum(axis=0),
    "out": lambda x: x._core.calls.call(x._core, "multiply", [x, 2.0], out=[x])[0],
    "several results": lambda x: x._core.calls.call(x._core, "qr", [x])[1],
    "view": lambda x: x[1:],
}


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_of_a_kind_is_one_message_with_a_call_for_each_part(session, x, sent, name):
    plain = session.asarray(x.numpy())
    for _ in range(3):
        sent.clear()
        made, expected = CALLS[name](x), CALLS[name](plain)
        session.flush()
    groups = [message for message in sent if message[0] == ATOMIC]
    assert [[inner[0] for inner in group[1]] for group in groups] == [[CALL, CALL]]
    np.testing.assert_array_equal(made.numpy(), expected.numpy())
    np.testing.assert_array_equal(x.numpy(), plain.numpy())


def test_it_has_the_users_line(session, x, sent):
    for _ in range(3):
        _ = x + x
    session.flush()
    lines = {message[2] for message in sent if message[0] == LOCATION}
    assert {line.split(" in ")[1] for line in lines} == {"test_it_has_the_users_line"}


def test_large_ints_go_the_long_way(session):
    n = session.global_tensor(np.arange(3, dtype="int8"), td.placement(["sim:0", "sim:1"]))
    for _ in range(2):
        assert (n + 100).tolist() == [100, 101, 102]
    with pytest.raises(OverflowError):
        _ = n + 200
    assert (n + 1).tolist() == [1, 2, 3]


def test_a_released_part_is_refused_each_time(x):
    y = x + x
    y = x + y
    x.release()
    for _ in range(2):
        with pytest.raises(td.ProtocolError, match="was released"):
            _ = x + y
        with pytest.raises(td.ProtocolError, match="was released"):
            y += x


def test_signatures_whose_numbers_were_given_away_are_sent_again(x, monkeypatch):
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 3)
    y = x
    for _ in range(3):
        y = y + x
        y = y * 2
    assert y.sum().item() == ROWS.sum() * 22


def test_calls_in_an_atomic_block_belong_to_its_group(session, x, sent):
    y = x + x
    session.flush()
    sent.clear()
    with session.atomic():
        y = x + y
        y = x + y
    assert [message[0] for message in sent if message[0] != LOCATION] == [ATOMIC]
    np.testing.assert_array_equal(y.numpy(), 4 * ROWS)


def test_a_context_holds_the_parts_of_known_calls(session, x):
    with session.context():
        for _ in range(3):
            y = x + x
    with pytest.raises(td.ProtocolError, match="context ended"):
        y.numpy()


def test_the_same_under_handlers_and_in_sessions_that_find_periods(make_session):
    found = []
    for routines in (None, "auto"):
        session = make_session(devices=["cpu:0", "sim:0", "sim:1"], routines=routines)
        x = session.global_tensor(ROWS, td.placement(["sim:0", "sim:1"]))
        for n in range(40):
            y = x * 2 + x
            x += y * 1e-3
            if n == 20:
                session.handler = session.handler.__call__
        found.append(x.numpy().tobytes())
    assert found[0] == found[1]


def test_a_handler_gets_the_calls_of_kinds_that_were_known_before(session, x):
    seen = []
    calls = [lambda: x + x, lambda: -x, lambda: session.call("add", [x, 1.5])]
    for call in calls * 2:
        call()
    before = session.handler

    def note(invocation):
        seen.append(invocation.op.name)
        return before(invocation)

    session.handler = note
    for call in calls:
        call()
    session.handler = before
    _ = x + x
    assert seen == ["add", "add", "negative", "negative", "add", "add"]


def test_a_plain_tensor_without_dimensions_is_brought_to_each_device_each_time(session, x):
    for number in (2.0, 3.0, 4.0):
        n = session.asarray(number, device="sim:1")
        for found in (x + n, n + x, session.xp.add(x, n), session.xp.add(n, x)):
            np.testing.assert_array_equal(found.numpy(), ROWS + number)


def test_results_that_are_dropped_are_released_with_or_without_handles_of_their_parts(session, x):
    def held():
        session.sync()
        return session.stats()["session"]["tensors"]

    before = held()
    y = x
    for n in range(8):
        y = y + x
        if n % 2:
            assert len(y.parts()) == 2
    np.testing.assert_array_equal(y.numpy(), 9 * ROWS)
    assert held() == before + 2
    del y
    assert held() == before


def test_handles_of_parts_are_made_once_also_by_threads_at_the_same_time(x):
    made = [x + n for n in range(200)]
    at_once = threading.Barrier(4)
    found: list[list[Any]] = [[], [], [], []]

    def look(mine):
        at_once.wait()
        mine.extend(each._parts for each in made)

    threads = [threading.Thread(target=look, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len({id(each) for each in parts}) == 1 for parts in zip(*found, strict=True))
    for n, each in enumerate(made):
        np.testing.assert_array_equal(each.numpy(), ROWS + n)


def test_a_context_holds_a_result_and_not_what_is_asked_for_later_inside(session, x):
    for _ in range(3):
        y = x + x
    with session.context():
        assert len(y.parts()) == 2
        z = x + x
    np.testing.assert_array_equal(y.numpy(), 2 * ROWS)
    with pytest.raises(td.ProtocolError, match="context ended"):
        _ = z + x


def test_a_block_that_is_full_refuses_known_calls_too(session, x, monkeypatch):
    for _ in range(2):
        _ = x + x
    monkeypatch.setattr(batches, "GROUP", 5)

    def overfill():
        with session.atomic():
            for _ in range(9):
                _ = x + x

    with pytest.raises(td.ProtocolError, match="holds at most 5 messages"):
        overfill()
    np.testing.assert_array_equal((x + x).numpy(), 2 * ROWS)


def test_a_call_that_does_not_fit_into_a_block_writes_no_part(session, x, monkeypatch):
    x += 1.0
    x += 1.0
    monkeypatch.setattr(batches, "GROUP", 3)

    def overfill():
        with session.atomic():
            nonlocal x
            x += 1.0
            x += 1.0

    with pytest.raises(td.ProtocolError, match="holds at most 3 messages"):
        overfill()
    np.testing.assert_array_equal(x.numpy(), ROWS + 3)
