"""The ledger: expected memory, the instructions that may reserve, and the order in which they are tried."""

from __future__ import annotations

import pytest

from tensord.interpreter.opcodes import Opcode
from tensord.vm.memory.ledger import (
    expect,
    expect_late,
    has_spare,
    learn_need,
    may_reserve,
    next_waiting,
    settle,
    wait_for_memory,
)
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status

from ..parts import Parts

LIMIT = 100


@pytest.fixture
def parts() -> Parts:
    return Parts(memory=LIMIT)


@pytest.fixture
def device(parts: Parts) -> DeviceState:
    return parts.here


def new(parts: Parts) -> Instruction:
    instruction = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "op", parts.here, 0)
    instruction.admitted = instruction.id
    return instruction


def sums(device: DeviceState) -> tuple[list[int], int, int]:
    return list(device.unreserved.values()), device.unreserved_bytes, device.unknown


class TestExpecting:
    def test_known_needs_are_summed_and_unknown_ones_counted(self, parts: Parts, device: DeviceState) -> None:
        expect(device, new(parts), 30)
        expect(device, new(parts), None)
        expect(device, new(parts), 12)
        assert sums(device) == ([30, -1, 12], 42, 1)

    def test_a_need_that_is_learned_moves_from_one_to_the_other(self, parts: Parts, device: DeviceState) -> None:
        one = new(parts)
        expect(device, one, None)
        learn_need(device, one, 50)
        assert sums(device) == ([50], 50, 0)
        learn_need(device, one, 70)  # once is enough
        assert sums(device) == ([50], 50, 0)

    def test_nobody_learns_the_need_of_who_has_settled(self, parts: Parts, device: DeviceState) -> None:
        learn_need(device, new(parts), 50)
        assert sums(device) == ([], 0, 0)

    @pytest.mark.parametrize("need", [30, None, 0])
    def test_who_has_settled_is_expected_no_more(self, parts: Parts, device: DeviceState, need: int | None) -> None:
        one, other = new(parts), new(parts)
        expect(device, one, need)
        expect(device, other, 7)
        settle(device, one)
        assert sums(device) == ([7], 7, 0)
        settle(device, one)
        assert sums(device) == ([7], 7, 0)

    def test_what_is_expected_late_takes_its_position_in_program_order(self, parts: Parts, device: DeviceState) -> None:
        first, second, third = (new(parts) for _ in range(3))
        expect(device, first, 1)
        expect(device, third, 3)
        expect_late(device, second, 2)
        assert list(device.unreserved) == [first, second, third]
        assert device.unreserved_bytes == 6
        expect_late(device, second, 2)  # once is enough
        assert device.unreserved_bytes == 6


class TestReserving:
    def test_where_there_is_enough_for_everybody_order_does_not_matter(self, parts: Parts, device: DeviceState) -> None:
        first, second = new(parts), new(parts)
        expect(device, first, 40)
        expect(device, second, 60)
        assert may_reserve(device, second, 60)
        device.backend.allocate(1)
        assert not may_reserve(device, second, 60)

    def test_the_first_may_always_try(self, parts: Parts, device: DeviceState) -> None:
        first, second = new(parts), new(parts)
        expect(device, first, 1000)
        expect(device, second, 1)
        assert may_reserve(device, first, 1000)
        assert not may_reserve(device, second, 1)

    def test_nobody_overtakes_one_whose_need_leaves_nothing(self, parts: Parts, device: DeviceState) -> None:
        first, second = new(parts), new(parts)
        expect(device, first, 90)
        expect(device, second, 20)
        assert not may_reserve(device, second, 20)
        settle(device, first)
        assert may_reserve(device, second, 20)

    @pytest.mark.parametrize(("need", "may"), [(50, True), (51, False)])
    def test_half_of_the_device_is_left_to_who_does_not_know(
        self, parts: Parts, device: DeviceState, need: int, *, may: bool
    ) -> None:
        expect(device, new(parts), None)
        second = new(parts)
        expect(device, second, 10)
        assert may_reserve(device, second, need) is may

    def test_beside_who_does_not_know_the_known_needs_stay_free(self, parts: Parts, device: DeviceState) -> None:
        expect(device, new(parts), None)
        expect(device, new(parts), 80)
        last = new(parts)
        assert may_reserve(device, last, 20)
        assert not may_reserve(device, last, 21)

    @pytest.mark.parametrize(("nbytes", "spare"), [(70, True), (71, False)])
    def test_spare_is_what_is_free_beside_all_that_is_expected(
        self, parts: Parts, device: DeviceState, nbytes: int, *, spare: bool
    ) -> None:
        expect(device, new(parts), 20)
        device.backend.allocate(10)
        assert has_spare(device, nbytes) is spare

    def test_nothing_is_spare_beside_an_unknown_need(self, parts: Parts, device: DeviceState) -> None:
        expect(device, new(parts), None)
        assert not has_spare(device, 0)


class TestWaiting:
    def test_the_oldest_comes_first_whenever_it_came(self, parts: Parts, device: DeviceState) -> None:
        made = [new(parts) for _ in range(4)]
        for index in (2, 0, 3, 1):
            wait_for_memory(made[index])
        assert [next_waiting(device) for _ in range(4)] == [[one] for one in made]
        assert next_waiting(device) == []

    def test_one_that_has_retired_is_dropped_when_it_comes_up(self, parts: Parts, device: DeviceState) -> None:
        gone, here = new(parts), new(parts)
        wait_for_memory(gone)
        wait_for_memory(here)
        gone.status = Status.CANCELLED
        assert next_waiting(device) == [here]
        assert not device.waiting

    def test_one_that_waits_behind_another_node_brings_the_next_along(self, parts: Parts, device: DeviceState) -> None:
        first, second, third = new(parts), new(parts), new(parts)
        first.remote = True
        for one in (first, second, third):
            wait_for_memory(one)
        assert next_waiting(device) == [first, second]


class TestBehindOtherNodes:
    def behind(self, parts: Parts, device: DeviceState, nbytes: int | None) -> Instruction:
        one = new(parts)
        one.remote = True
        expect(device, one, nbytes)
        return one

    def test_what_is_expected_holds_up_no_other_session(self, parts: Parts, device: DeviceState) -> None:
        self.behind(parts, device, 90)
        other = parts.scheduler.new_instruction(parts.scheduler.system_session, Opcode.CALL, "op", parts.here, 0)
        expect(device, other, 90)
        assert may_reserve(device, other, 90)

    def test_the_order_of_the_own_program_is_kept(self, parts: Parts, device: DeviceState) -> None:
        first, second = self.behind(parts, device, 60), self.behind(parts, device, 30)
        assert may_reserve(device, second, 30)
        device.backend.allocate(20)
        assert not may_reserve(device, second, 30)
        assert may_reserve(device, first, 60)
        settle(device, first)
        assert may_reserve(device, second, 30)

    def test_whatever_the_session_makes_afterwards_is_in_that_order(self, parts: Parts, device: DeviceState) -> None:
        first, later = self.behind(parts, device, 60), new(parts)
        expect(device, later, 60)
        assert later.remote
        assert not device.unreserved
        assert not may_reserve(device, later, 60)
        settle(device, first)
        assert may_reserve(device, later, 60)
        settle(device, later)
        assert device.behind == {}

    def test_it_leaves_enough_for_all_others(self, parts: Parts, device: DeviceState) -> None:
        other = parts.scheduler.new_instruction(parts.scheduler.system_session, Opcode.CALL, "op", parts.here, 0)
        expect(device, other, 60)
        later = self.behind(parts, device, 50)
        assert not may_reserve(device, later, 50)
        settle(device, other)
        assert may_reserve(device, later, 50)

    def test_an_unknown_need_leaves_half_of_the_device(self, parts: Parts, device: DeviceState) -> None:
        self.behind(parts, device, None)
        later = self.behind(parts, device, 40)
        assert may_reserve(device, later, 40)
        learn_need(device, next(iter(device.behind[parts.session].needs)), 70)
        assert not may_reserve(device, later, 40)

    def test_what_is_spare_is_beside_it(self, parts: Parts, device: DeviceState) -> None:
        self.behind(parts, device, 60)
        assert has_spare(device, 40)
        assert not has_spare(device, 41)


def test_two_programs_that_fit_one_after_the_other_both_end(parts: Parts) -> None:
    """Each needs 64 of 100 bytes at its peak; the instructions of the later one are always ready first."""
    made = []
    for program in "ab":
        x, y = parts.tensor(4, filled=False), parts.tensor(4, filled=False)
        made.append(parts.op(f"{program}1", writes=[x]))
        made.append(parts.op(f"{program}2", reads=[x], writes=[y]))
        parts.release(x)
        parts.release(y)
    parts.drain()
    assert all(one.status is Status.DONE for one in made)
    assert parts.device.peak <= LIMIT
    assert parts.device.allocated == 0
