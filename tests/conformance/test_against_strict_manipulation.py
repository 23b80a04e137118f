"""The functions that rearrange, join and index, and the sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import (
    ALL,
    INTEGER,
    Shape,
    arrays,
    axes_of,
    axis_of,
    broadcastable,
    operands,
    part_of,
    rarely,
    reduced_axes,
    seeds,
    shapes,
    some,
)
from .calls import Call, call
from .judge import Entry
from .rules import FAMILIES, missing_axis

flags = st.booleans()


@st.composite
def with_axis(draw: Any, axis: Any = axis_of, more: int = 0) -> Call:
    """A tensor, and perhaps an axis of it, or of a result with `more` axes."""
    x = draw(arrays())
    return Call((x,), draw(some(axis=axis(x.ndim + more))))


@st.composite
def broadcast_to(draw: Any) -> Call:
    whole = draw(shapes())
    x = draw(arrays(shape=shapes() if draw(rarely) else part_of(whole)))
    return Call((x, whole), {})


@st.composite
def broadcast_arrays(draw: Any) -> Call:
    return Call(tuple(draw(arrays(shape=shape)) for shape in draw(broadcastable(draw(st.integers(0, 3))))), {})


@st.composite
def joined(draw: Any, *, stack: bool) -> Call:
    """Some tensors, rarely none, mostly of one kind and of shapes that fit."""
    shape, count = draw(shapes(0 if stack else 1)), draw(st.integers(1, 3))
    axis = draw(axis_of(len(shape) + stack) if stack or draw(st.integers(0, 3)) else st.none())
    near = draw(near_dtypes())
    dtypes = ALL if draw(rarely) else near
    tensors = [draw(arrays(dtypes, part_for(draw, shape, axis, stack=stack))) for _ in range(count)]
    sequence = tuple(tensors) if draw(flags) else tensors[: 0 if draw(rarely) else None]
    return Call((sequence,), {} if axis == 0 and draw(flags) else {"axis": axis})


def part_for(draw: Any, shape: Shape, axis: int | None, *, stack: bool) -> Shape:
    """The shape of one of the joined tensors."""
    if draw(rarely) or (axis is None and draw(flags)):
        return draw(shapes())
    if stack or axis is None or not -len(shape) <= axis < len(shape):
        return shape
    sizes = list(shape)
    sizes[axis] = draw(st.integers(0, 3))
    return tuple(sizes)


@st.composite
def near_dtypes(draw: Any) -> tuple[str, ...]:
    """Dtypes of one kind."""
    kind = np.dtype(draw(st.sampled_from(ALL))).kind
    return tuple(d for d in ALL if FAMILIES[np.dtype(d).kind] == FAMILIES[kind])


@st.composite
def moveaxis(draw: Any) -> Call:
    x = draw(arrays())
    if draw(flags):
        return Call((x, draw(axis_of(x.ndim)), draw(axis_of(x.ndim))), {})
    source, destination = draw(axes_of(x.ndim)), draw(axes_of(x.ndim))
    if not draw(rarely):
        length = min(len(source), len(destination))
        source, destination = source[:length], destination[:length]
    return Call((x, source, destination), {})


@st.composite
def broadcast_shapes(draw: Any) -> Call:
    """Shapes that broadcast, mostly; up to three of them."""
    return Call(tuple(draw(broadcastable(draw(st.integers(0, 3))))), {})


@st.composite
def several_new_axes(draw: Any) -> Call:
    """Several axes at once, positionally or by name."""
    x, count = draw(arrays()), draw(st.integers(0, 3))
    axes = draw(axes_of(x.ndim + count))
    axis = axes[:count] if len(axes) >= count else tuple(range(count))
    return Call((x, axis), {}) if draw(flags) else Call((x,), {"axis": axis})


@st.composite
def isin(draw: Any) -> Call:
    return Call(draw(operands(2)), draw(some(invert=flags)))


def isin_by_numpy(x1: Any, x2: Any, *, invert: bool = False) -> np.ndarray:
    """A Python scalar takes the dtype that it promotes to with the tensor, which has to hold it."""
    dtype = np.result_type(*(each if isinstance(each, np.ndarray) else type(each)(0) for each in (x1, x2)))
    return np.isin(np.asarray(x1, dtype), np.asarray(x2, dtype), invert=invert)


@st.composite
def permute_dims(draw: Any) -> Call:
    x = draw(arrays())
    if draw(rarely):
        return Call((x, draw(axes_of(x.ndim))), {})
    return Call((x, tuple(a - draw(st.sampled_from([0, x.ndim])) for a in draw(st.permutations(range(x.ndim))))), {})


@st.composite
def repeat(draw: Any) -> Call:
    x = draw(arrays())
    axis = draw(st.none() | axis_of(x.ndim))
    length = x.size if axis is None else x.shape[axis] if -x.ndim <= axis < x.ndim else 1
    if draw(flags):
        counts: Any = draw(st.integers(-1 if draw(rarely) else 0, 3))
    else:
        shape = draw(st.sampled_from([(length,), (length,), (1,), ()])) if not draw(rarely) else draw(shapes(0, 2))
        counts = np.asarray(np.random.default_rng(draw(seeds)).integers(-1 if draw(rarely) else 0, 4, shape))
        counts = counts.astype("float32" if draw(rarely) else draw(st.sampled_from(INTEGER)))
    return Call((x, counts), {} if axis is None and draw(flags) else {"axis": axis})


@st.composite
def reshape(draw: Any) -> Call:
    x = draw(arrays())
    shape = list(draw(st.permutations([*x.shape, *[1] * draw(st.integers(0, 2))])))
    if len(shape) > 1 and draw(flags):
        shape[:2] = [shape[0] * shape[1]]
    if draw(rarely):
        shape = list(draw(shapes()))
    if shape and draw(flags):
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    return Call((x, tuple(shape)), draw(some(copy=st.sampled_from([None, True, *[False] * (x.size > 0)]))))


@st.composite
def roll(draw: Any) -> Call:
    x = draw(arrays())
    axis = draw(reduced_axes(x.ndim)) or None
    shifts = st.integers(-5, 5)
    if isinstance(axis, tuple) and draw(st.integers(0, 3)):
        shift: Any = tuple(draw(shifts) for _ in range(max(0, len(axis) + draw(rarely))))
    else:
        shift = draw(st.tuples(shifts, shifts) if draw(rarely) else shifts)
    return Call((x, shift), {} if axis is None else {"axis": axis})


def unpaired(made: Call) -> Exception | None:
    """Several shifts go with as many axes; NumPy pairs one axis with all of them, or adds them up."""
    shift, axis = made.args[1], made.kwargs.get("axis")
    if isinstance(shift, tuple) and not (isinstance(axis, tuple) and len(axis) == len(shift)):
        return ValueError("as many shifts as axes")
    return None


def no_axis_to_squeeze(made: Call) -> Exception | None:
    """A 0-d tensor has no axis to name."""
    return missing_axis(Call(made.args, {"axis": made.args[1]}))


def no_integers(made: Call) -> Exception | None:
    """Positions are integers; a wrong dtype is a TypeError everywhere."""
    return TypeError("positions are integers") if made.args[1].dtype.kind not in "iu" else None


@st.composite
def squeeze(draw: Any) -> Call:
    x = draw(arrays(shape=st.lists(st.sampled_from([1, 1, 1, 0, 2]), max_size=4).map(tuple)))
    fitting = [axis for axis, size in enumerate(x.shape) if size == 1]
    if draw(rarely) or not fitting:
        return Call((x, draw(axis_of(x.ndim) | axes_of(x.ndim))), {})
    chosen = draw(st.sampled_from([fitting[0], fitting[-1] - x.ndim, tuple(fitting), ()]))
    return Call((x, chosen), {})


@st.composite
def tile(draw: Any) -> Call:
    least = -1 if draw(rarely) else 0
    return Call((draw(arrays()), tuple(draw(st.lists(st.integers(least, 3), max_size=4)))), {})


def positions(draw: Any, size: int, shape: Shape) -> np.ndarray:
    """Positions along an axis of that size, from either end; rarely out of bounds, or no integers."""
    wrong = draw(rarely)
    low, high = (-size - 1, size + 1) if wrong or not size else (-size, size)
    found = np.asarray(np.random.default_rng(draw(seeds)).integers(low, high, shape))
    return found.astype("float64" if draw(rarely) else draw(st.sampled_from(["int8", "int32", "int64"])))


@st.composite
def take(draw: Any) -> Call:
    x = draw(arrays(shape=shapes(1)))
    axis = draw(st.none() | axis_of(x.ndim)) if x.ndim == 1 or draw(rarely) else draw(axis_of(x.ndim))
    size = x.shape[axis] if axis is not None and -x.ndim <= axis < x.ndim else x.size
    shape = draw(shapes(0, 2)) if draw(rarely) else (draw(st.integers(0, 4)) if size else 0,)
    return Call((x, positions(draw, size, shape)), {} if axis is None else {"axis": axis})


@st.composite
def take_along_axis(draw: Any) -> Call:
    whole = draw(shapes(1))
    x_shape, shape = ([*draw(part_of(whole, missing=False))] for _ in range(2))
    axis = draw(axis_of(len(whole)))
    if -len(whole) <= axis < len(whole):
        x_shape[axis], shape[axis] = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        shape[axis] *= bool(x_shape[axis])
    size = x_shape[axis] if -len(whole) <= axis < len(whole) else 1
    shape = shape[1:] if draw(rarely) else shape
    made = Call((draw(arrays(shape=tuple(x_shape))), positions(draw, size, tuple(shape))), {"axis": axis})
    return Call(made.args, {}) if axis == -1 and draw(flags) else made


def take_by_numpy(x: np.ndarray, indices: np.ndarray, *, axis: int | None = None) -> np.ndarray:
    """A position for each element along one axis."""
    if indices.dtype.kind not in "iu":
        raise TypeError("not of integers")
    if indices.ndim != 1 or (axis is None and x.ndim != 1):
        raise ValueError("one axis")
    return np.take(x, indices, axis)


def repeat_by_numpy(x: np.ndarray, repeats: Any, *, axis: int | None = None) -> np.ndarray:
    """Counts may be of uint64, which NumPy does not take."""
    counts = repeats.astype(np.int64) if isinstance(repeats, np.ndarray) and repeats.dtype == np.uint64 else repeats
    return np.repeat(x, counts, axis)


def negative(made: Call) -> Exception | None:
    """Counts are not negative, also where there is nothing to repeat."""
    return ValueError("negative") if min(made.args[1], default=0) < 0 else None


def unique(**options: Any) -> Any:
    """NumPy's result, in which every NaN is unique."""

    def of_tensor(x: np.ndarray) -> Any:
        found = np.unique(x, equal_nan=False, **options)
        if options.get("return_inverse"):
            inverse = len(found) - 1 - options.get("return_counts", False)
            found = (*found[:inverse], found[inverse].reshape(x.shape), *found[inverse + 1 :])
        return found

    return of_tensor


MANIPULATION = {
    "broadcast_arrays": Entry(broadcast_arrays()),
    "broadcast_to": Entry(broadcast_to()),
    "concat": Entry(joined(stack=False), promotes=(0,)),
    "broadcast_shapes": Entry(broadcast_shapes(), numpy=None),
    "expand_dims": Entry(with_axis(more=1) | several_new_axes(), text=lambda x, axis=0: np.expand_dims(x, axis)),
    "flip": Entry(with_axis(reduced_axes)),
    "moveaxis": Entry(moveaxis()),
    "permute_dims": Entry(permute_dims()),
    "repeat": Entry(repeat(), forbids=missing_axis, late=True, numpy=repeat_by_numpy),
    "reshape": Entry(reshape()),
    "roll": Entry(roll(), forbids=unpaired),
    "squeeze": Entry(squeeze(), forbids=no_axis_to_squeeze),
    "stack": Entry(joined(stack=True), promotes=(0,)),
    "take": Entry(take(), numpy=take_by_numpy, late=True),
    "take_along_axis": Entry(take_along_axis(), forbids=no_integers, late=True),
    "tile": Entry(tile(), forbids=negative),
    "isin": Entry(isin(), promotes=(0, 1), text=isin_by_numpy),
    "unique_all": Entry(
        call(arrays()),
        numpy=unique(return_index=True, return_inverse=True, return_counts=True),
        signed_zeros=False,
    ),
    "unique_counts": Entry(call(arrays()), numpy=unique(return_counts=True), signed_zeros=False),
    "unique_inverse": Entry(call(arrays()), numpy=unique(return_inverse=True), signed_zeros=False),
    "unique_values": Entry(call(arrays()), numpy=unique(), signed_zeros=False),
    "unstack": Entry(with_axis()),
}


@each_case("name", MANIPULATION)
def test_manipulation(name, conforms):
    conforms(name, MANIPULATION[name])
