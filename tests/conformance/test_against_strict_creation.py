"""The creation functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, COMPLEX, NUMERIC, REAL, REAL_FLOATING, Shape, arrays, rarely, shapes, some
from .calls import DEVICE, Call, Host
from .judge import Entry

flags = st.booleans()
devices = st.just(DEVICE)
dtypes = st.none() | st.sampled_from(ALL).map(np.dtype)
reals = st.integers(-5, 8) | st.sampled_from([0.0, 0.1, -0.25, 2.5, 7.0, -3.7, 1e-3])
steps = st.sampled_from([1, 2, -1, 3, 0.1, 0.5, -0.25, 2.5])
# Dtypes that Python numbers of a type convert to by promotion.
ABOVE = {bool: ALL, int: NUMERIC, float: (*REAL_FLOATING, *COMPLEX), complex: COMPLEX}


@st.composite
def shape_arguments(draw: Any) -> int | Shape:
    """Shapes as functions take them; rarely a negative one."""
    if draw(rarely):
        return draw(st.sampled_from([-1, (2, -1), (-3,)]))
    return draw(st.integers(0, 3) | shapes())


def made(**options: Any) -> Entry:
    return Entry(made_calls(shape_arguments(), dtype=dtypes, device=devices), **options)


def like(**options: Any) -> Entry:
    return Entry(made_calls(arrays(), dtype=dtypes, device=devices), **options)


@st.composite
def made_calls(draw: Any, *args: Any, **kwargs: Any) -> Call:
    return Call(tuple(draw(arg) for arg in args), draw(some(**kwargs)))


@st.composite
def arange(draw: Any) -> Call:
    bounds = (draw(reals), *(draw(steps if position else reals) for position in range(draw(st.integers(0, 2)))))
    whole = all(isinstance(each, int) for each in bounds)
    dtype = st.none() | st.sampled_from(REAL if whole else REAL_FLOATING).map(np.dtype)
    if len(bounds) < 3:
        return Call(bounds, draw(some(dtype=dtype, device=devices)))
    return Call(bounds[:2], {"step": bounds[2], **draw(some(dtype=dtype, device=devices))})


@st.composite
def linspace(draw: Any) -> Call:
    numbers = st.sampled_from([0, 3, -7, 0.0, 0.1, 1e6, -2.5, 1 + 2j, 1j])
    start, stop = draw(numbers), draw(numbers)
    above = COMPLEX if isinstance(start + stop, complex) else (*REAL_FLOATING, *COMPLEX)
    dtype = st.none() | st.sampled_from(above).map(np.dtype)
    num = draw(st.integers(-1 if draw(rarely) else 0, 7))
    return Call((start, stop, num), draw(some(endpoint=flags, dtype=dtype, device=devices)))


@st.composite
def filled(draw: Any, first: Any) -> Call:
    """A value, and a dtype that it converts to; int dtypes may be too small for it."""
    value = draw(st.sampled_from([True, False, 0, 5, -3, 300, 2**40, 0.1, float("nan"), float("-inf"), -0.0, 1 - 2j]))
    dtype = st.sampled_from(ABOVE[type(value)]).map(np.dtype)
    return Call((draw(first), value), draw(some(dtype=dtype, device=devices)))


@st.composite
def filled_like(draw: Any) -> Call:
    """As `filled`; the dtype is that of x, unless x's dtype cannot hold the value."""
    made_call = draw(filled(arrays()))
    x, value = made_call.args
    if "dtype" in made_call.kwargs or x.dtype.name in ABOVE[type(value)]:
        return made_call
    return Call(made_call.args, {**made_call.kwargs, "dtype": np.dtype("complex64")})


@st.composite
def nested(draw: Any) -> Call:
    """Python numbers in nested lists, some of which are ragged; or a buffer; and a dtype that all convert to."""
    kinds = draw(st.sampled_from([(bool,), (int,), (int, bool), (float,), (int, float), (complex, int), (float, bool)]))
    pools: dict[type, Any] = {bool: flags, int: st.integers(-3, 200), float: st.sampled_from([0.1, -0.0, 2.5])}
    numbers = st.one_of(*(pools.get(kind, st.just(1 + 2j)) for kind in kinds))
    if draw(flags):
        values = draw(numbers | st.lists(numbers, max_size=3))
    else:
        width = draw(st.integers(0, 3))
        rows = st.lists(numbers, min_size=0 if draw(rarely) else width, max_size=width)
        values = draw(st.lists(rows.map(tuple) | rows, max_size=3))
    widest = complex if complex in kinds else float if float in kinds else int if int in kinds else bool
    dtype = st.none() | st.sampled_from(ABOVE[widest]).map(np.dtype)
    return Call((Host(values),), draw(some(dtype=dtype, device=devices, copy=st.sampled_from([None, True]))))


@st.composite
def converted(draw: Any) -> Call:
    """A tensor or an array, and a dtype of the same kind or above."""
    x = draw(arrays(make=_plain))
    above = {"b": ALL, "i": NUMERIC, "u": NUMERIC, "f": (*REAL_FLOATING, *COMPLEX), "c": COMPLEX}[x.dtype.kind]
    dtype = st.none() | st.sampled_from(above).map(np.dtype)
    kwargs = draw(some(dtype=dtype, device=devices, copy=st.sampled_from([None, True])))
    return Call((Host(x) if draw(flags) else x,), kwargs)


def _plain(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Numbers that every dtype holds."""
    return np.asarray(np.random.default_rng(seed).integers(0, 2, shape)).astype(dtype)


@st.composite
def meshgrid(draw: Any) -> Call:
    dtype = draw(st.sampled_from(ALL))
    dtypes_ = ALL if draw(rarely) else (dtype,)
    vectors = [
        draw(arrays(dtypes_, shapes() if draw(rarely) else shapes(1, 1))) for _ in range(draw(st.integers(0, 3)))
    ]
    indexing = st.sampled_from(["xy", "ij", "yx"] if draw(rarely) else ["xy", "ij"])
    return Call(tuple(vectors), draw(some(indexing=indexing)))


def no_vectors(made_call: Call) -> Exception | None:
    """The standard has vectors of one dtype; NumPy makes vectors of others, and takes several dtypes."""
    fitting = all(each.ndim == 1 for each in made_call.args) and len({each.dtype for each in made_call.args}) < 2
    return None if fitting else ValueError("no vectors of one dtype")


def no_matrix(made_call: Call) -> Exception | None:
    """The standard has matrices alone; NumPy repeats vectors."""
    return ValueError("no matrix") if made_call.args[0].ndim < 2 else None


def triangle() -> Entry:
    stacks = arrays(shape=rarely.flatmap(lambda wrong: shapes() if wrong else shapes(2, 4)))
    return Entry(made_calls(stacks, k=st.integers(-4, 4)), forbids=no_matrix)


CREATION = {
    "arange": Entry(arange()),
    "asarray": Entry(nested() | converted()),
    "empty": made(text=np.zeros),
    "empty_like": like(text=np.zeros_like),
    "eye": Entry(made_calls(st.integers(0, 4), st.none() | st.integers(0, 4), k=st.integers(-5, 5), dtype=dtypes)),
    "from_dlpack": Entry(made_calls(arrays().map(Host), device=devices, copy=st.sampled_from([None, True]))),
    "full": Entry(filled(shape_arguments())),
    "full_like": Entry(filled_like()),
    "linspace": Entry(linspace()),
    "meshgrid": Entry(meshgrid(), forbids=no_vectors),
    "ones": made(),
    "ones_like": like(),
    "tril": triangle(),
    "triu": triangle(),
    "zeros": made(),
    "zeros_like": like(),
}


@each_case("name", CREATION)
def test_creation(name, conforms):
    conforms(name, CREATION[name])


def test_asarray_copies_when_it_is_told_to_or_has_to(session):
    xp = session.xp
    x = xp.ones(3, device="cpu:0")
    assert xp.asarray(x) is xp.asarray(x, copy=False) is x
    copied = xp.asarray(x, copy=True)
    copied += 1
    assert (x.tolist(), copied.tolist()) == ([1, 1, 1], [2, 2, 2])
    for needed in ({"dtype": xp.float32}, {"device": "sim:0"}):
        assert xp.asarray(x, **needed).tolist() == [1, 1, 1]
        with pytest.raises(ValueError, match="copy"):
            xp.asarray(x, **needed, copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.asarray([1], copy=False)


def test_astype_copies_unless_it_need_not(session):
    xp = session.xp
    x = xp.ones(3)
    assert xp.astype(x, xp.float64, copy=False) is x
    assert xp.astype(x, xp.float64) is not x
    assert xp.astype(x, xp.float32, copy=False).dtype == xp.float32


def test_bytes_are_a_buffer(session):
    found = session.xp.asarray(b"\x00\x7f\xff")
    assert (found.dtype, found.tolist()) == (np.dtype("uint8"), [0, 127, 255])
    assert session.xp.asarray(b"ab", dtype=session.xp.float32).tolist() == [97.0, 98.0]


def test_a_dtype_holds_in_all_of_a_sequence_with_tensors_in_it(session):
    """No value passes through another dtype: int64 and uint64 would become float64, which has fewer digits."""
    xp, largest = session.xp, 2**64 - 1
    x = xp.asarray(largest, dtype=xp.uint64)
    assert xp.asarray([[x, 3], [largest, 4]], dtype=xp.uint64).tolist() == [[largest, 3], [largest, 4]]
    assert xp.asarray([xp.asarray(2**53 + 1), 0.5], dtype=xp.int64).tolist() == [2**53 + 1, 0]
