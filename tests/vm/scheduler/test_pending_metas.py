"""Pending metas: inference once a shape is known, and failures because it never will be."""

from __future__ import annotations

from collections import deque

import pytest

from tensord.interpreter.errors import KernelError, QuotaError, TensordError
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.limits import Limits
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.plan import Plan
from tensord.vm.model.tensor import Binding, VmTensor
from tensord.vm.placement.views import alias
from tensord.vm.scheduler.pending_metas import PendingMetas, await_metas, fail_meta
from tensord.vm.scheduler.wanted import Wanted

from ..parts import Parts, copy_of

THREE = Meta.of((3,), "float64")


@pytest.fixture
def parts() -> Parts:
    return Parts()


class Resolver:
    """Records the calls of `PendingMetas`."""

    def __init__(self, parts: Parts) -> None:
        self.errors: dict[Instruction, TensordError] = {}
        self.runnable: list[Instruction] = []
        self.wanted: deque[Wanted] = deque()
        metas = PendingMetas(parts.engine.infer, self.errors.__setitem__, self.runnable.append, self.wanted)
        self.resolve, self.fail, self.resolve_wanting = metas.resolve, metas.fail, metas.resolve_wanting


@pytest.fixture
def resolver(parts: Parts) -> Resolver:
    return Resolver(parts)


def pending(parts: Parts) -> VmTensor:
    """A tensor whose meta is not known."""
    tensor, _ = parts.residency.new_tensor(None, parts.here)
    tensor.storage.account = parts.session.account
    return tensor


def call(parts: Parts, op: str, *inputs: VmTensor | float) -> tuple[Instruction, VmTensor]:
    """An op on pending tensors, as admission leaves it, and its result."""
    instruction = parts.scheduler.new_instruction(parts.session, Opcode.CALL, op, parts.here, 0)
    metas = tuple(value.meta if isinstance(value, VmTensor) else type(value) for value in inputs)
    instruction.plan = Plan(find(op), (), metas, parts.here, None, parts.engine.infer, parts.session.id)
    result = pending(parts)
    instruction.inputs = tuple(
        Binding(copy_of(value), value, 0, None) if isinstance(value, VmTensor) else value for value in inputs
    )
    instruction.outputs = (Binding(copy_of(result), result, 0, None),)
    await_metas(instruction)
    return instruction, result


class TestResolving:
    def test_sizes_and_what_is_planned_become_known(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        before = parts.here.planned, parts.session.account.bytes
        resolver.resolve(x, THREE)
        assert (x.meta, x.storage.nbytes, copy_of(x).nbytes) == (THREE, 24, 24)
        assert (parts.here.planned, parts.session.account.bytes) == (before[0] + 24, before[1] + 24)

    def test_a_copy_that_has_left_its_map_is_not_planned(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        copy_of(x).current = False
        before = parts.here.planned
        resolver.resolve(x, THREE)
        assert copy_of(x).nbytes == 24
        assert parts.here.planned == before

    def test_tensors_of_the_same_value_learn_it(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        y = alias(x, parts.here)
        resolver.resolve(x, THREE)
        assert y.meta is THREE

    def test_results_are_inferred_down_a_chain_before_anything_has_run(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        first, y = call(parts, "negative", x)
        second, z = call(parts, "greater", y, 1.0)
        resolver.resolve(x, THREE)
        assert (y.meta, z.meta) == (THREE, Meta.of((3,), "bool"))
        assert resolver.runnable == [first, second]
        assert isinstance(first.plan, Plan)
        assert first.kernel is first.plan.kernel

    def test_an_instruction_waits_for_the_last_of_its_metas(self, parts: Parts, resolver: Resolver) -> None:
        x, y = pending(parts), pending(parts)
        instruction, z = call(parts, "add", x, y)
        assert instruction.pending == 2
        resolver.resolve(x, THREE)
        assert (instruction.pending, z.meta, resolver.runnable) == (1, None, [])
        resolver.resolve(y, THREE)
        assert (instruction.pending, z.meta, resolver.runnable) == (0, THREE, [instruction])

    def test_a_tensor_that_is_an_operand_twice_is_awaited_twice(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        instruction, z = call(parts, "add", x, x)
        resolver.resolve(x, THREE)
        assert (instruction.pending, z.meta) == (0, THREE)

    def test_an_instruction_that_has_failed_meanwhile_is_left_alone(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        instruction, y = call(parts, "negative", x)
        instruction.error = KernelError("cancelled, perhaps")
        resolver.resolve(x, THREE)
        assert (y.meta, resolver.runnable, resolver.errors) == (None, [], {})


class TestShares:
    """A device with a ceiling, where the session's share has no room for a result of 24 bytes."""

    @pytest.fixture
    def waiting(self, parts: Parts, resolver: Resolver) -> tuple[Instruction, VmTensor]:
        x = pending(parts)
        instruction, y = call(parts, "negative", x)
        parts.here.ceiling = 100
        parts.session.account.shares[parts.here] = 90
        resolver.resolve(x, THREE)
        return instruction, y

    def test_what_is_lacking_is_wanted_and_the_result_waits_for_it(
        self, resolver: Resolver, waiting: tuple[Instruction, VmTensor]
    ) -> None:
        instruction, y = waiting
        assert list(resolver.wanted) == [Wanted(instruction, 24, share=True)]
        assert (y.meta, instruction.pending, resolver.runnable, resolver.errors) == (None, 1, [], {})

    def test_once_others_have_left_it_goes_on(
        self, parts: Parts, resolver: Resolver, waiting: tuple[Instruction, VmTensor]
    ) -> None:
        instruction, y = waiting
        parts.session.account.shares[parts.here] = 0
        resolver.resolve_wanting(instruction)
        assert (y.meta, instruction.pending, resolver.runnable) == (THREE, 0, [instruction])

    def test_it_fails_if_they_have_not(self, resolver: Resolver, waiting: tuple[Instruction, VmTensor]) -> None:
        instruction, y = waiting
        resolver.resolve_wanting(instruction)
        assert isinstance(resolver.errors[instruction], QuotaError)
        assert (y.meta, len(resolver.wanted)) == (None, 1)


class TestFailing:
    def test_metas_that_do_not_fit_fail_the_instruction(self, parts: Parts, resolver: Resolver) -> None:
        x, y = pending(parts), pending(parts)
        instruction, z = call(parts, "add", x, y)
        resolver.resolve(x, THREE)
        resolver.resolve(y, Meta.of((4,), "float64"))
        assert list(resolver.errors) == [instruction]
        assert "add" in str(resolver.errors[instruction])
        assert z.meta is None

    def test_so_does_a_quota(self, parts: Parts, resolver: Resolver) -> None:
        parts.session = parts.engine.open_session(lambda *_: None, limits=Limits(bytes=16))
        x = pending(parts)
        instruction, _ = call(parts, "negative", x)
        resolver.resolve(x, THREE)
        assert isinstance(resolver.errors[instruction], QuotaError)

    def test_a_quota_counts_all_that_one_meta_has_made_known(self, parts: Parts, resolver: Resolver) -> None:
        parts.session = parts.engine.open_session(lambda *_: None, limits=Limits(bytes=48))
        x = pending(parts)
        (first, y), (second, _), (third, _) = (call(parts, "negative", x) for _ in range(3))
        resolver.resolve(x, Meta.of((2,), "float64"))
        assert resolver.runnable == [first, second]
        assert list(resolver.errors) == [third]
        assert (y.storage.nbytes, parts.session.account.bytes) == (16, 48)

    def test_the_others_that_waited_go_on(self, parts: Parts, resolver: Resolver) -> None:
        x, four = pending(parts), parts.tensor(4)
        wrong, _ = call(parts, "add", x, four)
        right, y = call(parts, "negative", x)
        resolver.resolve(x, THREE)
        assert list(resolver.errors) == [wrong]
        assert (resolver.runnable, y.meta) == ([right], THREE)

    def test_a_meta_that_will_never_be_known_dooms_what_waits_for_it(self, parts: Parts) -> None:
        x = pending(parts)
        instruction, _ = call(parts, "negative", x)
        behind, _ = call(parts, "negative", alias(x, parts.here))
        error = KernelError("boom")
        assert fail_meta(x, error) == [instruction, behind]

    def test_what_comes_later_fails_at_once(self, parts: Parts) -> None:
        x = pending(parts)
        error = KernelError("boom")
        fail_meta(x, error)
        instruction, _ = call(parts, "negative", x)
        assert instruction.error is error
        assert (instruction.pending, x.dependents) == (0, None)

    def test_results_of_a_failed_instruction_stay_without_meta(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        instruction, y = call(parts, "negative", x)
        behind, _ = call(parts, "negative", y)
        instruction.error = error = KernelError("boom")
        assert list(resolver.fail(instruction)) == [(error, [behind])]
        assert y.meta_error is error

    def test_results_that_are_known_stay_known(self, parts: Parts, resolver: Resolver) -> None:
        x = pending(parts)
        instruction, y = call(parts, "negative", x)
        resolver.resolve(x, THREE)
        instruction.error = KernelError("boom")
        assert list(resolver.fail(instruction)) == []
        assert y.meta is THREE
