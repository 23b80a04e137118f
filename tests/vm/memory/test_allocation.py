"""Allocation: the stream's own reusable buffers first, then the device, then the memory of idle replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.opcodes import Opcode
from tensord.vm.memory.allocation import adopt, allocate, reuse
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.session import Cause
from tensord.vm.model.tensor import Copy

from ..parts import Parts, copy_of

LIMIT = 64


@pytest.fixture
def parts() -> Parts:
    return Parts("cpu:0", "sim:0", workers=2, memory=LIMIT)


@pytest.fixture
def stream(parts: Parts) -> Any:
    return parts.device.compute[0]


@pytest.fixture
def instruction(parts: Parts, stream: Any) -> Instruction:
    """An instruction that was given to the stream, the oldest on its device."""
    made = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "op", parts.here, 0)
    made.stream = stream
    parts.here.live[made] = None
    return made


@pytest.fixture
def replica(parts: Parts) -> Copy:
    """48 bytes on the host that the sim device has, too."""
    x = parts.tensor(6, "sim:0")
    copy = parts.residency.operand(x, parts.here, Cause(parts.session, 0)).copy
    parts.scheduler.bound.clear()
    parts.drain()
    return copy


def reusable(parts: Parts, stream: Any, *sizes: int) -> list[Any]:
    """Buffers that later instructions of the stream may reuse."""
    buffers = [parts.device.allocate(nbytes) for nbytes in sizes]
    parts.here.reusable[stream] = list(buffers)
    return buffers


class TestReuse:
    def test_the_newest_buffer_of_that_size_is_taken(self, parts: Parts, stream: Any, instruction: Instruction) -> None:
        buffers = reusable(parts, stream, 8, 16, 8)
        assert reuse(instruction, 8) is buffers[2]
        assert parts.here.reusable[stream] == buffers[:2]
        assert parts.device.allocated == 32

    @pytest.mark.parametrize("nbytes", [4, 24])
    def test_a_buffer_of_another_size_is_not(
        self, parts: Parts, stream: Any, nbytes: int, instruction: Instruction
    ) -> None:
        buffers = reusable(parts, stream, 8, 16)
        assert reuse(instruction, nbytes) is None
        assert parts.here.reusable[stream] == buffers

    def test_another_streams_buffers_are_not(self, parts: Parts, instruction: Instruction) -> None:
        reusable(parts, parts.device.compute[1], 8)
        assert reuse(instruction, 8) is None

    def test_nor_are_they_where_there_is_no_stream(self, parts: Parts, stream: Any, instruction: Instruction) -> None:
        reusable(parts, stream, 8)
        instruction.stream = None
        assert reuse(instruction, 8) is None


class TestIdleReplicas:
    def test_they_go_where_there_is_no_room(self, parts: Parts, replica: Copy, instruction: Instruction) -> None:
        buffer = allocate(instruction, 32)
        assert buffer is not None
        assert buffer.nbytes == 32
        assert not replica.current
        assert parts.device.allocated == 32

    def test_they_stay_where_there_is(self, replica: Copy, instruction: Instruction) -> None:
        assert allocate(instruction, 16) is not None
        assert replica.current

    @pytest.mark.usefixtures("replica")
    def test_nothing_is_allocated_where_dropping_them_does_not_help(
        self, parts: Parts, instruction: Instruction
    ) -> None:
        assert allocate(instruction, LIMIT + 8) is None
        assert parts.device.allocated == 0

    def test_they_stay_where_an_earlier_instruction_may_free_memory(
        self, parts: Parts, instruction: Instruction, replica: Copy
    ) -> None:
        earlier = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "earlier", parts.here, 0)
        parts.here.live.clear()
        parts.here.live.update({earlier: None, instruction: None})
        assert allocate(instruction, 32) is None
        assert adopt(instruction, np.ones(4)) is None
        assert replica.current
        del parts.here.live[earlier]
        assert allocate(instruction, 32) is not None
        assert not replica.current

    def test_a_replica_in_use_stays(self, replica: Copy, instruction: Instruction) -> None:
        replica.uses = 1
        assert allocate(instruction, 32) is None
        assert replica.current
        replica.uses = 0


class TestAdopting:
    def test_the_array_is_the_buffers_memory(self, parts: Parts, instruction: Instruction) -> None:
        array = np.ones(4)
        buffer = adopt(instruction, array)
        assert buffer is not None
        assert np.shares_memory(buffer.array, array)
        assert parts.device.allocated == 32

    def test_replicas_make_room_for_it(self, replica: Copy, instruction: Instruction) -> None:
        assert adopt(instruction, np.ones(4)) is not None
        assert not replica.current

    def test_one_that_does_not_fit_is_refused(self, parts: Parts, instruction: Instruction) -> None:
        x = copy_of(parts.tensor(6))
        assert adopt(instruction, np.ones(4)) is None
        assert x.buffer is not None
