"""Reserving memory at dispatch: all or nothing, the order of the instructions, and stuck instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import DeviceMemoryError, KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.memory.ledger import expect
from tensord.vm.memory.reservation import is_stuck, loss_of, max_bytes_of, out_of_memory, reserve, take
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Event, Status
from tensord.vm.model.session_queue import SessionQueue
from tensord.vm.model.tensor import Binding

from ..bare_engine import Bare
from ..parts import Parts, copy_of

LIMIT = 64


@pytest.fixture
def parts() -> Parts:
    return Parts(memory=LIMIT)


def making(parts: Parts, *elements: int) -> Instruction:
    """An admitted instruction, not dispatched, with a result of each of these sizes."""
    instruction = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "op", parts.here, 0)
    tensors = [parts.tensor(n, filled=False) for n in elements]
    instruction.outputs = tuple(Binding(copy_of(t), t, 0, None) for t in tensors)
    expect(parts.here, instruction, 8 * sum(elements))
    parts.here.live[instruction] = None
    return instruction


class TestReserve:
    def test_every_result_gets_a_buffer_and_nothing_is_expected_any_more(self, parts: Parts) -> None:
        instruction = making(parts, 2, 3)
        assert reserve(instruction)
        assert [b.copy.buffer.nbytes for b in instruction.outputs if b.copy.buffer] == [16, 24]
        assert parts.here.unreserved == {}
        assert parts.device.allocated == 40

    def test_what_has_memory_already_needs_none(self, parts: Parts) -> None:
        instruction = making(parts, 2)
        held = instruction.outputs[0].copy.buffer = parts.device.allocate(16)
        assert reserve(instruction)
        assert instruction.outputs[0].copy.buffer is held
        assert parts.here.unreserved == {}

    def test_where_it_does_not_fit_nothing_is_taken_and_it_waits(self, parts: Parts) -> None:
        instruction = making(parts, 4, 5)
        assert not reserve(instruction)
        assert all(b.copy.buffer is None for b in instruction.outputs)
        assert parts.device.allocated == 0
        assert parts.here.waiting == [(instruction.admitted, instruction)]
        assert list(parts.here.unreserved) == [instruction]

    def test_memory_that_is_free_for_its_stream_alone_is_so_again_when_the_rest_does_not_fit(
        self, parts: Parts
    ) -> None:
        """Instructions queued ahead on the stream still read it, so no other stream may have it."""
        instruction = making(parts, 2, 3, 4)
        stream = instruction.stream = parts.device.compute[0]
        buffer: Any = parts.device.allocate(16)
        parts.here.reusable[stream] = [buffer]
        assert not take(instruction, list(instruction.outputs))
        assert parts.here.reusable == {stream: [buffer]}
        assert all(b.copy.buffer is None for b in instruction.outputs)
        assert parts.device.allocated == 16

    def test_out_of_turn_it_waits_although_it_would_fit(self, parts: Parts) -> None:
        making(parts, 8)
        assert not reserve(making(parts, 1))

    def test_a_payload_becomes_the_memory_as_it_is(self, parts: Parts) -> None:
        instruction = making(parts, 2)
        instruction.payload = np.array([1.0, 2.0])
        assert take(instruction, list(instruction.outputs))
        buffer = instruction.outputs[0].copy.buffer
        assert buffer is not None
        assert np.shares_memory(buffer.raw, instruction.payload) or np.shares_memory(buffer.array, instruction.payload)

    def test_what_only_a_kernel_decides_stays_spoken_for_at_its_most(self) -> None:
        bare = Bare(inline=False)
        client = bare.client()
        x = client.upload([3.0, 1.0, 3.0])
        number = client.signature("nonzero", (((3,), "float64"),))
        client.send([0, number, (x,), (client.new(),), 0, 1])
        (instruction,) = bare.engine.live.values()
        device = bare.engine.devices["cpu:0"]
        assert instruction.status is Status.DISPATCHED
        assert device.unreserved == {instruction: max_bytes_of(instruction)}
        assert max_bytes_of(instruction) == 24
        bare.drain()
        assert device.unreserved == {}


class TestStuck:
    def test_the_oldest_is_when_it_does_not_fit(self, parts: Parts) -> None:
        first, second = making(parts, 9), making(parts, 9)
        assert is_stuck(first)
        assert not is_stuck(second)

    def test_not_while_a_source_is_unfinished(self, parts: Parts) -> None:
        first = making(parts, 9)
        first.soft[making(parts, 1)] = None
        assert not is_stuck(first)

    def test_not_while_a_stream_keeps_memory_for_later_instructions(self, parts: Parts) -> None:
        first = making(parts, 9)
        parts.here.reusable[parts.device.compute[0]] = [parts.device.allocate(8)]
        assert not is_stuck(first)
        parts.here.reusable[parts.device.compute[0]] = []
        assert is_stuck(first)

    def test_not_while_a_later_one_is_under_way(self, parts: Parts) -> None:
        first = making(parts, 9)
        later: Any = making(parts, 1)
        later.queue, later.status = SessionQueue(parts.device.compute[0], parts.here), Status.DISPATCHED
        assert not is_stuck(first)
        later.status = Status.EXECUTED  # it stays, and has no further effect
        assert is_stuck(first)

    def test_not_while_ended_sessions_have_something_to_release(self, parts: Parts) -> None:
        first = making(parts, 9)
        parts.here.leaving = True
        assert not is_stuck(first)
        parts.here.leaving = False
        assert is_stuck(first)

    def test_not_while_a_release_is_about_to_run(self, parts: Parts) -> None:
        """An ended session has admitted the release late, so it is a later instruction."""
        first = making(parts, 9)
        release = parts.scheduler.new_instruction(parts.session, Opcode.RELEASE, "release", parts.here, 0)
        parts.here.live[release] = None
        assert is_stuck(first)  # `release` may wait for an instruction that waits for `first`
        release.move(Event.SATISFIED)
        assert not is_stuck(first)

    def test_not_while_a_copy_stands_by_for_an_earlier_transfer(self, parts: Parts) -> None:
        earlier, first, later = (making(parts, 9) for _ in range(3))
        earlier.admitted, first.admitted, later.admitted = 1, 2, 3
        del parts.here.live[earlier]
        copy = copy_of(parts.tensor(1))
        parts.here.standby[copy] = earlier
        assert not is_stuck(first)
        parts.here.standby[copy] = later  # `later` may wait for `first`
        assert is_stuck(first)

    def test_its_error_says_what_is_in_use(self, parts: Parts) -> None:
        parts.device.allocate(24)
        error = out_of_memory(making(parts, 4, 5))
        assert type(error) is DeviceMemoryError
        assert error.message.startswith("op: 72 bytes do not fit on cpu:0, where 24 bytes of 64 bytes are in use")

    def test_on_a_lost_device_the_loss_is_the_error(self, parts: Parts) -> None:
        parts.device.lost = RuntimeError("gone")
        error = out_of_memory(making(parts, 1))
        assert type(error) is KernelError
        assert "device cpu:0 is lost: gone" in str(error)

    def test_a_loss_is_one_error_once_the_engine_has_noticed_it(self, parts: Parts) -> None:
        parts.here.lost = known = KernelError("noticed")
        parts.device.lost = RuntimeError("gone")
        assert loss_of(parts.here) is known

    def test_what_fits_once_all_before_it_have_retired_is_never_stuck(self, parts: Parts) -> None:
        chain = []
        before = parts.tensor(4)
        for _ in range(5):
            after = parts.tensor(4, filled=False)
            chain.append(parts.op(reads=[before], writes=[after]))
            parts.release(before)
            before = after
        parts.drain()
        assert all(op.status is Status.DONE for op in chain)
        assert parts.device.peak <= LIMIT
