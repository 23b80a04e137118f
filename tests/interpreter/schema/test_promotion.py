"""Promotion and broadcasting against NumPy, and the check of Python ints."""

from __future__ import annotations

from itertools import product

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.promotion import broadcast, broadcast_shapes, check_scalar, promote
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

SHAPES = st.lists(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), min_size=1, max_size=3)


@given(SHAPES)
def test_shapes_broadcast_as_in_numpy(shapes):
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_shapes(shapes)
    else:
        assert broadcast_shapes(shapes) == expected


def test_absurd_shapes_broadcast():
    assert broadcast_shapes([(2**80, 1), (2**70,)]) == (2**80, 2**70)


def test_only_scalars_do_not_broadcast():
    with pytest.raises(TypeError, match="must be a tensor"):
        broadcast((int, float))


FAMILIES = {"b": "bool", "i": "integer", "u": "integer", "f": "floating", "c": "floating"}
GOES_WITH = {bool: {"bool"}, int: {"integer", "floating"}, float: {"floating"}, complex: {"floating"}}
NO_COMMON = ({"uint64", "int8"}, {"uint64", "int16"}, {"uint64", "int32"}, {"uint64", "int64"})


@each_case(("left", "right"), list(product(DTYPES, DTYPES)))
def test_tensors_of_one_kind_promote_as_in_numpy_and_kinds_do_not_mix(left, right):
    metas = (Meta.of((), left), Meta.of((2,), right))
    if FAMILIES[DTYPES[left].kind] != FAMILIES[DTYPES[right].kind]:
        with pytest.raises(TypeError, match="kinds, which do not mix"):
            promote(metas)
    elif {left, right} in NO_COMMON:
        with pytest.raises(TypeError, match="no common integer dtype"):
            promote(metas)
    else:
        assert promote(metas) == np.result_type(DTYPES[left], DTYPES[right])


@each_case("dtype", DTYPES)
@each_case("scalar", [True, 1, 1.0, 1j])
def test_a_python_scalar_is_weak_and_goes_with_its_own_kind(dtype, scalar):
    metas = (Meta.of((2,), dtype), type(scalar))
    if FAMILIES[DTYPES[dtype].kind] in GOES_WITH[type(scalar)]:
        assert promote(metas) == (np.ones(2, dtype) + scalar).dtype
    else:
        with pytest.raises(TypeError, match=f"a Python {type(scalar).__name__} does not mix with {dtype}"):
            promote(metas)


@each_case(
    ("op", "value", "dtype"),
    [("add", 127, "int8"), ("add", -128, "int8"), ("add", 2**64 - 1, "uint64"), ("add", 10**6, "float16")],
)
def test_an_int_that_fits_is_taken(op, value, dtype):
    check_scalar(op, value, (Meta.of((2,), dtype), int))


@each_case(
    ("op", "value", "dtype"),
    [("add", 128, "int8"), ("add", -1, "uint8"), ("add", 2**63, "int64"), ("maximum", -129, "int8")],
)
def test_an_int_that_does_not_fit_is_refused(op, value, dtype):
    with pytest.raises(MetadataError, match=f"{op}: the integer {value} does not fit {dtype}") as caught:
        check_scalar(op, value, (Meta.of((2,), dtype), int))
    assert caught.value.op == op


@each_case("op", ["less", "equal", "divide", "logical_or"])
def test_ops_that_do_not_cast_to_the_integer_dtype_take_any_int(op, evaluate, assert_same):
    x = np.array([1, 2], "uint8")
    assert_same(evaluate(op, x, 300), getattr(np, op)(x, 300))
    assert_same(evaluate(op, x, -300), getattr(np, op)(x, -300))


def test_no_op_takes_an_int_that_does_not_fit_the_wire():
    for value in (2**64, -(2**63) - 1, 10**5000):
        with pytest.raises(MetadataError, match="more than 64 bits"):
            check_scalar("less", value, (Meta.of((2,), "float64"), int))


def test_beside_a_pending_operand_only_the_wire_counts():
    check_scalar("add", 300, (None, int))
    with pytest.raises(MetadataError, match="more than 64 bits"):
        check_scalar("add", 2**64, (None, int))


def test_a_fill_value_has_to_fit_the_attribute_dtype():
    check_scalar("full", 300, (int,), {"dtype": "int16"})
    with pytest.raises(MetadataError, match="does not fit uint8"):
        check_scalar("full", 300, (int,), {"dtype": "uint8"})


def test_values_that_are_not_ints_are_not_its_business():
    for value in (True, 1e300, 1j, "text"):
        check_scalar("add", value, (Meta.of((2,), "int8"), int))


@each_case("chooses", ["bool", "int64"])
@each_case("op", ["where", "advanced_setitem"])
def test_what_chooses_has_no_say_in_which_ints_fit(op, chooses):
    """A condition, a mask or positions."""
    x, choice = Meta.of((2,), "int8"), Meta.of((2,), chooses)
    metas = (choice, int, x) if op == "where" else (x, int, choice)
    check_scalar(op, -128, metas)
    with pytest.raises(MetadataError, match="128 does not fit int8"):
        check_scalar(op, 128, metas)
