"""Binding: which array of its device a kernel gets for an operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta
from tensord.vm.memory.binding import bind, bind_arguments
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.plan import Plan
from tensord.vm.model.tensor import Binding, VmTensor

from ..parts import Parts, copy_of


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def x(parts: Parts) -> VmTensor:
    """The numbers 0 to 5."""
    x = parts.tensor(6)
    bind(whole(x))[...] = np.arange(6.0)
    return x


def whole(tensor: VmTensor) -> Binding:
    return Binding(copy_of(tensor), tensor, 0, None)


class TestOneOperand:
    def test_the_buffers_array_of_that_meta_is_taken_as_it_is(self, x: VmTensor) -> None:
        buffer = copy_of(x).buffer
        assert buffer is not None
        assert bind(whole(x)) is buffer.array

    def test_for_another_meta_the_same_memory_is_bound_anew(self, x: VmTensor) -> None:
        buffer = copy_of(x).buffer
        assert buffer is not None
        before = buffer.array
        x.meta = Meta.of((2, 3), "float64")
        array = bind(whole(x))
        assert array.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert np.shares_memory(array, before)

    def test_a_view_has_offset_and_strides(self, x: VmTensor) -> None:
        x.meta = Meta.of((2,), "float64")
        assert bind(Binding(copy_of(x), x, 8, (16,))).tolist() == [1.0, 3.0]

    def test_without_memory_it_is_an_error(self, parts: Parts) -> None:
        with pytest.raises(TensordError, match="has no memory"):
            bind(whole(parts.tensor(filled=False)))

    def test_without_a_meta_it_is_an_error(self, x: VmTensor) -> None:
        x.meta = None
        with pytest.raises(TensordError, match="has no memory"):
            bind(whole(x))


class TestArguments:
    @pytest.fixture
    def instruction(self, parts: Parts, x: VmTensor) -> Instruction:
        made: Any = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "op", parts.here, 0)
        made.inputs, made.outputs = (whole(x), 2.5), (whole(parts.tensor(2)),)
        one: Instruction = made
        return one

    def test_inputs_come_in_order_then_outputs(self, instruction: Instruction) -> None:
        bind_arguments(instruction)
        first, number, result = instruction.arguments
        assert (first.tolist(), number, result.shape) == ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2.5, (2,))

    @pytest.mark.parametrize(("dynamic", "count"), [(True, 2), (False, 3)])
    def test_a_kernel_whose_result_has_no_shape_yet_gets_no_output(
        self, parts: Parts, instruction: Instruction, dynamic: bool, count: int
    ) -> None:
        op, meta = find("nonzero" if dynamic else "negative"), Meta.of((2,), "float64")
        instruction.plan = Plan(op, op.freeze({}), (meta,), parts.here, None, parts.engine.infer, 1)
        bind_arguments(instruction)
        assert len(instruction.arguments) == count

    @pytest.mark.parametrize(("before", "after"), [(-1, 16), (0, 0), (5, 5)])
    def test_bytes_to_be_counted_are_those_of_the_outputs(
        self, instruction: Instruction, before: int, after: int
    ) -> None:
        instruction.bytes_moved = before
        bind_arguments(instruction)
        assert instruction.bytes_moved == after

    def test_a_buffer_that_was_forwarded_is_the_results(self, instruction: Instruction, x: VmTensor) -> None:
        source = copy_of(x)
        instruction.forwarded = source
        bind_arguments(instruction)
        assert source.buffer is None
        assert instruction.arguments[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]  # bound before
