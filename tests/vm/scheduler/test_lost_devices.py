"""Lost devices: values that had no other copy are lost, everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.memory.reservation import loss_of
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.session import Cause
from tensord.vm.model.tensor import Copy, Storage, VmTensor
from tensord.vm.scheduler.lost_devices import abandon_lost, refuse_lost

from ..parts import Parts, copy_of

GONE = "device sim:0 is lost: gone"


@pytest.fixture
def parts() -> Parts:
    return Parts("cpu:0", "sim:0", "sim:1")


@pytest.fixture
def sim(parts: Parts) -> DeviceState:
    return parts.at("sim:0")


def lose(parts: Parts) -> None:
    """The device is lost, and the engine processes completions."""
    parts.at("sim:0").backend.lost = RuntimeError("gone")
    abandon(parts)


def abandon(parts: Parts) -> None:
    abandon_lost(
        parts.engine.devices.values(), parts.engine.directory.storages, parts.scheduler.doom, parts.scheduler.revoke
    )


def at_line(line: int) -> Callable[[Instruction], None]:
    """Issued at that line."""

    def set_line(instruction: Instruction) -> None:
        instruction.location = line

    return set_line


def mirror(parts: Parts, tensor: VmTensor, name: str) -> Copy:
    """The tensor's copy on another device, planned and not yet transferred."""
    copy = parts.residency.operand(tensor, parts.at(name), Cause(parts.session, 0)).copy
    parts.hand_over()
    parts.scheduler.bound.clear()
    return copy


class TestCopies:
    def test_the_only_copy_is_poisoned(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor(home="sim:0")
        lose(parts)
        assert str(copy_of(x).poison) == GONE
        assert x.storage.copies == {sim: copy_of(x)}

    def test_all_of_them_have_one_error(self, parts: Parts, sim: DeviceState) -> None:
        x, y = parts.tensor(home="sim:0"), parts.tensor(home="sim:0")
        lose(parts)
        assert copy_of(x).poison is copy_of(y).poison is sim.lost

    def test_a_copy_whose_version_is_elsewhere_leaves_the_map(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor()
        copy = mirror(parts, x, "sim:0")
        parts.drain()
        lose(parts)
        assert not copy.current
        assert copy.poison is None
        assert list(x.storage.copies) == [parts.at("cpu:0")]
        assert sim.planned == 0

    def test_that_holds_for_a_version_that_is_only_on_its_way(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor(home="sim:1")
        copy = mirror(parts, x, "sim:0")
        mirror(parts, x, "cpu:0")
        copy.writer = None
        lose(parts)
        assert sim not in x.storage.copies

    def test_where_the_other_copy_is_lost_too_it_is_poisoned(self, parts: Parts) -> None:
        x = parts.tensor(home="sim:1")
        copy = mirror(parts, x, "sim:0")
        parts.drain()
        parts.at("sim:1").backend.lost = RuntimeError("gone, too")
        lose(parts)
        assert (str(copy.poison), str(copy_of(x).poison)) == (GONE, "device sim:1 is lost: gone, too")

    def test_an_error_of_its_own_stays(self, parts: Parts) -> None:
        x = parts.tensor(home="sim:0")
        copy_of(x).poison = own = KernelError("its own")
        lose(parts)
        assert copy_of(x).poison is own

    def test_other_devices_copies_are_left_alone(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor(home="sim:1")
        lose(parts)
        assert copy_of(x).poison is copy_of(y).poison is None

    def test_a_write_that_is_reported_later_is_lost_as_well(self, parts: Parts, sim: DeviceState) -> None:
        x = parts.tensor(home="sim:0")
        write = parts.op(writes=[x], on="sim:0")
        stream: Any = sim.backend.compute[0]
        stream.execute()
        lose(parts)
        assert copy_of(x).poison is None  # its writer decides
        stream.report(1)
        parts.schedule()
        assert write.status is Status.DONE
        assert str(copy_of(x).poison) == GONE


class TestInstructions:
    def test_what_was_not_dispatched_fails(self, parts: Parts) -> None:
        x = parts.tensor(home="sim:0")
        first, second = parts.op("first", writes=[x], on="sim:0"), parts.op("second", reads=[x], on="sim:0")
        assert (first.status, second.status) == (Status.DISPATCHED, Status.DISPATCHED)
        held = parts.op("held", reads=[x], writes=[parts.tensor(home="sim:0")], opcode=Opcode.ACCESS, on="sim:0")
        waiting = held.status
        lose(parts)
        assert waiting is Status.WAITING
        assert str(held.error) == GONE
        assert first.error is second.error is None  # their stream fails them

    def test_what_touches_another_device_goes_on(self, parts: Parts) -> None:
        x = parts.tensor(home="sim:1")
        parts.op("first", writes=[x], on="sim:1")
        second = parts.op("second", reads=[x], opcode=Opcode.ACCESS, on="sim:1")
        lose(parts)
        assert second.error is None
        parts.drain()
        assert second.status is Status.DONE

    def test_what_needs_no_device_goes_on(self, parts: Parts) -> None:
        x = parts.tensor(home="sim:0")
        parts.op("first", writes=[x], on="sim:0")
        release = parts.op("release", writes=[x], opcode=Opcode.RELEASE, on="sim:0")
        lose(parts)
        assert release.error is None


class TestRefusing:
    def test_nothing_new_is_admitted(self, parts: Parts, sim: DeviceState) -> None:
        lose(parts)
        with pytest.raises(KernelError, match=GONE) as raised:
            refuse_lost(sim)
        assert raised.value is not sim.lost  # the stored error would gather a traceback each time

    def test_that_is_so_before_the_engine_has_noticed(self, sim: DeviceState) -> None:
        sim.backend.lost = RuntimeError("gone")
        with pytest.raises(KernelError, match=GONE):
            refuse_lost(sim)

    def test_other_devices_admit(self, parts: Parts) -> None:
        lose(parts)
        refuse_lost(parts.at("sim:1"))


def test_once_nothing_is_live_it_is_not_looked_at_again(parts: Parts) -> None:
    lose(parts)
    x = parts.tensor(home="sim:0")
    abandon(parts)
    assert copy_of(x).poison is None


def test_every_storage_is_looked_at_once_and_again_only_those_that_are_still_written(parts: Parts) -> None:
    x = parts.tensor(home="sim:0")
    parts.tensor(home="sim:0")
    parts.op(writes=[x], on="sim:0")
    stream: Any = parts.at("sim:0").backend.compute[0]
    stream.execute()
    lose(parts)
    assert parts.at("sim:0").unsettled == [x.storage]

    def storages() -> list[Storage]:
        raise AssertionError("all storages are walked again")

    abandon_lost(parts.engine.devices.values(), storages, parts.scheduler.doom, parts.scheduler.revoke)
    stream.report(1)
    parts.schedule()
    assert str(copy_of(x).poison) == GONE
    assert parts.at("sim:0").unsettled == []


def test_what_fails_with_a_lost_device_names_its_own_op_and_line() -> None:
    """All failures share the device's error object, which names none of them."""
    parts = Parts(memory=64)
    parts.device.lost = RuntimeError("gone")
    parts.here.lost = loss_of(parts.here)
    for line, label in ((1, "first"), (2, "second")):
        parts.session.source.lines.keep(line, f"user.py:{line}")
        big = parts.tensor(100, filled=False)  # more than fits: the op finds the loss when it looks for memory
        parts.op(label, writes=[big], before=at_line(line))
    parts.schedule()
    assert [(e.op, e.location) for e in parts.errors] == [("first", "user.py:1"), ("second", "user.py:2")]
    assert len({e.instruction for e in parts.errors}) == 2
    assert (parts.here.lost.op, parts.here.lost.location, parts.here.lost.instruction) == (None, None, None)
    assert {e.message for e in parts.errors} == {parts.here.lost.message}
