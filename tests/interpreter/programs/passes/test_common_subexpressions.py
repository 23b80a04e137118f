"""Repeated computations are done once, unless the difference could be observed."""

from __future__ import annotations

from tensord.interpreter.programs.passes.needless import common_subexpressions
from tensord.interpreter.programs.program import Program

from .conftest import Writer, operands, ops


def is_kept(program: Program) -> bool:
    return common_subexpressions(program) is program


def test_equal_ops_on_equal_operands_are_computed_once(builder: Writer) -> None:
    sums = [builder.call("add", 0, 1) for _ in range(3)]
    roots = [builder.call("sqrt", value) for value in sums]
    program = common_subexpressions(builder.finish([builder.call("multiply", roots[1], roots[2])]))
    assert ops(program) == ["add", "sqrt", "multiply"]
    assert operands(program) == [(0, 1), (3,), (4, 4)]
    assert [step.location for step in program.steps] == [0, 3, 6]


def test_ops_attributes_operands_and_devices_count(builder: Writer) -> None:
    for device in (0, 1):
        for pair in ((0, 1), (1, 0)):
            builder.call("subtract", *pair, device=device)
            builder.call("add", *pair, device=device)
    for axis in (0, 1, None):
        builder.call("sum", 0, axis=axis)
    assert is_kept(builder.finish([]))


def test_equal_numbers_that_are_not_the_same_are_two(builder: Writer) -> None:
    for value in (0.0, -0.0):
        builder.call("copysign", 0, builder.constant(value))
    assert is_kept(builder.finish([]))


def test_draws_are_equal_by_their_numbers(builder: Writer) -> None:
    seed, first, second = (~builder.number("int", op) for op in ("seed", "draw", "draw"))
    for call in (first, second, first):
        builder.call("uniform", seed, call, shape=(2,))
    program = common_subexpressions(builder.finish([]))
    assert operands(program) == [(seed, first), (seed, second)]


def test_a_tensor_that_is_overwritten_is_not_shared(builder: Writer) -> None:
    for writes_first in (True, False):
        first, second = builder.call("sqrt", 0), builder.call("sqrt", 0)
        builder.call("exp", 1, into=first if writes_first else second)
    assert [step.op for step in common_subexpressions(builder.finish([])).steps].count("sqrt") == 3  # 2 and 3 are one


def test_an_operand_that_is_overwritten_is_another_one(builder: Writer) -> None:
    builder.call("sqrt", 0)
    builder.call("sqrt", builder.call("exp", 1, into=0))
    assert is_kept(builder.finish([]))


def test_a_write_is_not_shared(builder: Writer) -> None:
    builder.call("add", 0, 1, into=1)
    other = builder.call("zeros", shape=(4, 4), dtype="float32")
    builder.call("sqrt", 0, into=other)
    builder.call("sqrt", 0)
    assert is_kept(builder.finish([]))


def test_what_may_fail_runs_as_often_as_it_did(builder: Writer) -> None:
    for _ in range(2):
        builder.call("inv", 0)
        builder.call("power", 2, 2)
        builder.print([None], [0])
    assert is_kept(builder.finish([]))


def test_tensors_that_are_returned_are_computed_each(builder: Writer) -> None:
    first, second, third = (builder.call("add", 0, 1, device=1) for _ in range(3))
    root = builder.call("sqrt", third, device=1)
    assert is_kept(builder.finish([first, third, second, root]))


def test_the_first_is_returned_in_place_of_the_second(builder: Writer) -> None:
    _, second, third = (builder.call("add", 0, 1) for _ in range(3))
    program = common_subexpressions(builder.finish([third, second]))
    assert ops(program) == ["add", "add"]
    assert sorted(program.results) == [3, 4]


def test_views_are_shared(builder: Writer) -> None:
    views = [builder.call("transpose", 0) for _ in range(2)]
    assert ops(common_subexpressions(builder.finish([builder.call("matmul", *views)]))) == ["transpose", "matmul"]
