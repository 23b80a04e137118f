"""Numbers become fewer, and keep their values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.passes.numbers import numbers
from tensord.interpreter.programs.program import Program

from ....each_case import each_case
from .conftest import Writer


def used(builder: Writer, *slots: int) -> Program:
    """A program that prints a sum with each of the numbers."""
    for slot in slots:
        builder.print([None], [builder.call("add", 0, ~slot)])
    return builder.finish([])


def shown(program: Program) -> list[Any]:
    return [(number.op, *number.operands) if number.value is None else number.value for number in program.numbers]


def taken(program: Program) -> list[int]:
    return [~step.operands[1] for step in program.steps if step.op != "print"]


def test_numbers_keep_their_places_used_or_not(builder: Writer) -> None:
    builder.number("int", "seed")
    one, two = builder.number("float", "constant", (), 1.0), builder.number("float", "parameter")
    builder.number("float", "mul", [builder.number("float", "add", [one, one]), two])
    program = used(builder, two)
    assert taken(numbers(program)) == [2]
    assert [number.kind for number in numbers(program).numbers] == [number.kind for number in program.numbers]


def test_what_a_run_gives_stays(builder: Writer) -> None:
    for op in ("parameter", "draw", "parameter", "draw"):
        builder.number("int", op)
    program = builder.finish([])
    assert numbers(program) is program


def test_arithmetic_that_may_raise_stays(builder: Writer) -> None:
    whole, real = builder.number("int", "parameter"), builder.number("float", "parameter")
    for op in ("truediv", "floordiv", "mod", "pow"):
        builder.number("float", op, [real, real])
    builder.number("float", "mul", [whole, real])  # an int may be too large for a float
    program = builder.finish([])
    assert numbers(program) is program


def test_equal_numbers_are_shared(builder: Writer) -> None:
    x, y = builder.number("float", "parameter", name="x"), builder.number("float", "parameter", name="x")
    sums = [builder.number("float", "add", pair) for pair in ((x, y), (x, y), (y, x))]
    halves = [builder.number("float", "constant", (), 0.5) for _ in range(2)]
    seeds = [builder.number("int", "seed") for _ in range(2)]
    draws = [builder.number("int", "draw") for _ in range(2)]
    program = numbers(used(builder, *sums, *halves, *seeds, *draws))
    x, y, first, _, other, half, _, seed, _, *draws = range(11)
    assert taken(program) == [first, first, other, half, half, seed, seed, *draws]
    assert numbers(program) is program


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, 1.0), (1, True), (0j, -0j)])
def test_equal_values_of_another_sign_or_type_are_not_shared(builder: Writer, one: Any, other: Any) -> None:
    mask = builder.call("isnan", 0)
    for value in (one, other):
        builder.print([None], [builder.call("equal", mask if value is True else 0, builder.constant(value))])
    program = builder.finish([])
    assert numbers(program) is program


def test_constants_are_computed(builder: Writer) -> None:
    two, half = builder.number("int", "constant", (), 2), builder.number("float", "constant", (), 0.5)
    power = builder.number("int", "pow", [two, two])
    program = numbers(used(builder, power, builder.number("float", "mul", [power, half])))
    assert shown(program) == [2, 0.5, 4, 2.0]
    assert taken(program) == [2, 3]


@each_case(
    ("kind", "op", "values"),
    [
        ("float", "truediv", (1, 0)),
        ("float", "pow", (1e300, 2.0)),
        ("int", "pow", (2, -1)),  # a float
        ("int", "mul", (2**63, 2)),
        ("int", "pow", (2**63, 2**62)),  # not computed at all
    ],
)
def test_arithmetic_that_raises_or_gives_what_no_program_has_is_left(
    builder: Writer, kind: str, op: str, values: tuple[Any, ...]
) -> None:
    slots = [builder.number(type(value).__name__, "constant", (), value) for value in values]
    program = used(builder, builder.number(kind, op, slots))
    assert numbers(program) is program or len(set(values)) < len(values)
    assert numbers(program).numbers[-1].op == op


@each_case(
    ("kind", "op", "values"),
    [
        ("float", "pow", (2.0, 0.3)),
        ("float", "pow", (2, -1)),
        ("complex", "mul", (1j, 0.1j)),
        ("complex", "add", (1j, 2)),
    ],
)
def test_arithmetic_that_machines_may_round_in_other_ways_is_left_to_the_client(
    builder: Writer, kind: str, op: str, values: tuple[Any, ...]
) -> None:
    slots = [builder.number(type(value).__name__, "constant", (), value) for value in values]
    builder.number(kind, op, slots)
    program = builder.finish([])
    assert numbers(program) is program


def test_a_constant_that_does_not_fit_its_op_is_left_to_the_run(builder: Writer) -> None:
    large = builder.number("int", "constant", (), 2**30)
    product = builder.number("int", "mul", [large, large])
    builder.call("add", 2, ~product)
    program = builder.finish([])
    assert numbers(program) is program


def test_a_number_of_more_than_64_bits_stays_arithmetic_also_inside(builder: Writer) -> None:
    large = builder.number("int", "constant", (), 2**63)
    square = builder.number("int", "mul", [large, large])
    program = used(builder, builder.number("int", "floordiv", [square, large]))
    assert numbers(program) is program


def test_nan_is_a_constant_like_others(builder: Writer) -> None:
    infinite = builder.number("float", "constant", (), math.inf)
    program = numbers(used(builder, builder.number("float", "sub", [infinite, infinite])))
    number = program.numbers[-1]
    assert number.op == "constant"
    assert math.isnan(number.value)  # type: ignore[arg-type]


def test_parameters_keep_their_names_and_places() -> None:
    builder = Builder()
    builder.number("int", "constant", (), 1)
    for name in ("x", "y"):
        builder.number("float", "parameter", name=name)
    assert [number.name for number in numbers(builder.finish([])).number_parameters] == ["x", "y"]
