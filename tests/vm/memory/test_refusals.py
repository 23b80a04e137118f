"""A search that found no victim is remembered until something changes that the search looked at."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tensord.vm.memory.making_room import RoomRequest
from tensord.vm.memory.refusals import Question, RefusedQuestions, question_of
from tensord.vm.model.account import Account
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.tensor import Copy

from ..parts import Parts, copy_of

LIMIT = 64


@pytest.fixture
def parts() -> Parts:
    return Parts("cpu:0", "sim:0", memory=LIMIT)


@pytest.fixture
def sim(parts: Parts) -> DeviceState:
    """A device with one candidate, above the host."""
    sim = parts.at("sim:0")
    sim.tiers = (parts.at("cpu:0"),)
    sim.short = True
    parts.tensor(2, "sim:0")
    return sim


def asked(
    parts: Parts, device: DeviceState, spare: tuple[Copy, ...] = (), bound: tuple[Copy, ...] = (), *, own: bool = False
) -> Question:
    return question_of(RoomRequest(device, spare, parts.session.account, own=own), parts.session, bound)


def test_the_same_question_is_known_until_the_outermost_block_ends(parts, sim):
    refusals = RefusedQuestions()
    with refusals:
        with refusals:
            refusals.failed = True
            refusals.known.add(asked(parts, sim))
        assert asked(parts, sim) in refusals.known
    assert (refusals.known, refusals.failed) == (set(), False)


def test_it_is_known_no_longer_after_an_exception(parts, sim):
    refusals = RefusedQuestions()
    with suppress(KeyError), refusals:
        refusals.failed = True
        refusals.known.add(asked(parts, sim))
        raise KeyError
    assert (refusals.depth, refusals.known) == (0, set())


def test_what_leaves_or_comes_on_a_tier_makes_it_another_question(parts, sim):
    first = asked(parts, sim)
    parts.tensor(1, "cpu:0")
    second = asked(parts, sim)
    x = parts.tensor(1, "sim:0")
    third = asked(parts, sim)
    parts.residency.releasing.unshare(x)
    assert len({first, second, third}) == 3
    assert asked(parts, sim) == second


def test_what_comes_in_place_of_what_left_makes_it_another_question(parts, sim):
    before, x = asked(parts, sim), parts.tensor(1, "sim:0")
    between = asked(parts, sim)
    parts.tensor(1, "sim:0")
    parts.residency.releasing.unshare(x)
    assert asked(parts, sim) not in (before, between)


def test_what_is_spared_belongs_to_it_where_that_lies(parts, sim):
    here, below = copy_of(parts.tensor(1, "sim:0"), sim), copy_of(parts.tensor(1, "cpu:0"), parts.at("cpu:0"))
    none = asked(parts, sim)
    assert asked(parts, sim, (here,)) != none
    assert asked(parts, sim, (), (below,)) != none
    assert asked(parts, sim, (below,)) == none
    assert asked(parts, parts.at("cpu:0"), (here,)) == asked(parts, parts.at("cpu:0"))


def test_it_depends_on_who_asks_for_what(parts, sim):
    none, session = asked(parts, sim), parts.session
    assert asked(parts, sim, own=True) != none
    assert asked(parts, parts.at("cpu:0")) != none
    other = Account(session.limits, 99)
    assert question_of(RoomRequest(sim, (), other), session, ()) != none
    assert question_of(RoomRequest(sim, (), session.account), parts.scheduler.system_session, ()) != none


def test_where_sessions_have_floors_each_use_makes_it_another_question(parts, sim):
    for floor in (0, 8):
        parts.at("cpu:0").eviction.floor = floor
        before = asked(parts, sim)
        sim.uses.newest += 1
        assert (asked(parts, sim) != before) is bool(floor)
