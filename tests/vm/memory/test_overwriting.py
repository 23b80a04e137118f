"""Forwarding: the inputs whose memory a result may take over."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.wire.messages import Fetch
from tensord.vm.memory.overwriting import dies_with_call, forward, is_free_for
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.tensor import Binding, Copy
from tensord.vm.placement.views import alias

from ..bare_engine import Bare, Client
from ..parts import Parts, copy_of


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def copy(parts: Parts) -> Copy:
    return copy_of(parts.tensor())


class TestDying:
    def test_the_last_handle_of_a_tensor_that_has_its_storage_for_itself(self, parts: Parts) -> None:
        assert dies_with_call(parts.tensor())

    def test_not_where_a_name_or_another_handle_holds_it(self, parts: Parts) -> None:
        x = parts.tensor()
        x.holders = 2
        assert not dies_with_call(x)

    def test_not_where_another_tensor_shares_the_storage(self, parts: Parts) -> None:
        x = parts.tensor()
        alias(x, x.home)
        assert not dies_with_call(x)

    def test_not_where_it_is_a_view(self, parts: Parts) -> None:
        x = parts.tensor()
        x.strides = (8,)
        assert not dies_with_call(x)


class TestFree:
    def test_nobody_else_uses_memory_of_the_right_size(self, copy: Copy) -> None:
        assert is_free_for(copy, 8, 0)

    @pytest.mark.parametrize(("nbytes", "others"), [(16, 0), (4, 0), (8, 1)])
    def test_another_size_or_another_use_is_in_the_way(self, copy: Copy, nbytes: int, others: int) -> None:
        assert not is_free_for(copy, nbytes, others)

    def test_memory_that_a_client_can_see_is_not_free(self, copy: Copy) -> None:
        copy.client_mappings = 1
        assert not is_free_for(copy, 8, 0)

    def test_nor_is_memory_that_is_not_there(self, copy: Copy) -> None:
        copy.buffer = None
        assert not is_free_for(copy, 8, 0)


class TestForward:
    """Forwarding at dispatch; the instruction is bound to a stale input and one result without memory."""

    @pytest.fixture
    def source(self, parts: Parts, copy: Copy) -> Copy:
        copy.current, copy.uses = False, 1
        parts.here.planned -= 8
        return copy

    @pytest.fixture
    def instruction(self, parts: Parts, source: Copy) -> Instruction:
        y = parts.tensor(filled=False)
        made: Any = parts.op()
        made.donated, made.outputs = (source,), (Binding(copy_of(y), y, 0, None),)
        made.stream = parts.device.compute[0]
        return made

    def test_the_result_has_the_inputs_buffer(self, instruction: Instruction, source: Copy) -> None:
        assert forward(instruction, list(instruction.outputs))
        assert instruction.outputs[0].copy.buffer is source.buffer is not None
        assert instruction.forwarded is source

    def test_not_without_an_input_that_dies(self, instruction: Instruction) -> None:
        instruction.donated = ()
        assert not forward(instruction, list(instruction.outputs))

    def test_not_where_there_are_several_results(self, instruction: Instruction) -> None:
        instruction.outputs *= 2
        assert not forward(instruction, list(instruction.outputs[:1]))
        assert not forward(instruction, list(instruction.outputs))

    def test_not_while_the_input_is_current(self, instruction: Instruction, source: Copy) -> None:
        source.current = True
        assert not forward(instruction, list(instruction.outputs))

    def test_uses_in_front_of_it_on_its_own_stream_are_over_by_then(
        self, instruction: Instruction, source: Copy
    ) -> None:
        source.uses, source.queued, source.stream = 3, 2, instruction.stream
        assert forward(instruction, list(instruction.outputs))

    @pytest.mark.parametrize("where", ["another stream", "no stream yet", "runs inline"])
    def test_uses_elsewhere_are_not(self, instruction: Instruction, source: Copy, where: str) -> None:
        source.uses, source.queued, source.stream = 3, 2, instruction.stream
        if where == "another stream":
            source.stream = None
        elif where == "no stream yet":
            source.queued = 1
        else:
            instruction.stream = source.stream = None
        assert not forward(instruction, list(instruction.outputs))


class TestWholeWay:
    def memory_before_and_after(self, bare: Bare, client: Client, released: int) -> tuple[object, object]:
        x = client.upload([1.0, 2.0])
        buffer = client.session.tensors[x].storage.copies[bare.engine.devices["cpu:0"]].buffer
        y = client.call("negative", x, meta=((2,), "float64"), released=released)
        bare.drain()
        after = client.session.tensors[y].storage.copies[bare.engine.devices["cpu:0"]].buffer
        client.send(Fetch(y, 9, 0, 0))
        bare.drain()
        assert client.answers[9][0].tolist() == [-1.0, -2.0]
        return buffer, after

    @pytest.mark.parametrize("inline", [True, False])
    def test_a_result_lies_where_its_dying_input_lay(self, *, inline: bool) -> None:
        bare = Bare(inline=inline)
        before, after = self.memory_before_and_after(bare, bare.client(), 1)
        assert before is after is not None
        assert bare.device.allocated == 16

    @pytest.mark.parametrize("inline", [True, False])
    def test_an_input_that_lives_on_keeps_its_memory(self, *, inline: bool) -> None:
        bare = Bare(inline=inline)
        before, after = self.memory_before_and_after(bare, bare.client(), 0)
        assert before is not after
        assert bare.device.allocated == 32
