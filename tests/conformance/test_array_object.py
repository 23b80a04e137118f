"""A tensor's attributes, and what it becomes as a Python number or as another library's array."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, arrays, rarely, shapes, values
from .calls import call
from .judge import Entry

scalars = arrays(shape=rarely.flatmap(lambda wrong: st.just((2,)) if wrong else st.just(())))


def number(conversion: Any) -> Entry:
    """A conversion of a tensor without dimensions; the sign of a zero is not lost, and a NaN is one."""
    return Entry(call(scalars), operates=conversion, seen=repr)


def complex_by_text(x: np.ndarray) -> complex:
    """A real NaN is one in both parts."""
    return complex(math.nan, math.nan) if x.dtype.kind == "f" and np.all(np.isnan(x)) else complex(x)


def attribute(name: str) -> Entry:
    return Entry(call(arrays()), operates=operator.attrgetter(name))


OBJECT = {
    **{name: attribute(name) for name in ("T", "dtype", "mT", "ndim", "shape", "size")},
    "bool": number(bool),
    "complex": replace(number(complex), text=complex_by_text),
    "float": number(float),
    "index": number(operator.index),
    "int": number(int),
    "len": Entry(call(arrays(shape=shapes(1))), operates=len, numpy=len),
}


@each_case("name", OBJECT)
def test_array_object(name, conforms):
    conforms(name, OBJECT[name])


@each_case("dtype", ALL)
def test_it_goes_to_other_libraries_by_dlpack_and_comes_from_them(dtype, session):
    array = values((2, 3), dtype, 1)
    x = session.xp.from_dlpack(array, device="sim:0")
    assert (x.device, x.dtype, x.shape) == ("sim:0", array.dtype, array.shape)
    assert x.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(x), array)


def test_dlpack_is_about_host_memory_alone_and_what_comes_in_is_copied(session):
    x = session.xp.ones(3)
    for wrong in ({"stream": 1}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            x.__dlpack__(**wrong)
    with pytest.raises(ValueError, match="copy"):
        session.xp.from_dlpack(np.ones(3), copy=False)
    with pytest.raises(AttributeError):
        session.xp.from_dlpack([1, 2])


def test_it_moves_between_the_devices_that_there_are(session):
    x = session.xp.arange(3, device="cpu:0")
    moved = x.to_device("sim:0")
    assert (x.device, moved.device) == ("cpu:0", "sim:0")
    assert moved.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="gpu:7"):
        x.to_device("gpu:7")


def test_a_nan_is_no_integer_and_an_infinity_too_large(session):
    with pytest.raises(ValueError, match="NaN"):
        int(session.xp.asarray(math.nan))
    with pytest.raises(OverflowError):
        int(session.xp.asarray(math.inf))
