"""Messages that are about other messages: atomic groups, restarts, questions; and looking up present values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensord.interpreter.errors import CancelledError, ProtocolError, QuotaError
from tensord.interpreter.wire.message_kinds import (
    ATOMIC,
    CALL,
    FETCH,
    LOOKUP,
    NAMES,
    PUBLISH,
    QUERY,
    RELEASE,
    RESTART,
    SYNC,
    UNGROUPED,
    WAIT,
)
from tensord.interpreter.wire.message_kinds import MessageKind as M
from tensord.interpreter.wire.messages import Atomic, ListNames, Query, Restart, encode_message

from ..bare_engine import ONE, Bare, Client


@pytest.fixture(params=[True, False], ids=["inline", "streams"])
def bare(request: pytest.FixtureRequest) -> Bare:
    return Bare(inline=request.param)


def increments(client: Client, *ids: int) -> list[list[Any]]:
    """Messages that add 1 to each."""
    number = client.signature("add", (ONE, "float"), (), (ONE,))
    return [[CALL, number, (id_, 1.0), (id_,), 0, 1] for id_ in ids]


def test_a_group_is_admitted_with_nothing_in_between(bare: Bare) -> None:
    writer, reader = bare.client(), bare.client()
    x, y = writer.upload([0.0]), writer.upload([0.0])
    writer.publish("x", "y", ids=[x, y])
    seen = [reader.lookup("x"), reader.lookup("y")]
    pairs = []
    for _ in range(5):
        bare.engine.receive(writer.session, [[ATOMIC, increments(writer, x, y)]])
        pairs.append([reader.fetch(id_) for id_ in seen])
    assert pairs == [[[n], [n]] for n in (1.0, 2.0, 3.0, 4.0, 5.0)]


def test_a_group_larger_than_the_window_is_still_one(bare: Bare) -> None:
    writer, reader = bare.client(), bare.client()
    x = writer.upload([0.0])
    writer.publish("x", ids=[x])
    theirs = reader.lookup("x")
    bare.engine.receive(writer.session, [[ATOMIC, increments(writer, *(x,) * 600)]])
    bare.engine.receive(reader.session, [[FETCH, theirs, 99, 0, 0]])
    bare.drain()
    assert reader.answers[99][0].tolist() == [600.0]


FORBIDDEN: dict[int, list[Any]] = {
    M.FETCH: [FETCH, 1, 1, 0, 0],
    M.WAIT: [WAIT, (1,), 1, 0],
    M.SYNC: [SYNC, 1, 0],
    M.LOOKUP: [LOOKUP, (), (), 1, False],
    M.NAMES: [NAMES, 1],
    M.QUERY: [QUERY, "stats", (), 1],
    M.RESTART: [RESTART, 0],
    M.ATOMIC: [ATOMIC, []],
    M.FILE: [int(M.FILE), 1, (), 1, False],
    M.FLUSH: [int(M.FLUSH), 1, 1],
    M.CHECKPOINT: [int(M.CHECKPOINT), "/there", (), 2, 1, 0],
    M.RESTORE: [int(M.RESTORE), "/there", 0, (), False, 1],
    M.SHARE: [int(M.SHARE), 1, 1, 0, 99],
}


@pytest.mark.parametrize(
    "damage", [*FORBIDDEN.values(), [], None, [99], [CALL, 1], [PUBLISH, "x", (), 0, False], [ATOMIC, [[ATOMIC, []]]]]
)
def test_nothing_of_a_group_with_one_bad_message_is_admitted_and_its_outputs_are_poisoned(
    bare: Bare, damage: Any
) -> None:
    client = bare.client()
    x, y = client.upload([1.0]), client.upload([1.0])
    upload = client.upload_message([1.0])
    client.send([ATOMIC, [*increments(client, x), encode_message(upload), damage]])
    assert len(bare.errors) == 1
    for poisoned in (x, client.ids):
        with pytest.raises(ProtocolError):
            client.fetch(poisoned)
    assert client.fetch(y) == [1.0]
    assert set(FORBIDDEN) == {int(kind) for kind in UNGROUPED}


@pytest.mark.parametrize("group", [None, 5, "ATOMIC", {}])
def test_a_group_is_a_list(bare: Bare, group: Any) -> None:
    client = bare.client()
    client.send([ATOMIC, group])
    assert isinstance(bare.errors[0], ProtocolError)


def test_a_group_of_too_many_messages_is_refused_as_a_whole(bare: Bare) -> None:
    client = bare.client(batch=3)
    x = client.upload([0.0])
    client.send(Atomic(increments(client, x, x, x)))
    assert client.fetch(x) == [3.0]
    client.send(Atomic(increments(client, x, x, x, x)))
    with pytest.raises(ProtocolError, match="a group of 4 messages; 3 are allowed: make smaller groups"):
        client.fetch(x)


def test_what_is_refused_in_a_group_is_refused_alone(bare: Bare) -> None:
    """Atomic is about interleaving, not about errors."""
    client = bare.client(tensors=2)
    x = client.upload([0.0])
    group = [*increments(client, x), client.upload_message([1.0]), client.upload_message([2.0]), *increments(client, x)]
    client.send(Atomic(group))
    assert (client.fetch(x), client.fetch(2)) == ([2.0], [1.0])
    with pytest.raises(QuotaError):
        client.fetch(3)
    client.send(Atomic([[RELEASE, (2, 3)], [PUBLISH, ("x",), (x,), 0, False]]))
    assert client.ask(ListNames(0)) == ["x"]


def test_a_cancelled_session_s_groups_are_refused_message_by_message(bare: Bare) -> None:
    client = bare.client()
    x, y = client.upload([0.0]), client.upload([0.0])
    bare.drain()
    bare.engine.cancel(client.session)
    client.send(Atomic([*increments(client, x), [RELEASE, (y,)]]))
    client.send(Restart(1))
    assert y not in client.session.tensors
    with pytest.raises(CancelledError):
        client.fetch(x)


def test_a_snapshot_keeps_its_value_and_costs_nothing_until_somebody_writes(bare: Bare) -> None:
    writer, reader = bare.client(), bare.client()
    x = writer.upload([1.0])
    writer.publish("x", ids=[x])
    live, snapshot = reader.lookup("x"), reader.lookup("x", snapshot=True)
    assert bare.device.allocated == 8
    writer.send(*increments(writer, x))
    assert (reader.fetch(live), reader.fetch(snapshot)) == ([2.0], [1.0])
    reader.send(*increments(reader, snapshot, snapshot))
    assert (writer.fetch(x), reader.fetch(snapshot)) == ([2.0], [3.0])


def test_a_snapshot_of_what_is_being_written_has_the_value_of_its_position(bare: Bare) -> None:
    writer, reader = bare.client(), bare.client()
    x = writer.upload([1.0])
    writer.publish("x", ids=[x])
    writer.send(*increments(writer, x))
    bare.engine.receive(reader.session, [[LOOKUP, ("x",), (reader.new(),), 50, True]])
    writer.send(*increments(writer, x))
    bare.engine.close(writer.session)  # the end of the session removes no value either
    assert reader.fetch(reader.ids) == [2.0]
    assert reader.answers[50] == ([(((1,), "float64"), "cpu:0")], None)


@pytest.mark.parametrize("generation", [0, 1, 2, 3])
def test_only_a_restart_that_knows_of_the_latest_cancellation_undoes_it(bare: Bare, generation: int) -> None:
    client = bare.client()
    bare.engine.cancel(client.session)
    bare.engine.cancel(client.session)  # overtakes a restart that was sent after the first one
    client.send(Restart(generation))
    assert (client.session.cancelled is None) == (generation == 2)


def test_questions_go_to_whoever_answers_them(bare: Bare) -> None:
    client = bare.client()
    with pytest.raises(ProtocolError, match="this machine does not answer questions about 'stats'"):
        client.ask(Query("stats", (), 0))
    asked: list[Any] = []

    def answer(session: Any, what: str, arguments: Sequence[Any]) -> dict[str, int]:
        asked.append((session, what, arguments))
        return {"a": 1}

    bare.engine.admission.answer = answer
    assert client.ask(Query("stats", (5,), 0)) == {"a": 1}
    assert asked == [(client.session, "stats", (5,))]


def test_names_are_listed_in_order(bare: Bare) -> None:
    client = bare.client()
    x = client.upload([1.0])
    client.publish("b", "a", ids=[x, x])
    assert bare.client().ask(ListNames(0)) == ["a", "b"]
