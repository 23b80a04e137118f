"""Reading and writing through an index of any kind, against NumPy, which has all kinds.

array_api_strict is asked first: the kinds of the standard work the same there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, SCALARS, Shape, arrays, part_of, rarely, seeds, shapes
from .calls import Call
from .judge import Entry

bounds = st.none() | st.integers(-6, 6)
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, -1, -2, 3]))
NO_INDEX = (1.5, "0", [0], True)


def positions(draw: Any, size: int) -> int | np.int64:
    """A position from either end; rarely one that does not exist."""
    low, high = (-size, size - 1) if size and not draw(rarely) else (-size - 1, size)
    position = draw(st.integers(low, high))
    return np.int64(position) if draw(rarely) else position


@st.composite
def basic(draw: Any, shape: Shape) -> list[Any]:
    """For some of the axes a position or a slice, with new axes and an ellipsis in between."""
    entries: list[Any] = [draw(slices) if draw(st.booleans()) else positions(draw, size) for size in shape]
    return mixed(draw, entries)


def mixed(draw: Any, entries: list[Any]) -> list[Any]:
    """The entries, without some of the last, with new axes, and an ellipsis for some; rarely too many of them."""
    entries = entries[: draw(st.integers(0, len(entries)))]
    for _ in range(draw(st.integers(0, 1))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(entries)))
        entries[at : at + draw(st.integers(0, 1))] = [Ellipsis]
    if draw(rarely):
        entries.append(draw(st.sampled_from([Ellipsis, 0, slice(None), *NO_INDEX])))
    return entries


@st.composite
def advanced(draw: Any, shape: Shape) -> list[Any]:
    """As `basic`, with tensors of positions, which broadcast, and masks, some of which are of several axes."""
    whole = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    entries: list[Any] = []
    axis = 0
    while axis < len(shape):
        kind = draw(st.sampled_from(["positions", "positions", "mask", "slice", "position"]))
        width = min(len(shape) - axis, draw(st.integers(0, 2))) if kind == "mask" else 1
        entries.append(selector(draw, kind, shape[axis : axis + width], whole))
        axis += width
    return mixed(draw, entries)


def selector(draw: Any, kind: str, shape: Shape, whole: Shape) -> Any:
    """One entry, for axes of that shape."""
    rng = np.random.default_rng(draw(seeds))
    if kind == "mask":
        return np.asarray(rng.random(draw(shapes(0, 2)) if draw(rarely) else shape) < 0.5)
    if kind != "positions":
        return draw(slices) if kind == "slice" else positions(draw, shape[0])
    size, wrong = shape[0], draw(rarely)
    selected = draw(part_of(whole)) if size or wrong else (0,)
    low, high = (-size - 1, size + 1) if wrong or not size else (-size, size)
    dtype = "float32" if draw(rarely) else draw(st.sampled_from(["int64", "int8", "uint8"]))
    return np.asarray(rng.integers(0 if dtype == "uint8" else low, high, selected)).astype(dtype)


def index(entries: list[Any]) -> Any:
    """An index of one entry may be that entry."""
    return entries[0] if len(entries) == 1 else tuple(entries)


@st.composite
def reading(draw: Any, entries: Any) -> Call:
    x = draw(arrays(shape=st.lists(st.integers(0, 4), max_size=3).map(tuple)))
    return Call((x, index(draw(entries(x.shape)))), {})


@st.composite
def writing(draw: Any, entries: Any) -> Call:
    """A value that broadcasts to the selection, and rarely does not."""
    made = draw(reading(entries))
    x, selected = made.args
    try:
        shape = x[selected].shape
    except (IndexError, ValueError, TypeError):
        shape = ()
    near = tuple(d for d in ALL if np.can_cast(d, x.dtype, "same_kind"))
    of_shape = draw(shapes(0, 2)) if draw(rarely) else (*[1] * draw(rarely), *draw(part_of(shape)))
    values = arrays(ALL if draw(rarely) else near, of_shape)
    return Call((x, selected, draw(values | st.sampled_from(SCALARS))), {})


def read(x: Any, index: Any) -> Any:
    return x[index]


def write(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


def write_by_numpy(x: np.ndarray, index: Any, value: Any) -> np.ndarray:
    """NumPy takes leading axes of size one for slices, and refuses them for single elements and masks."""
    return write(x, index, np.reshape(value, telling(np.shape(value))) if np.ndim(value) else value)


def telling(shape: Shape) -> Shape:
    """The shape from its first axis of another size than one on."""
    return shape if shape[:1] != (1,) else telling(shape[1:])


def no_index(made: Call) -> Exception | None:
    """NumPy takes lists and bools, too, and converts a tensor of floats if it can."""
    entries = made.args[1] if isinstance(made.args[1], tuple) else (made.args[1],)
    if any(isinstance(entry, list | bool | str) for entry in entries):
        return IndexError("no index")
    floats = any(isinstance(entry, np.ndarray) and entry.dtype.kind == "f" for entry in entries)
    return TypeError("positions are integers") if floats else None


def no_value(made: Call) -> Exception | None:
    """A written value stays in its kind, or goes to one above, and broadcasts, also into an empty selection."""
    x, selected, value = made.args
    wrong = no_index(made)
    if wrong is not None:
        return wrong
    if type(value) is int and x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        return None if limits.min <= value <= limits.max else OverflowError("too large")
    if not np.can_cast(np.asarray(value).dtype, x.dtype, "same_kind"):
        return TypeError("another kind")
    try:
        shape = x[selected].shape
        fits = np.broadcast_shapes(telling(np.shape(value)), shape) == shape
    except (IndexError, ValueError):
        return None
    return None if fits else ValueError("does not broadcast")


INDEXING = {
    "read basic": Entry(reading(basic), forbids=no_index, operates=read),
    "read advanced": Entry(reading(advanced), forbids=no_index, operates=read, late=True),
    "write basic": Entry(writing(basic), forbids=no_value, operates=write, numpy=write_by_numpy),
    "write advanced": Entry(writing(advanced), forbids=no_value, operates=write, numpy=write_by_numpy, late=True),
}


@each_case("name", INDEXING)
def test_indexing(name, conforms):
    conforms(name, INDEXING[name], times=4)


def test_the_step_of_a_slice_is_not_zero(session):
    x = session.asarray(np.arange(3))
    with pytest.raises(ValueError, match="zero"):
        x[::0]


@each_case("step", [2**40, 2**63 - 1, -(2**63)])
def test_the_step_of_a_slice_may_be_of_any_size(session, step):
    whole = np.arange(5)
    x = session.asarray(whole)
    assert np.array_equal(x[1:][::step][::step].numpy(), whole[1:][::step][::step])
    assert np.array_equal((x[3:3][::step] + x[:0]).numpy(), whole[:0])
    x[::step] += 7
    whole[::step] += 7
    assert np.array_equal(x.numpy(), whole)


@pytest.mark.parametrize("chosen", [[2, 0, 1], [True, False, True]], ids=["integers", "a mask"])
def test_an_ellipsis_parts_tensors_also_where_it_stands_for_no_axis(session, chosen):
    whole, selector = np.arange(12).reshape(2, 3, 2), np.asarray(chosen)
    x, index = session.asarray(whole), session.asarray(selector)
    expected = whole[:, selector, ..., 0]
    assert np.array_equal(x[:, index, ..., 0].numpy(), expected)
    x[:, index, ..., 0] = session.asarray(-expected)
    whole[:, selector, ..., 0] = -expected
    assert np.array_equal(x.numpy(), whole)
