"""Numbers of a program equal Python's, and are always computed fast."""

from __future__ import annotations

import operator
import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataOverflowError, MetadataTypeError
from tensord.interpreter.programs.numbers import ARITHMETIC, MAX_BITS, Number, evaluate, kinds_of

from ...each_case import each_case

KINDS = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**64 - 1),
    "float": st.floats(),
    "complex": st.complex_numbers(),
}
NAMES = {"truediv": "truediv", "and": "and_", "or": "or_"}
SMALL = st.one_of(st.booleans(), st.integers(-9, 9), st.floats(-4, 4), st.complex_numbers(max_magnitude=4))


def outcome(function: Any, *operands: Any) -> Any:
    """The exact text of a call's result, or the type of its error."""
    try:
        with warnings.catch_warnings(action="ignore"):
            value = function(*operands)
    except Exception as error:
        return type(error)
    return type(value), repr(value)


def of(*values: Any) -> list[Number]:
    return [Number(type(value).__name__, "constant", (), value) for value in values]


def arithmetic(op: str, *operands: Any) -> Any:
    """The value of one op of constants, of any type."""
    kind = type(ARITHMETIC[op][1](*operands)).__name__
    return evaluate([*of(*operands), Number(kind, op, tuple(range(len(operands))))], [])[-1]


@each_case("op", sorted(ARITHMETIC))
@settings(max_examples=8)
@given(data=st.data())
def test_arithmetic_is_pythons_own(op, data):
    operands = [data.draw(SMALL) for _ in range(ARITHMETIC[op][0])]
    native = getattr(operator, NAMES.get(op, op))
    assert outcome(arithmetic, op, *operands) == outcome(native, *operands)


@each_case("op", sorted(ARITHMETIC))
@settings(max_examples=4)
@given(data=st.data())
def test_arithmetic_gives_one_of_its_types(op, data):
    for kinds in product(KINDS, repeat=ARITHMETIC[op][0]):
        found = outcome(ARITHMETIC[op][1], *[data.draw(KINDS[kind]) for kind in kinds])
        if not kinds_of(op, kinds):
            assert found is TypeError
        elif isinstance(found, tuple):
            assert found[0].__name__ in kinds_of(op, kinds)


def test_parameters_and_draws_are_taken_in_their_order():
    numbers = [
        Number("float", "parameter", name="rate"),
        Number("int", "draw"),
        Number("int", "seed"),
        Number("int", "parameter"),
        Number("int", "draw"),
        Number("float", "mul", (0, 3)),
    ]
    assert evaluate(numbers, [0.5, 4], seed=7, draws=[10, 11]) == [0.5, 10, 7, 4, 11, 2.0]


@each_case("value", [1, True, None, "1", np.float64(1)])
def test_a_value_of_another_type_is_refused(value):
    with pytest.raises(MetadataTypeError, match=f"is float, and {type(value).__name__} for these values"):
        evaluate([Number("float", "parameter")], [value])


def test_a_bool_of_numpys_is_none():
    with pytest.raises(MetadataTypeError, match="is bool"):
        evaluate([Number("bool", "parameter")], [np.True_])  # type: ignore[list-item]


def test_arithmetic_that_gives_another_type_for_these_values_is_refused():
    numbers = [Number("int", "parameter"), Number("int", "parameter"), Number("int", "pow", (0, 1))]
    assert evaluate(numbers, [2, 3]) == [2, 3, 8]
    with pytest.raises(MetadataTypeError, match="is int, and float for these values"):
        evaluate(numbers, [2, -1])


def test_a_missing_value_is_refused():
    with pytest.raises(MetadataTypeError, match="NoneType"):
        evaluate([Number("int", "parameter")], [])
    with pytest.raises(MetadataTypeError, match="NoneType"):
        evaluate([Number("int", "draw")], [])


def test_what_python_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        evaluate([*of(1, 0), Number("float", "truediv", (0, 1))], [])


def test_integers_on_the_way_may_be_larger_than_those_of_tensors():
    numbers = [*of(2**63, 2**60), Number("int", "mul", (0, 0)), Number("int", "floordiv", (2, 1))]
    assert evaluate(numbers, [])[-1] == 2**66


def test_no_integer_takes_long_to_make():
    squares = [Number("int", "mul", (slot, slot)) for slot in range(1000)]
    powers = [Number("int", "pow", (slot, slot)) for slot in range(1000)]
    for chain in (squares, powers):
        with pytest.raises(MetadataOverflowError, match=f"more than {MAX_BITS} bits"):
            evaluate([*of(2**64 - 1), *chain], [])


@each_case(("base", "exponent"), [(2, MAX_BITS - 1), (1, 2**64 - 1), (-1, 2**63), (0, 2**64 - 1), (3, True)])
def test_powers_within_the_bound_are_made(base, exponent):
    assert evaluate([*of(base, exponent), Number("int", "pow", (0, 1))], [])[-1] == base**exponent


def test_integers_grow_to_the_bound_and_not_beyond():
    numbers = [*of(2, MAX_BITS - 1), Number("int", "pow", (0, 1)), Number("int", "mul", (2, 0))]
    assert evaluate(numbers[:3], [])[-1] == 2 ** (MAX_BITS - 1)
    with pytest.raises(MetadataOverflowError):
        evaluate(numbers, [])
