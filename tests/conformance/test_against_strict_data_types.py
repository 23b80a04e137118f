"""The functions on dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, FLOATING, INTEGER, SCALARS, Shape, arrays, rarely, some, values
from .calls import DEVICE, Call, host
from .judge import Entry

KINDS = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric")
dtypes = st.sampled_from(ALL).map(np.dtype)


def small(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Numbers that every dtype holds: the standard leaves casts of other numbers to integers open."""
    return np.asarray(np.random.default_rng(seed).integers(0, 2, shape)).astype(dtype)


@st.composite
def astype(draw: Any) -> Call:
    source, dtype = draw(st.sampled_from(ALL)), draw(dtypes)
    make = small if source in FLOATING and dtype.kind in "iu" else values
    return Call((draw(arrays((source,), make=make)), dtype), draw(some(copy=st.booleans(), device=st.just(DEVICE))))


def loses_a_part(made: Call) -> Exception | None:
    """No implicit conversion of complex numbers to real ones."""
    source, dtype = made.args[0].dtype, made.args[1]
    return TypeError("loses a part") if source.kind == "c" and dtype.kind in "iuf" else None


@st.composite
def about(draw: Any, few: tuple[str, ...], *more: Any) -> Call:
    """A dtype, or a tensor of it; rarely of a kind that the function is not about."""
    dtype = draw(st.sampled_from(ALL if draw(rarely) else few))
    first = np.dtype(dtype) if draw(st.booleans()) else np.zeros(2, dtype)
    return Call((first, *(draw(each) for each in more)), {})


@st.composite
def isdtype(draw: Any) -> Call:
    kinds = st.sampled_from((*KINDS, "real") if draw(rarely) else KINDS) | dtypes
    return Call((draw(dtypes), draw(kinds | st.lists(kinds, max_size=3).map(tuple))), {})


@st.composite
def result_type(draw: Any) -> Call:
    """Dtypes, tensors and Python scalars, mostly of one kind."""
    kind = np.dtype(draw(st.sampled_from(ALL))).kind
    near = ALL if draw(rarely) else [d for d in ALL if np.dtype(d).kind == kind]
    count = draw(st.integers(0 if draw(rarely) else 1, 3))
    given = [draw(st.sampled_from(near).map(np.dtype) | arrays(tuple(near))) for _ in range(count)]
    scalars = [draw(st.sampled_from(SCALARS)) for _ in range(draw(st.integers(0, 2)))]
    return Call(tuple(draw(st.permutations([*given, *scalars]))), {})


def limits(names: str) -> Any:
    """The attributes of an object that describes a dtype, by name."""

    def of(found: Any) -> dict[str, Any]:
        return {name: plain(host(getattr(found, name))) for name in names.split()}

    return of


def dtype_of(value: Any) -> Any:
    """The dtype of an array, or one as it is."""
    return getattr(value, "dtype", value)


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's."""
    return value.item() if isinstance(value, np.ndarray) else value


DATA_TYPES = {
    "astype": Entry(astype(), forbids=loses_a_part),
    "can_cast": Entry(about(ALL, dtypes), text=lambda x, to: np.can_cast(dtype_of(x), to)),
    "finfo": Entry(
        about(FLOATING),
        numpy=lambda x: np.finfo(getattr(x, "dtype", x)),
        seen=limits("bits eps max min smallest_normal dtype"),
    ),
    "iinfo": Entry(about(INTEGER), numpy=lambda x: np.iinfo(getattr(x, "dtype", x)), seen=limits("bits max min dtype")),
    "isdtype": Entry(isdtype()),
    "result_type": Entry(result_type(), promotes=tuple(range(5))),
}


@each_case("name", DATA_TYPES)
def test_data_types(name, conforms):
    conforms(name, DATA_TYPES[name])
