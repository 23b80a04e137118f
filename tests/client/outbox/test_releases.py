"""Releases in a batch: on the last use, behind it, or in front of all other messages."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.client.outbox import releases as module
from tensord.client.outbox.releases import RIDERS, add_releases
from tensord.interpreter.wire.message_kinds import ATOMIC, CALL, FETCH, RELEASE, SIGNATURE, TO_DEVICE

from ...each_case import each_case

SCALARS = {1: (False, False), 2: (False, True)}


def call(inputs: tuple[Any, ...], outputs: tuple[int, ...], signature: int = 1) -> list[Any]:
    return [CALL, signature, inputs, outputs, 0, 0]


def released(batch: list[list[Any]], *ids: int) -> list[list[Any]]:
    add_releases(batch, set(ids), SCALARS)
    return batch


def test_a_release_rides_on_the_last_call_that_uses_it() -> None:
    first, last = call((1, 2), (3,)), call((1, 3), (4,))
    assert released([first, last], 1) == [[*first[:4], 0, 0], [*last[:4], 0b001, 0]]


def test_a_result_that_nobody_wants_rides_on_the_call_that_makes_it() -> None:
    (only,) = released([call((1, 2), (3,))], 3)
    assert only[4] == 0b100


def test_a_scalar_that_equals_an_id_is_none() -> None:
    batch = released([call((1, 7), (8,), signature=2)], 7)
    assert batch == [[RELEASE, (7,)], call((1, 7), (8,), signature=2)]


@each_case("scalar", [7, 7.0])
def test_a_scalar_that_equals_an_id_is_none_in_a_group_either(scalar: float) -> None:
    inner = call((1, scalar), (8,), signature=2)
    assert released([call((1, 7), (2,)), [ATOMIC, [inner]]], 7) == [
        [CALL, 1, (1, 7), (2,), 0b010, 0],
        [ATOMIC, [call((1, scalar), (8,), signature=2)]],
    ]


def test_what_nothing_uses_is_released_first() -> None:
    assert released([call((1, 2), (3,))], 8, 9)[0] == [RELEASE, (8, 9)]


@each_case("user", [[FETCH, 5, 1, 0, 0], [TO_DEVICE, 4, 5, "cpu:0", 0], [ATOMIC, [[TO_DEVICE, 4, 5, "cpu:0", 0]]]])
def test_behind_any_other_message_that_uses_it_comes_a_message(user: list[Any]) -> None:
    signature = [SIGNATURE, 1, "add", (), (), "cpu:0", None]
    inside = user[0] == ATOMIC
    expected = [[ATOMIC, [*user[1], [RELEASE, (5,)]]]] if inside else [user, [RELEASE, (5,)]]
    assert released([user, signature], 5) == [*expected, signature]


def test_a_release_rides_on_a_call_in_a_group() -> None:
    group = [ATOMIC, [call((1, 2), (3,)), call((5, 2), (4,))]]
    assert released([call((1, 1), (2,)), group, call((3, 4), (6,))], 1, 2, 8) == [
        [RELEASE, (8,)],
        call((1, 1), (2,)),
        [ATOMIC, [[*call((1, 2), (3,))[:4], 0b01, 0], [*call((5, 2), (4,))[:4], 0b10, 0]]],
        call((3, 4), (6,)),
    ]


def test_an_operand_beyond_the_bits_of_a_call_is_released_behind_it() -> None:
    ids = tuple(range(100, 100 + RIDERS + 1))
    batch: list[list[Any]] = [[CALL, 3, ids, (1,), 0, 0]]
    add_releases(batch, {ids[-1], ids[-2]}, {3: (False,) * len(ids)})
    assert batch == [[CALL, 3, ids, (1,), 1 << RIDERS - 1, 0], [RELEASE, (ids[-1],)]]


def test_many_releases_are_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELEASED", 2)
    assert released([], 3, 1, 2) == [[RELEASE, (1, 2)], [RELEASE, (3,)]]
