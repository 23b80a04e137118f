"""A tensor's attributes, and its conversions to Python numbers and to other libraries' arrays."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import arrays, rarely, shapes
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


def test_a_nan_is_no_integer_and_an_infinity_too_large(session):
    with pytest.raises(ValueError, match="NaN"):
        int(session.xp.asarray(math.nan))
    with pytest.raises(OverflowError):
        int(session.xp.asarray(math.inf))
