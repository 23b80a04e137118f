"""Accepted and refused calls of a builder. A refused call leaves the builder unchanged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import (
    MetadataError,
    MetadataOverflowError,
    MetadataTypeError,
    ProtocolError,
    QuotaError,
)
from tensord.interpreter.programs.builder import MAX_NAME_LENGTH, MAX_PARTS, MAX_SLOTS, MAX_TEXT_LENGTH, Builder
from tensord.interpreter.programs.numbers import ARITHMETIC
from tensord.interpreter.programs.program import NO_DEVICE, Program
from tensord.interpreter.schema.infer import InferCache
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

VECTOR = Meta.of((3,), "float32")
MATRIX = Meta.of((3, 4), "float32")
INTEGERS = Meta.of((3,), "int8")
HUGE = 10**5000  # Python refuses to print it, and so does pytest


def kinds(value: Any) -> str:
    return "huge" if value is HUGE else repr(value)


def with_parameters(*metas: Meta) -> Builder:
    builder = Builder()
    for meta in metas:
        builder.parameter(meta)
    return builder


def state_of(builder: Builder) -> Any:
    """The whole state of a builder, for comparisons."""
    kept = {name: value for name, value in vars(builder).items() if name != "_infer"}
    kept["size"] = vars(builder.size)
    return {name: value.copy() if isinstance(value, list | dict) else value for name, value in kept.items()}


def refuses(builder: Builder, error: type[Exception], match: str, call: Any) -> None:
    before = state_of(builder)
    with pytest.raises(error, match=match) as caught:
        call(builder)
    assert state_of(builder) == before
    assert len(str(caught.value)) < 300


# -- numbers -----------------------------------------------------------------------------------------------------------


def numbers() -> Builder:
    """$0: bool, $1: int, $2: float, $3: complex."""
    builder = Builder()
    for kind in ("bool", "int", "float", "complex"):
        builder.number(kind, "parameter")
    return builder


def test_numbers_are_slots_in_the_order_of_their_making():
    builder = numbers()
    assert builder.number("int", "constant", value=7) == 4
    assert builder.number("int", "seed") == 5
    assert builder.number("int", "draw") == 6
    assert builder.number("float", "add", (1, 2), name="sum") == 7
    assert builder.finish([]).numbers[7] == ("float", "add", (1, 2), None, "sum")


@each_case("kind", ["str", "", "int64", 1, None, ["int"], int])
def test_a_number_has_a_type_of_python(kind):
    refuses(numbers(), ProtocolError, "not a type of a number", lambda b: b.number(kind, "parameter"))


@each_case("op", ["sqrt", "", "matmul", 1, None, ["add"]])
def test_there_is_no_other_arithmetic(op):
    refuses(numbers(), ProtocolError, "unknown arithmetic", lambda b: b.number("int", op, (1, 1)))


@each_case("operands", [(), (1,), (1, 1, 1), (1, 4), (-1, 1), (1.0, 1), (True, 1), ("1", 1), (None, 1)])
def test_arithmetic_takes_earlier_numbers_as_many_as_it_needs(operands):
    refuses(numbers(), ProtocolError, "takes 2 earlier numbers", lambda b: b.number("int", "add", operands))


@each_case("op", ["parameter", "constant", "seed", "draw"])
def test_what_is_not_computed_takes_no_numbers(op):
    value = 1 if op == "constant" else None
    refuses(numbers(), ProtocolError, "takes no numbers", lambda b: b.number("int", op, (1,), value))


@each_case(
    ("kind", "value"),
    [
        ("int", None),
        ("int", True),
        ("int", 1.0),
        ("float", 1),
        ("bool", 1),
        ("bool", np.True_),
        ("float", np.float64(1)),
        ("int", "1"),
        ("complex", [1.0, 2.0]),
    ],
)
def test_a_constant_has_a_value_of_exactly_its_type(kind, value):
    refuses(numbers(), ProtocolError, "cannot have the value", lambda b: b.number(kind, "constant", value=value))


def test_only_constants_have_values():
    for op, operands in (("parameter", ()), ("seed", ()), ("neg", (1,))):
        refuses(
            numbers(), ProtocolError, "cannot have the value", lambda b, op=op, n=operands: b.number("int", op, n, 1)
        )


@each_case("value", [2**64, -(2**63) - 1, HUGE, -HUGE], ids=["wide", "low", "huge", "huge and negative"])
def test_a_constant_has_at_most_64_bits(value):
    refuses(numbers(), MetadataError, "more than 64 bits", lambda b: b.number("int", "constant", value=value))


@each_case("value", [2**64 - 1, -(2**63), 0])
def test_any_integer_of_64_bits_is_a_constant(value):
    builder = numbers()
    builder.number("int", "constant", value=value)
    assert builder.numbers[-1].value == value


@pytest.mark.parametrize("op", ["seed", "draw"])
def test_seeds_and_draws_are_ints(op):
    refuses(numbers(), ProtocolError, "is an int", lambda b: b.number("float", op))


@each_case(
    ("kind", "op", "operands", "match"),
    [
        ("int", "truediv", (1, 1), "truediv of int and int is float, not int"),
        ("int", "add", (1, 2), "add of int and float is float, not int"),
        ("complex", "pow", (1, 1), "pow of int and int is int or float, not complex"),
        ("bool", "neg", (0,), "neg of bool is int, not bool"),
        ("float", "and", (2, 2), "no and of float and float"),
        ("complex", "mod", (3, 1), "no mod of complex and int"),
        ("float", "invert", (2,), "no invert of float"),
    ],
)
def test_arithmetic_has_a_type_that_python_gives(kind, op, operands, match):
    refuses(numbers(), MetadataTypeError, match, lambda b: b.number(kind, op, operands))


@each_case("op", sorted(ARITHMETIC))
def test_each_arithmetic_can_be_had(op):
    builder = numbers()
    kind = "float" if op == "truediv" else "int"
    assert builder.number(kind, op, (1,) * ARITHMETIC[op][0]) == 4


@each_case("name", ["x" * (MAX_NAME_LENGTH + 1), "a\nb", "\0", "\ud800", 1, None, b"x"])
def test_a_name_is_a_short_printable_text(name):
    refuses(Builder(), ProtocolError, "not a name", lambda b: b.number("int", "parameter", name=name))
    refuses(Builder(), ProtocolError, "not a name", lambda b: b.parameter(VECTOR, name=name))
    refuses(Builder(), ProtocolError, "not a name", lambda b: b.captured(VECTOR, name=name))


def test_there_are_as_many_numbers_as_the_limit_says():
    builder = Builder(limit=2)
    builder.number("int", "parameter")
    builder.number("int", "parameter")
    refuses(builder, QuotaError, "at most 2 numbers", lambda b: b.number("int", "parameter"))


# -- tensors from outside ----------------------------------------------------------------------------------------------


def test_parameters_come_first():
    builder = with_parameters(VECTOR)
    builder.captured(VECTOR)
    refuses(builder, ProtocolError, "parameters come before", lambda b: b.parameter(VECTOR))
    builder = with_parameters(VECTOR)
    builder.op("exp", [0])
    refuses(builder, ProtocolError, "parameters come before", lambda b: b.parameter(VECTOR))


@each_case("device", [-1, MAX_SLOTS, 1.0, True, "d0", None, HUGE], ids=kinds)
def test_devices_are_slots(device):
    builder = with_parameters(VECTOR)
    refuses(builder, ProtocolError, "not a device", lambda b: b.parameter(VECTOR, device))
    refuses(builder, ProtocolError, "not a device", lambda b: b.captured(VECTOR, device))
    refuses(builder, ProtocolError, "not a device", lambda b: b.op("exp", [0], device=device))
    refuses(builder, ProtocolError, "not a device", lambda b: b.move(0, device))


def test_the_limit_of_tensors_from_outside_does_not_count_results():
    builder = Builder(limit=3)
    builder.parameter(VECTOR)
    for _ in range(3):
        builder.op("exp", [0])
    builder.captured(VECTOR)
    builder.captured(VECTOR)
    refuses(builder, QuotaError, "at most 3 tensors from outside", lambda b: b.captured(VECTOR))


# -- ops ---------------------------------------------------------------------------------------------------------------


def test_the_results_of_a_step_are_the_next_values():
    builder = with_parameters(Meta.of((4, 4), "float64"))
    assert builder.op("svd", [0]) == range(1, 4)
    assert builder.op("exp", [2]) == range(4, 5)
    assert builder.metas[1:4] == [Meta.of((4, 4), "float64"), Meta.of((4,), "float64"), Meta.of((4, 4), "float64")]


def test_attributes_are_normalised_and_complete():
    builder = with_parameters(MATRIX)
    builder.op("sum", [0], {"axis": np.int64(1)})
    assert builder.steps[0].attributes == (("axis", 1), ("dtype", None), ("keepdims", False))


def test_a_step_is_checked_as_a_call_is():
    builder = with_parameters(VECTOR, MATRIX, INTEGERS)
    one = ~builder.number("int", "constant", value=1)
    large = ~builder.number("int", "constant", value=1000)
    for name, operands, attributes, error, match in (
        ("no_such_op", [0], None, MetadataError, "unknown op"),
        (["exp"], [0], None, MetadataError, "unknown op"),
        ("matmul", [0, 0], {"axis": 1}, MetadataError, "unknown attribute"),
        ("astype", [0], None, MetadataError, "required"),
        ("matmul", [1, 1], None, MetadataError, "matmul"),
        ("exp", [0, 0], None, MetadataTypeError, "takes 1 operand, not 2"),
        ("exp", [], None, MetadataTypeError, "operand"),
        ("add", [one, one], None, MetadataTypeError, "at least one operand must be a tensor"),
        ("add", [0, 2], None, MetadataTypeError, "do not mix"),
        ("add", [2, large], None, MetadataOverflowError, "does not fit int8"),
    ):
        refuses(builder, error, match, lambda b, n=name, o=operands, a=attributes: b.op(n, o, a))


def test_what_was_inferred_is_remembered_from_one_builder_to_the_next():
    infer = InferCache()
    for _ in range(2):
        builder = Builder(infer)
        builder.parameter(VECTOR)
        builder.op("exp", [0])
    assert infer.misses == 1


def test_only_the_value_of_a_constant_is_known():
    builder = with_parameters(INTEGERS)
    builder.op("add", [0, ~builder.number("int", "parameter")])
    assert len(builder.steps) == 1


@each_case("operand", [1, 99, 0.0, True, "0", None, HUGE], ids=kinds)
def test_operands_are_values_that_exist(operand):
    builder = with_parameters(VECTOR)
    refuses(builder, ProtocolError, "there is no value", lambda b: b.op("exp", [operand]))
    refuses(builder, ProtocolError, "there is no value", lambda b: b.move(operand, 0))
    refuses(builder, ProtocolError, "there is no value", lambda b: b.print([None], [operand]))
    refuses(builder, ProtocolError, "there is no value", lambda b: b.effect(0, [operand]))
    refuses(builder, ProtocolError, "there is no value", lambda b: b.finish([operand]))
    refuses(builder, ProtocolError, "there is no value", lambda b: b.op("exp", [0], into=[operand]))


def test_numbers_among_operands_exist():
    builder = with_parameters(VECTOR)
    refuses(builder, ProtocolError, r"no number \$0", lambda b: b.op("add", [0, -1]))
    builder.number("float", "parameter")
    builder.op("add", [0, -1])
    refuses(builder, ProtocolError, "there is no value", lambda b: b.move(-1, 0))


# -- writes in place ---------------------------------------------------------------------------------------------------


def test_a_write_makes_a_new_value_of_the_same_variable():
    builder = with_parameters(VECTOR)
    builder.captured(VECTOR, device=2)
    builder.op("add", [0, 1], into=[1])
    assert builder.variables == [0, 1, 1]
    assert builder.homes[2] == 2
    assert builder.metas[2] is VECTOR


def test_an_overwritten_value_cannot_be_read():
    builder = with_parameters(VECTOR, VECTOR)
    builder.op("exp", [1], into=[0])
    for call in (
        lambda b: b.op("exp", [0]),
        lambda b: b.op("exp", [1], into=[0]),
        lambda b: b.move(0, 1),
        lambda b: b.print([None], [0]),
        lambda b: b.effect(0, [0]),
        lambda b: b.finish([0]),
    ):
        refuses(builder, ProtocolError, "%0 was overwritten: it is %2 now", call)


def test_targets_fit_the_results():
    builder = with_parameters(VECTOR, MATRIX, INTEGERS)
    refuses(builder, MetadataError, "does not fit out=", lambda b: b.op("exp", [0], into=[1]))
    refuses(builder, MetadataTypeError, "does not fit out=", lambda b: b.op("exp", [0], into=[2]))
    refuses(builder, MetadataError, "has 1 results, but out= has 2", lambda b: b.op("exp", [0], into=[0, 1]))
    refuses(builder, MetadataError, "takes no out=", lambda b: b.op("nonzero", [1], into=[1]))


def test_a_ufunc_casts_within_a_kind_to_its_target():
    builder = with_parameters(Meta.of((3,), "float64"), VECTOR)
    builder.op("add", [0, 0], into=[1])
    assert builder.metas[2] is VECTOR


def test_a_target_is_named_once():
    square = Meta.of((2, 2), "float64")
    builder = with_parameters(square, square)
    refuses(builder, MetadataError, "names one tensor twice", lambda b: b.op("qr", [0], into=[1, 1]))
    builder.op("qr", [0], into=[1, 0])
    assert builder.variables == [0, 1, 1, 0]


# -- data-decided shapes -----------------------------------------------------------------------------------------------


def test_what_depends_on_a_pending_value_is_pending():
    builder = with_parameters(MATRIX)
    (found,) = builder.op("nonzero", [0])
    (later,) = builder.op("add", [found, found])
    assert builder.metas[found] is builder.metas[later] is None
    program = builder.finish([later])
    assert program.metas == (MATRIX, None, None)


# -- moves, prints, effects --------------------------------------------------------------------------------------------


def test_a_move_is_a_value_with_another_home():
    builder = with_parameters(VECTOR)
    assert builder.move(0, 3) == 1
    assert (builder.metas[1], builder.homes[1], builder.variables[1]) == (VECTOR, 3, 1)


def test_a_print_has_none_in_a_part_for_each_value():
    builder = with_parameters(VECTOR)
    builder.print(["x =", None], [0], sep="")
    assert builder.steps[0].device == NO_DEVICE
    refuses(builder, ProtocolError, "None in as many parts", lambda b: b.print(["x"], [0]))
    refuses(builder, ProtocolError, "None in as many parts", lambda b: b.print([None, None], [0]))
    for parts, sep in (([1], " "), ([b"x"], " "), (["x"], None), (["x"], 1)):
        refuses(builder, ProtocolError, "has texts", lambda b, p=parts, s=sep: b.print(p, [], s))
    for parts, sep in ((["\ud800"], " "), (["x"], "\udfff")):
        refuses(builder, MetadataError, "surrogate", lambda b, p=parts, s=sep: b.print(p, [], s))


@each_case("slot", [-1, MAX_SLOTS, True, 1.0, None, HUGE], ids=kinds)
def test_chains_and_callbacks_are_slots(slot):
    builder = with_parameters(VECTOR)
    refuses(builder, ProtocolError, "not a chain", lambda b: b.print([None], [0], chain=slot))
    refuses(builder, ProtocolError, "not a chain", lambda b: b.effect(0, [0], chain=slot))
    refuses(builder, ProtocolError, "not a callback", lambda b: b.effect(slot, [0]))


# -- limits ------------------------------------------------------------------------------------------------------------


def test_there_are_as_many_steps_as_the_limit_says():
    builder = Builder(limit=2)
    builder.parameter(VECTOR)
    builder.op("exp", [0])
    builder.print([None], [1])
    for call in (lambda b: b.op("exp", [0]), lambda b: b.move(0, 0), lambda b: b.print([], [])):
        refuses(builder, QuotaError, "at most 2 steps", call)


def test_there_are_as_many_operands_as_the_limit_says(monkeypatch):
    monkeypatch.setattr("tensord.interpreter.programs.builder.MAX_OPERANDS", 5)
    builder = with_parameters(VECTOR)
    builder.op("add", [0, 0])
    builder.effect(0, [0, 0])
    refuses(builder, QuotaError, "5 operands", lambda b: b.op("add", [0, 0]))
    builder.op("exp", [0])


def test_prints_and_effects_have_limits():
    builder = with_parameters(VECTOR)
    for parts, sep in (
        (["x"] * (MAX_PARTS + 1), ""),
        (["x" * MAX_TEXT_LENGTH], " "),
        (["x"] * 2, "y" * MAX_TEXT_LENGTH),
    ):
        refuses(
            builder,
            QuotaError,
            f"{MAX_PARTS} parts, and {MAX_TEXT_LENGTH} characters",
            lambda b, p=parts, s=sep: b.print(p, [], s),
        )
    refuses(builder, QuotaError, f"{MAX_PARTS} values", lambda b: b.effect(0, [0] * (MAX_PARTS + 1)))


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_result_is_made_by_a_step():
    builder = with_parameters(VECTOR)
    builder.captured(VECTOR)
    (written,) = builder.op("exp", [0], into=[0])
    for value in (written, 1):
        refuses(builder, ProtocolError, "tensor from outside", lambda b, v=value: b.finish([v]))
    assert builder.finish([builder.move(written, 0)]).results == (3,)


def test_a_variable_is_returned_once():
    builder = with_parameters(VECTOR)
    builder.op("exp", [0])
    refuses(builder, ProtocolError, "one tensor twice", lambda b: b.finish([1, 1]))


def late_and_early() -> tuple[Program, Program]:
    """One program, with captured tensors as a capture meets them, and with all of them first."""
    late = with_parameters(VECTOR)
    late.print(["begin"], [])
    late.op("exp", [0])
    w = late.captured(VECTOR, name="w")
    late.op("add", [1, w], into=[w])
    late.print([None], [3])
    b = late.captured(VECTOR, name="b")
    late.op("multiply", [b, 3])

    early = with_parameters(VECTOR)
    early.captured(VECTOR, name="w")
    early.captured(VECTOR, name="b")
    early.print(["begin"], [])
    early.op("exp", [0])
    early.op("add", [3, 1], into=[1])
    early.print([None], [4])
    early.op("multiply", [2, 4])
    return late.finish([5]), early.finish([5])


def test_captured_tensors_come_before_the_results_of_steps_in_a_program():
    late, early = late_and_early()
    assert late == early
    assert vars(late).items() >= {key: value for key, value in vars(early).items() if key != "digest"}.items()


def test_a_builder_goes_on_after_its_program():
    builder = with_parameters(VECTOR)
    builder.op("exp", [0])
    first = builder.finish([1])
    builder.op("exp", [1])
    assert (len(first.steps), len(builder.finish([2]).steps)) == (1, 2)


def test_infinite_and_undefined_floats_are_constants():
    def program(*values: float) -> Program:
        builder = Builder()
        for value in values:
            builder.number("float", "constant", value=value)
        return builder.finish([])

    assert program(math.nan, math.inf, -0.0) == program(math.nan, math.inf, -0.0)
    assert program(0.0) != program(-0.0)
