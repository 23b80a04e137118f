"""Replicas are the first copies dropped when memory is short, the least recently used one first."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.memory.mapped import map_copy, unmap_copy
from tensord.vm.memory.planning import give_up_bytes, learn_bytes
from tensord.vm.memory.replicas import add_copy, drop, drop_idle, forget, may_forget, others
from tensord.vm.memory.victims import touch
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.session import Cause
from tensord.vm.model.tensor import Copy, VmTensor

from ..parts import Parts, copy_of


@pytest.fixture
def parts() -> Parts:
    return Parts("cpu:0", "sim:0")


@pytest.fixture
def sim(parts: Parts) -> DeviceState:
    return parts.at("sim:0")


def mirror(parts: Parts, tensor: VmTensor, name: str = "sim:0") -> Copy:
    """The tensor's copy on another device, once its transfer has arrived."""
    copy = parts.residency.operand(tensor, parts.at(name), Cause(parts.session, 0)).copy
    parts.hand_over()
    parts.scheduler.bound.clear()
    parts.drain()
    return copy


class TestAdding:
    def test_a_copy_is_in_the_map_current_and_planned_until_it_is_forgotten(self, parts: Parts) -> None:
        x, here = parts.tensor(2), parts.here
        here.ceiling = 100
        sim = parts.at("sim:0")
        sim.ceiling = 100
        copy = parts.residency.new_copy(sim, 16, x.storage.version)
        assert sim.planned == 0
        add_copy(copy, x.storage)
        assert (x.storage.copies[sim], copy.current, sim.planned) == (copy, True, 16)
        assert parts.session.account.shares == {sim: 16}
        forget(copy, x.storage)
        assert (sim in x.storage.copies, copy.current, sim.planned) == (False, False, 0)
        assert parts.session.account.shares == {sim: 0}

    def test_all_whole_copies_are_candidates_once_there_are_two(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        assert not parts.here.candidates
        copy = parts.residency.new_copy(sim, 8, x.storage.version)
        add_copy(copy, x.storage)
        assert (parts.here.candidates, sim.candidates) == ({copy_of(x): x.storage}, {copy: x.storage})

    def test_a_copy_of_a_view_is_a_candidate_and_the_whole_one_is_not(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor(2)
        view = parts.residency.new_copy(sim, 8, x.storage.version)
        view.view = (0, (1,), (8,))
        add_copy(view, x.storage)
        assert (parts.here.candidates, sim.candidates) == ({}, {view: x.storage})
        assert x.storage.views == {(sim, view.view): view}

    def test_one_whose_size_is_not_known_is_planned_when_it_is(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor(2)
        copy = parts.residency.new_copy(sim, -1, x.storage.version)
        add_copy(copy, x.storage)
        assert sim.planned == 0
        learn_bytes(copy, 16, None)
        learn_bytes(copy, 16, None)
        assert sim.planned == 16
        give_up_bytes(copy)
        assert (sim.planned, copy.current) == (0, True)
        forget(copy, x.storage)
        assert sim.planned == 0


class TestForgetting:
    def test_a_forgotten_copy_leaves_map_plan_list_and_memory(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        copy = mirror(parts, x)
        forget(copy, x.storage)
        assert list(x.storage.copies) == [parts.at("cpu:0")]
        assert (sim.planned, sim.candidates, copy.current, copy.buffer) == (0, {}, False, None)
        assert sim.backend.allocated == 0

    def test_a_copy_of_a_view_leaves_the_map_of_views(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor(4)
        x.strides, x.offset = (8,), 8
        x.meta = parts.tensor(2).meta
        copy = mirror(parts, x)
        assert x.storage.views == {(sim, copy.view): copy}
        forget(copy, x.storage)
        assert x.storage.views == {}
        assert list(x.storage.copies) == [parts.at("cpu:0")]

    def test_another_copy_in_its_place_is_left_there(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        old = mirror(parts, x)
        forget(old, x.storage)
        new = mirror(parts, x)
        forget(old, x.storage)
        assert x.storage.copies[sim] is new
        assert sim.planned == 8

    def test_dropping_twice_takes_the_bytes_off_once(self, parts: Parts, sim: DeviceState) -> None:
        keep = mirror(parts, parts.tensor())
        copy = mirror(parts, parts.tensor())
        drop(copy)
        drop(copy)
        assert sim.planned == keep.nbytes

    def test_one_that_is_still_read_keeps_its_buffer_until_then(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        copy = mirror(parts, x)
        parts.op(reads=[x], on="sim:0", opcode=Opcode.ACCESS)  # queued nowhere that could reuse it
        copy.stream = None
        forget(copy, x.storage)
        assert copy.buffer is not None
        assert sim.planned == 0
        parts.drain()
        assert copy.buffer is None


class TestMayForget:
    def test_one_of_two_may_go_and_the_last_one_not(self, parts: Parts) -> None:
        x = parts.tensor()
        assert not may_forget(copy_of(x), x.storage)
        copy = mirror(parts, x)
        assert may_forget(copy, x.storage)
        assert may_forget(copy_of(x), x.storage)
        assert others(x.storage, copy) == [copy_of(x)]

    def test_a_copy_of_a_view_may_always_go(self, parts: Parts) -> None:
        x = parts.tensor(4)
        x.strides, x.meta = (8,), parts.tensor(2).meta
        assert may_forget(mirror(parts, x), x.storage)

    def test_a_mapped_one_stays_until_the_client_is_done(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        copy = mirror(parts, x)
        map_copy(copy)
        map_copy(copy)
        unmap_copy(copy, x.storage, unread=True)
        assert not may_forget(copy, x.storage)
        assert (sim.mapped, copy.uses) == ({copy: 1}, 1)
        unmap_copy(copy, x.storage, unread=True)
        assert may_forget(copy, x.storage)
        assert (sim.mapped, copy.uses) == ({}, 0)


class TestDroppingIdle:
    def test_the_least_recently_used_goes_first_and_one_at_a_time(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        a, b = mirror(parts, x), mirror(parts, parts.tensor())
        sim.short = True
        touch(x.storage, sim)
        assert drop_idle(sim)
        assert (a.current, b.current) == (True, False)
        assert drop_idle(sim)
        assert not drop_idle(sim)
        assert sim.backend.allocated == 0

    def test_one_with_a_use_to_come_is_passed_over(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        used, idle = mirror(parts, x), mirror(parts, parts.tensor())
        parts.op(reads=[x], on="sim:0")
        assert drop_idle(sim)
        assert (used.current, idle.current) == (True, False)
        assert not drop_idle(sim)
        parts.drain()

    @pytest.mark.parametrize("wrong", ["poisoned", "not there yet"])
    def test_one_whose_other_copy_is_not_healthy_is_passed_over(
        self, parts: Parts, sim: DeviceState, wrong: str
    ) -> None:
        x = parts.tensor()
        copy = mirror(parts, x)
        if wrong == "poisoned":
            copy_of(x).poison = KernelError("bad")
        else:
            parts.op(writes=[x])
        assert not drop_idle(sim)
        assert copy.current
        parts.drain()

    def test_what_is_no_replica_any_more_stays_and_keeps_its_position(self, parts: Parts, sim: DeviceState) -> None:
        """Otherwise the order in which admission drops copies would depend on when a device ran out of memory."""
        x = parts.tensor()
        copy = mirror(parts, x)
        mapped = mirror(parts, parts.tensor())
        map_copy(mapped)
        forget(copy_of(x), x.storage)
        assert not drop_idle(sim)
        assert list(sim.candidates) == [copy, mapped]
        assert copy.current

    def test_an_allocation_that_does_not_fit_drops_them(self) -> None:
        parts = Parts("cpu:0", "sim:0", memory=32)
        sim = parts.at("sim:0")
        copy = mirror(parts, parts.tensor(2))
        y = parts.tensor(3, home="sim:0", filled=False)
        op = parts.op(writes=[y], on="sim:0")
        parts.drain()
        assert not copy.current
        assert op.error is None
        assert sim.backend.allocated == 24
