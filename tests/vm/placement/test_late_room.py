"""Room beyond the plan: the scheduler returns the missing bytes, and its driver evicts values."""

from __future__ import annotations

from tensord.interpreter.errors import DeviceMemoryError
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.types.meta import Meta
from tensord.streams.device import Eviction
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.tensor import Binding
from tensord.vm.scheduler.wanted import Wanted

from ..parts import Parts

EIGHT = 64  # bytes of eight float64


def full() -> Parts:
    """A sim device with room for two values of eight numbers, which it has."""
    parts = Parts("sim:0", "cpu:0", memory=2 * EIGHT, eviction=Eviction.COST)
    parts.at("cpu:0").backend.limit = 1 << 20
    for _ in range(2):
        parts.tensor(8)
    return parts


def stuck(parts: Parts) -> Instruction:
    """An instruction whose result has no planned room."""
    made, copy = parts.residency.new_tensor(Meta.of((8,), "float64"), parts.here)
    instruction = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "op", parts.here, 0)
    instruction.outputs, instruction.writes = (Binding(copy, made, 0, None),), (copy,)
    instruction.kernel = lambda *_: None
    parts.scheduler.admit(instruction)
    return instruction


def test_a_step_of_the_scheduler_says_what_is_lacking_and_evicts_nothing():
    parts = full()
    instruction = stuck(parts)
    parts.dispatcher.dispatch_ready()
    assert list(parts.scheduler.wanted) == [Wanted(instruction, EIGHT)]
    assert list(parts.scheduler.live.values()) == [instruction]
    assert instruction.status is Status.READY


def test_nothing_is_dispatched_before_that_is_made():
    parts = full()
    stuck(parts)
    behind = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "behind", parts.at("cpu:0"), 0)
    behind.kernel = lambda *_: None
    parts.scheduler.admit(behind)
    parts.dispatcher.dispatch_ready()
    assert behind.status is Status.READY
    parts.engine.admission.conclude()
    parts.dispatcher.dispatch_ready()
    assert behind.status is Status.DISPATCHED


def test_a_value_leaves_and_the_instruction_runs():
    parts = full()
    instruction = stuck(parts)
    parts.drain()
    assert (instruction.status, instruction.error) == (Status.DONE, None)
    assert parts.here.eviction.evicted == [1, EIGHT]


def test_the_instruction_fails_where_none_may_leave():
    parts = full()
    for tensor in parts.session.tensors.values():
        parts.here.pinned[tensor.storage] = 1
    instruction = stuck(parts)
    parts.engine.admission.holders = lambda device: f"; all of {device.name} is held"
    parts.drain()
    assert isinstance(instruction.error, DeviceMemoryError)
    assert "all of sim:0 is held" in str(instruction.error)


def test_one_that_fails_before_its_room_is_made_lets_nothing_leave():
    parts = full()
    instruction = stuck(parts)
    parts.dispatcher.dispatch_ready()
    parts.scheduler.fail_waiting(instruction, DeviceMemoryError("no"))
    parts.drain()
    assert parts.here.eviction.evicted == [0, 0]
