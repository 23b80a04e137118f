"""Replicas dropped when a plan exceeds its device, also those whose other copy is still on its way."""

from __future__ import annotations

import pytest

from tensord.vm.memory.making_room import RoomRequest, leaving
from tensord.vm.memory.replicas import add_copy, forget
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.session import Cause
from tensord.vm.model.tensor import Copy, VmTensor

from ..parts import Parts, copy_of, fail

LIMIT = 64


@pytest.fixture
def parts() -> Parts:
    return Parts("cpu:0", "sim:0", memory=LIMIT)


@pytest.fixture
def sim(parts: Parts) -> DeviceState:
    return parts.at("sim:0")


@pytest.fixture
def x(parts: Parts) -> VmTensor:
    """48 bytes on the sim device, and a transfer to the host that has not run."""
    x = parts.tensor(6, "sim:0")
    parts.residency.operand(x, parts.at("cpu:0"), Cause(parts.session, 0))
    parts.scheduler.bound.clear()
    return x


@pytest.fixture
def freed(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> list[DeviceState]:
    """The devices where memory may be free, as the scheduler hears of them at the end of a transfer."""
    found: list[DeviceState] = []
    monkeypatch.setattr(parts.scheduler, "retry", found.append)
    return found


def transfer_of(parts: Parts) -> Instruction:
    (transfer,) = (one for one in parts.scheduler.live.values() if one.traits.copies)
    return transfer


def mirror(parts: Parts, tensor: VmTensor, *, drain: bool = True) -> Copy:
    """The tensor's copy on the sim device, once its transfer has arrived or before."""
    copy = parts.residency.operand(tensor, parts.at("sim:0"), Cause(parts.session, 0)).copy
    parts.scheduler.bound.clear()
    if drain:
        parts.drain()
    return copy


def make_room(room: RoomRequest) -> bool:
    """Let copies leave, without evictions; whether the request fits."""
    for _ in leaving(room):
        pass
    return room.fits()


def drop(sim: DeviceState, *spare: Copy) -> None:
    """Drop copies for 32 bytes that are planned beside the present copies."""
    sim.planned += 32
    make_room(RoomRequest(sim, spare))
    sim.planned -= 32


class TestDropping:
    def test_the_copy_leaves_map_and_plan_and_keeps_its_memory(
        self, parts: Parts, x: VmTensor, sim: DeviceState, freed: list[DeviceState]
    ) -> None:
        copy = copy_of(x, sim)
        drop(sim)
        assert sim not in x.storage.copies
        assert (sim.planned, sim.standby) == (0, {copy: transfer_of(parts)})
        assert copy.buffer is not None
        assert not freed

    def test_the_memory_is_free_once_the_transfer_has_arrived(
        self, parts: Parts, x: VmTensor, sim: DeviceState, freed: list[DeviceState]
    ) -> None:
        copy = copy_of(x, sim)
        drop(sim)
        parts.drain()
        assert (copy.buffer, copy.uses, sim.backend.allocated) == (None, 0, 0)
        assert (freed, sim.standby) == ([sim], {})
        assert list(x.storage.copies) == [parts.at("cpu:0")]

    @pytest.mark.usefixtures("x")
    def test_the_transfers_own_end_is_not_forgotten(self, parts: Parts, sim: DeviceState) -> None:
        drop(sim)
        parts.drain()
        assert parts.at("sim:0").moved == {"d2h": [1, 48]}

    def test_what_fits_stays(self, x: VmTensor, sim: DeviceState) -> None:
        make_room(RoomRequest(sim, ()))
        assert x.storage.copies[sim].current
        assert not sim.standby

    def test_what_is_spared_stays(self, x: VmTensor, sim: DeviceState) -> None:
        drop(sim, copy_of(x, sim))
        assert x.storage.copies[sim].current

    def test_a_copy_whose_other_one_has_arrived_frees_its_memory_at_once(
        self, parts: Parts, x: VmTensor, sim: DeviceState, freed: list[DeviceState]
    ) -> None:
        parts.drain()
        drop(sim)
        assert sim not in x.storage.copies
        assert (sim.backend.allocated, sim.standby, freed) == (0, {}, [])

    def test_a_copy_of_a_single_view_leaves_at_once_and_never_stands_in_for_the_whole(
        self, parts: Parts, x: VmTensor, sim: DeviceState
    ) -> None:
        whole, transfer = copy_of(x, sim), transfer_of(parts)
        view = parts.residency.new_copy(sim, 8, x.storage.version)
        view.view = (0, (1,), (8,))
        add_copy(view, x.storage)
        transfer.kernel = fail
        make_room(RoomRequest(sim, (), need=LIMIT))
        assert not view.current
        assert list(sim.standby) == [whole]
        parts.drain()
        assert x.storage.copies == {sim: whole}

    def test_a_transfer_that_is_known_to_fail_counts_for_nothing(
        self, parts: Parts, x: VmTensor, sim: DeviceState
    ) -> None:
        transfer = transfer_of(parts)
        transfer.fail(ValueError("boom"))
        drop(sim)
        assert x.storage.copies[sim].current


class TestFailedTransfers:
    """The version survives a transfer that fails."""

    @pytest.fixture
    def copy(self, parts: Parts, x: VmTensor, sim: DeviceState) -> Copy:
        transfer_of(parts).kernel = fail
        copy = copy_of(x, sim)
        drop(sim)
        return copy

    def test_the_copy_returns_to_map_and_plan(
        self, parts: Parts, x: VmTensor, sim: DeviceState, copy: Copy, freed: list[DeviceState]
    ) -> None:
        parts.drain()
        assert x.storage.copies == {sim: copy}
        assert (copy.current, copy.uses, sim.planned, sim.standby) == (True, 0, 48, {})
        assert copy.buffer is not None
        assert freed == [sim]  # so that an instruction that waits for the memory learns that there is none

    def test_not_if_another_healthy_copy_is_left(
        self, parts: Parts, x: VmTensor, sim: DeviceState, copy: Copy, freed: list[DeviceState]
    ) -> None:
        other = parts.residency.new_copy(parts.at("cpu:0"), 48, x.storage.version)
        x.storage.copies[parts.at("cpu:0")] = other
        parts.drain()
        assert not copy.current
        assert (copy.buffer, freed) == (None, [sim])

    def test_not_if_the_tensor_was_written_meanwhile(self, parts: Parts, x: VmTensor, copy: Copy) -> None:
        x.storage.version += 1
        parts.drain()
        assert not copy.current
        assert copy.buffer is None

    def test_not_if_the_tensor_was_released_meanwhile(
        self, parts: Parts, x: VmTensor, sim: DeviceState, copy: Copy
    ) -> None:
        parts.release(x)
        parts.drain()
        assert not copy.current
        assert (copy.buffer, sim.backend.allocated, sim.planned) == (None, 0, 0)

    @pytest.mark.usefixtures("copy")
    def test_failed_copies_leave_the_map(self, parts: Parts, x: VmTensor) -> None:
        failed = copy_of(x, parts.at("cpu:0"))
        parts.drain()
        assert not failed.current
        assert parts.at("cpu:0").planned == 0


def test_what_will_never_have_memory_leaves_the_plan_first(parts: Parts, sim: DeviceState) -> None:
    """For example, its transfer waits for a cancelled source; until the transfer retires the copy cannot be evicted."""
    y = parts.tensor(2)
    parts.op("gate", writes=[y])
    copy = parts.residency.operand(y, sim, Cause(parts.session, 0)).copy
    parts.scheduler.bound.clear()
    forget(copy_of(y), y.storage)
    assert sim.planned == 16
    transfer = transfer_of(parts)
    assert not make_room(RoomRequest(sim, (), need=LIMIT))
    assert copy.current
    parts.scheduler.doom([transfer], transfer.describe(ValueError("no")))
    sim.candidates[copy] = y.storage
    assert make_room(RoomRequest(sim, (), need=LIMIT))
    assert (sim.planned, copy.nbytes) == (0, 0)


def test_a_replica_that_is_gone_already_is_passed_over(parts: Parts, x: VmTensor, sim: DeviceState) -> None:
    parts.drain()
    forget(copy_of(x, sim), x.storage)
    make_room(RoomRequest(sim, ()))
    assert not sim.standby


class TestWhichGo:
    """The least recently used ones go first, however far their transfers have come."""

    @pytest.fixture
    def parts(self) -> Parts:
        return Parts("cpu:0", "sim:0")

    def test_none_while_the_plan_fits(self, parts: Parts, sim: DeviceState) -> None:
        copy = mirror(parts, parts.tensor())
        make_room(RoomRequest(sim, ()))
        assert copy.current

    def test_no_more_than_have_to(self, parts: Parts, sim: DeviceState) -> None:
        copies = [mirror(parts, parts.tensor()) for _ in range(4)]
        sim.backend.limit = 20
        make_room(RoomRequest(sim, ()))
        assert [copy.current for copy in copies] == [False, False, True, True]
        assert sim.planned == 16

    def test_none_that_is_about_to_be_used(self, parts: Parts, sim: DeviceState) -> None:
        copies = [mirror(parts, parts.tensor()) for _ in range(3)]
        sim.backend.limit = 16
        make_room(RoomRequest(sim, {copies[0]}))
        assert [copy.current for copy in copies] == [True, False, True]

    def test_one_that_will_be_written_elsewhere(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        copy = mirror(parts, x)
        parts.op(writes=[x])
        sim.backend.limit = 0
        make_room(RoomRequest(sim, ()))
        assert not copy.current
        assert not sim.standby
        parts.drain()

    @pytest.mark.parametrize("arrived", [False, True])
    def test_the_same_ones_before_and_after_a_transfer_has_arrived(
        self, parts: Parts, sim: DeviceState, arrived: bool
    ) -> None:
        early = parts.tensor(home="sim:0")
        parts.residency.operand(early, parts.at("cpu:0"), Cause(parts.session, 0))
        if arrived:
            parts.drain()
        late = mirror(parts, parts.tensor(), drain=arrived)
        sim.backend.limit = 8
        make_room(RoomRequest(sim, ()))
        assert sim not in early.storage.copies
        assert late.current
        parts.drain()

    def test_what_is_no_replica_any_more_leaves_the_list(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        copy = mirror(parts, x)
        forget(copy_of(x), x.storage)
        sim.backend.limit = 0
        make_room(RoomRequest(sim, ()))
        assert not sim.candidates
        assert copy.current
