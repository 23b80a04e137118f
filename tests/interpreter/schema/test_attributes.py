"""The checkers of attributes: accepted values, their canonical forms, and refusals."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from tensord.interpreter.schema import attributes as a
from tensord.interpreter.schema.indexing import check_index

from ...each_case import each_case

TAKEN = [
    (a.check_bool, np.True_, True),
    (a.check_int, np.int8(-3), -3),
    (a.check_float, 2, 2.0),
    (a.check_float, np.float32(0.5), 0.5),
    (a.check_number, 3, 3),
    (a.check_number, np.int64(3), 3),
    (a.check_number, 3.0, ("float", 3.0)),
    (a.check_number, 2**64 - 1, 2**64 - 1),
    (a.check_number, 1j, ("complex", 0.0, 1.0)),
    (a.check_real_number, np.float32(0.5), ("float", 0.5)),
    (a.check_dtype, np.float32, "float32"),
    (a.check_dtype, np.dtype("int8"), "int8"),
    (a.check_dtype, float, "float64"),
    (a.check_dtype, bool, "bool"),
    (a.check_dtype, "complex64", "complex64"),
    (a.check_shape, 3, (3,)),
    (a.check_shape, [2, np.int64(3)], (2, 3)),
    (a.check_shape, (), ()),
    (a.check_new_shape, (2, -1), (2, -1)),
    (a.check_axes, -1, (-1,)),
    (a.check_axis, -1, -1),
    (a.check_axis, [0, 1], (0, 1)),
    (a.optional(a.check_axis), None, None),
    (check_index, np.int64(1), (1,)),
    (check_index, slice(None, None, -1), (("slice", None, None, -1),)),
    (check_index, (None, ..., slice(np.int8(1), 2)), (None, "...", ("slice", 1, 2, None))),
    (check_index, (), ()),
]

REFUSED = [
    (a.check_bool, 1),
    (a.check_int, True),
    (a.check_int, 1.0),
    (a.check_int, 2**63),
    (a.check_float, "1"),
    (a.check_float, float("nan")),
    (a.check_float, float("inf")),
    (a.check_float, True),
    (a.check_float, 10**400),
    (a.check_number, 2**64),
    (a.check_number, complex("nan")),
    (a.check_real_number, 1j),
    (a.check_dtype, None),
    (a.check_dtype, "float"),
    (a.check_dtype, "object"),
    (a.check_dtype, object),
    (a.check_dtype, ">f4"),
    (a.check_dtype, np.dtype(">f4")),
    (a.check_dtype, [("x", "f4")]),
    (a.check_shape, -1),
    (a.check_shape, (2.0,)),
    (a.check_shape, (1,) * 65),
    (a.check_shape, None),
    (a.check_new_shape, (-1, -1)),
    (a.check_new_shape, (-2,)),
    (a.check_axis, "0"),
    (check_index, True),
    (check_index, np.True_),
    (check_index, 1.5),
    (check_index, "x"),
    (check_index, [0, 1]),
    (check_index, (..., ...)),
    (check_index, slice(None, None, 0)),
    (check_index, slice("a", None)),
    (check_index, 2**63),
    (check_index, np.array([0, 1])),
    (check_index, np.array([True, False])),
    (check_index, (("slice", 1, 2),)),
    (check_index, ("slice", 1, 2, 3)),
]


@each_case(("check", "value", "normal"), TAKEN)
def test_a_value_gets_its_normal_form(check, value, normal):
    assert check(value) == normal
    assert type(check(value)) is type(normal)


@each_case(("check", "value", "normal"), TAKEN)
def test_a_normal_form_is_its_own_and_travels(check, value, normal):
    travelled = msgpack.unpackb(msgpack.packb(check(value)), use_list=False)
    assert check(travelled) == normal
    hash(travelled)


@each_case(("check", "value"), REFUSED)
def test_anything_else_is_refused(check, value):
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError)):
        check(value)


def test_a_float_is_not_the_int_it_equals():
    assert a.check_number(1) != a.check_number(1.0)
    assert [a.number(a.check_number(n)) for n in (1, 1.5, 2j)] == [1, 1.5, 2j]
