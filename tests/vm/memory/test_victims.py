"""The order in which copies leave a device."""

from __future__ import annotations

import pytest

from tensord.streams.device import Eviction
from tensord.vm.memory import victims as module
from tensord.vm.memory.making_room import gather
from tensord.vm.memory.mapped import map_copy
from tensord.vm.memory.victims import touch, victims
from tensord.vm.model.account import Account
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.session import Cause
from tensord.vm.model.tensor import VmTensor

from ..parts import Parts, copy_of

ELEMENTS = 1 << 14  # of 8 bytes: twice the threshold of a transfer's cost
SIZE = 8 * ELEMENTS


@pytest.fixture
def parts() -> Parts:
    parts = Parts("cpu:0", "sim:0", memory=100 * SIZE, eviction=Eviction.COST)
    gather(parts.at("sim:0"), parts.engine.directory.storages())  # memory was short once
    return parts


@pytest.fixture
def sim(parts: Parts) -> DeviceState:
    return parts.at("sim:0")


def tensors(parts: Parts, count: int, elements: int = ELEMENTS) -> list[VmTensor]:
    """New tensors, each used once when it was made."""
    made = []
    for _ in range(count):
        made.append(parts.tensor(elements, "sim:0"))
        touch(made[-1].storage, parts.at("sim:0"))
    return made


def order(parts: Parts, among: list[VmTensor], *spare: VmTensor, account: Account | None = None) -> list[int]:
    """The indices of tensors in the list, in the order in which they leave."""
    sim = parts.at("sim:0")
    sim.eviction.rankings.clear()
    storages = [tensor.storage for tensor in among]
    chosen = victims(sim, account or parts.session.account, {copy_of(tensor, sim) for tensor in spare})
    return [storages.index(storage) for _, storage in chosen if storage in storages]


def use(sim: DeviceState, *used: VmTensor) -> None:
    for tensor in used:
        touch(tensor.storage, sim)


def test_what_was_never_used_again_leaves_oldest_first(parts: Parts) -> None:
    made = tensors(parts, 4)
    assert order(parts, made) == [0, 1, 2, 3]


def test_in_a_loop_what_was_used_last_leaves_first(parts: Parts, sim: DeviceState) -> None:
    made = tensors(parts, 6)
    for _ in range(3):
        use(sim, *made)
    sim.backend.limit = 1  # no copy is too young to leave
    assert order(parts, made) == [5, 4, 3, 2, 1, 0]


def test_the_newest_half_of_the_memory_stays_as_long_as_there_is_anything_else(parts: Parts, sim: DeviceState) -> None:
    """A copy that was just used is still being read: its memory becomes free late."""
    made = tensors(parts, 6)
    for _ in range(3):
        use(sim, *made)
    sim.backend.limit = 4 * SIZE
    assert order(parts, made) == [3, 2, 1, 0, 5, 4]


def test_by_age_the_least_recently_used_leaves_first(parts: Parts, sim: DeviceState) -> None:
    sim.eviction.policy = Eviction.LRU
    made = tensors(parts, 6)
    for _ in range(3):
        use(sim, *made)
    use(sim, made[0])
    assert order(parts, made) == [1, 2, 3, 4, 5, 0]


def test_what_has_to_move_only_once_leaves_before_what_has_to_move_twice(parts: Parts, sim: DeviceState) -> None:
    made = tensors(parts, 2)
    parts.residency.operand(made[1], parts.at("cpu:0"), Cause(parts.session, 0))
    parts.scheduler.bound.clear()
    parts.drain()
    use(sim, *made)
    tensors(parts, 20)
    assert order(parts, made) == [1, 0]


def test_one_large_value_leaves_before_many_small_ones(parts: Parts, sim: DeviceState) -> None:
    """Each transfer has a fixed cost, however few bytes it moves."""
    small, large = tensors(parts, 3, elements=1), tensors(parts, 1)
    use(sim, *small, *large)
    tensors(parts, 1)
    assert order(parts, small + large)[0] == 3


def test_what_is_about_to_be_used_stays(parts: Parts) -> None:
    made = tensors(parts, 3)
    assert order(parts, made, made[1]) == [0, 2]


def test_ones_own_leave_before_those_of_others(parts: Parts) -> None:
    made = tensors(parts, 4)
    other = Account(parts.session.limits, 99)
    for tensor in made[:2]:
        tensor.storage.account = other
    assert order(parts, made) == [2, 3, 0, 1]
    assert order(parts, made, account=other) == [0, 1, 2, 3]


def test_a_session_keeps_its_floor(parts: Parts, sim: DeviceState) -> None:
    sim.eviction.floor = 2 * SIZE
    made = tensors(parts, 4)
    assert order(parts, made, account=Account(parts.session.limits, 99)) == [0, 1]
    assert order(parts, made) == [0, 1, 2, 3]


def test_a_floor_is_no_more_than_a_share_of_half_of_the_memory(parts: Parts, sim: DeviceState) -> None:
    sim.eviction.floor = 1 << 40
    sim.backend.limit = 4 * SIZE
    made = tensors(parts, 4)
    assert len(order(parts, made, account=Account(parts.session.limits, 99))) == 2


def test_where_there_is_much_a_ranking_serves_again(
    parts: Parts, sim: DeviceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW", 2)
    made = tensors(parts, 10)
    account = parts.session.account
    (first, _) = next(victims(sim, account, ()))
    ranking = sim.eviction.rankings[account, False]
    use(sim, made[1])  # so it is no longer a candidate of this ranking
    (second, _) = next(victims(sim, account, ()))
    assert sim.eviction.rankings[account, False] is ranking
    assert [first, second] == [copy_of(made[0], sim), copy_of(made[2], sim)]
    assert next(victims(sim, Account(parts.session.limits, 99), ()))[0] is copy_of(made[0], sim)
    assert sim.eviction.rankings[account, False] is ranking


def test_a_ranking_ends_with_an_eighth_of_the_memory(
    parts: Parts, sim: DeviceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW", 0)
    sim.backend.limit = 16 * SIZE
    tensors(parts, 10)
    rankings = []
    for _ in range(3):
        next(victims(sim, parts.session.account, ()))
        rankings.append(sim.eviction.rankings[parts.session.account, False])
    assert rankings[0] is rankings[1] is not rankings[2]


def test_what_is_gone_or_mapped_is_not_offered_as_a_replica(parts: Parts, sim: DeviceState) -> None:
    made = tensors(parts, 2)
    use(sim, *made)
    map_copy(copy_of(made[0], sim))
    parts.release(made[1])
    assert [storage for _, storage in victims(sim, None, ())] == [made[0].storage]


class TestWindows:
    """Many copies are ranked a window at a time."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "FEW", 0)
        monkeypatch.setattr(module, "WINDOW", 4)

    def test_the_best_of_each_window_leave_first_and_in_the_end_all(self, parts: Parts) -> None:
        made = tensors(parts, 12)
        found = order(parts, made)
        assert found[:3] == [0, 4, 8]
        assert sorted(found[3:]) == list(range(12))  # no copy was evicted

    def test_ones_own_leave_from_all_windows_before_those_of_others(self, parts: Parts) -> None:
        made = tensors(parts, 12)
        mine = Account(parts.session.limits, 99)
        for index in (3, 7, 11):
            made[index].storage.account = mine
        assert order(parts, made, account=mine)[:3] == [3, 7, 11]

    def test_who_has_nothing_takes_from_others_at_once(self, parts: Parts) -> None:
        made = tensors(parts, 12)
        assert order(parts, made, account=Account(parts.session.limits, 99))[:3] == [0, 4, 8]

    def test_a_round_goes_on_where_it_was(self, parts: Parts, sim: DeviceState) -> None:
        made = tensors(parts, 12)
        account = parts.session.account
        chosen = [next(victims(sim, account, ()))[0] for _ in range(3)]
        assert chosen == [copy_of(made[index], sim) for index in (0, 4, 8)]

    def test_what_was_used_since_it_was_ranked_stays(self, parts: Parts, sim: DeviceState) -> None:
        made = tensors(parts, 12)
        account = parts.session.account
        assert next(victims(sim, account, ()))[0] is copy_of(made[0], sim)
        parts.release(made[4])
        use(sim, made[8])
        assert next(victims(sim, account, ()))[0] is copy_of(made[5], sim)


def test_nothing_is_kept_for_a_device_that_is_empty(
    parts: Parts, sim: DeviceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW", 0)
    made = tensors(parts, 3)
    next(victims(sim, parts.session.account, ()))
    assert sim.eviction.rankings
    for tensor in made:
        parts.release(tensor)
    assert not sim.eviction.rankings


def test_nothing_is_kept_of_a_session_that_ends(
    parts: Parts, sim: DeviceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handles are released piece by piece, and so are its objects: no ranking holds them all."""
    monkeypatch.setattr(module, "FEW", 0)
    parts.engine.admission.cancellation.piece = 1
    tensors(parts, 3)
    next(victims(sim, Account(parts.session.limits, 99), ()))
    parts.engine.close(parts.session)
    assert parts.engine.directory.leaving
    assert sim.candidates
    assert not sim.eviction.rankings
    parts.drain()


def test_rankings_are_kept_for_a_few_sessions(parts: Parts, sim: DeviceState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 0)
    tensors(parts, 3)
    for number in range(2 * module.SESSIONS):
        next(victims(sim, Account(parts.session.limits, number), ()))
    assert len(sim.eviction.rankings) == module.SESSIONS
