"""Strategies for the arguments of calls: arrays with interesting values, shapes that broadcast, axes, scalars.

Hypothesis decides dtype, shape and seed; the seed decides the values. Now and then a shape or an axis does not fit,
since refusals are compared, too. Strategies are made once, since that takes longer than drawing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..equality import least
from ..stand_in import is_cuda

Shape = tuple[int, ...]

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGER = (*SIGNED, *UNSIGNED)
REAL_FLOATING = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATING = (*REAL_FLOATING, *COMPLEX)
REAL = (*INTEGER, *REAL_FLOATING)
NUMERIC = (*REAL, *COMPLEX)
ALL = (*BOOL, *NUMERIC)

# Python scalars as operands: of each type, ones that fit everywhere, and ones that fit few dtypes.
SCALARS = (True, False, 0, 2, -3, 100, 300, -(2**40), 0.0, -0.0, 2.5, float("nan"), float("-inf"), 1 + 2j)
ORDINARY_SCALARS = tuple(scalar for scalar in SCALARS if np.isfinite(scalar))

seeds = st.integers(0, 2**20)
rarely = st.integers(0, 11).map(lambda n: n == 11)
sizes = st.sampled_from([2, 3, 1, 4, 2, 3, 0])


def _ordinary(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        return np.arange(7).astype(dtype) - (np.array(0 if kind == "u" else 3, dtype))
    reals = np.array([0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 0.1, -7.25, 100.0])
    return (reals if kind == "f" else reals + 1j * reals[::-1]).astype(dtype)


def _special(dtype: str) -> np.ndarray:
    """Ordinary values, and the extremes of the dtype."""
    kind, ordinary = np.dtype(dtype).kind, _ordinary(dtype)
    if kind == "b":
        return ordinary
    if kind in "iu":
        limits = np.iinfo(dtype)
        return np.append(ordinary, np.array([limits.min, limits.max, limits.min + 1, limits.max - 1], dtype))
    real = np.finfo(dtype)
    extremes = [real.max, real.min, real.smallest_normal, least(dtype, gpu=is_cuda()), -0.0, np.inf, -np.inf]
    reals = np.array([*extremes, np.nan, np.nan, -0.0, -np.inf, 0.0, 1.0, np.pi])
    return np.append(ordinary, (reals if kind == "f" else _complex(reals, np.roll(reals, 4))).astype(dtype))


def _complex(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    made = np.empty(real.shape, np.complex128)
    made.real, made.imag = real, imag  # x + 1j * inf would make NaNs
    return made


with np.errstate(all="ignore"):
    POOLS = {dtype: (_ordinary(dtype), _special(dtype)) for dtype in ALL}


def values(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """An array with ordinary values or, for every other seed, special ones among them."""
    pool = POOLS[dtype][seed % 2]
    return np.asarray(pool[np.random.default_rng(seed).integers(len(pool), size=shape)])


def ordinary(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """An array with ordinary values."""
    return values(shape, dtype, 2 * seed)


@cache
def shapes(least: int = 0, most: int = 3) -> st.SearchStrategy[Shape]:
    """Shapes of so many dimensions, few of them with none, and few empty."""
    return st.one_of(*(st.tuples(*[sizes] * ndim) for ndim in range(least, most + 1) for _ in range(1 + (ndim > 0))))


@cache
def arrays(
    dtypes: tuple[str, ...] = ALL, shape: st.SearchStrategy[Shape] | Shape | None = None, make: Any = values
) -> st.SearchStrategy[np.ndarray]:
    """Arrays of these dtypes, of a drawn shape, or of that one."""
    of_shape = shapes() if shape is None else st.just(shape) if isinstance(shape, tuple) else shape
    return st.builds(make, of_shape, st.sampled_from(dtypes), seeds)


@cache
@st.composite
def broadcastable(draw: Any, count: int) -> list[Shape]:
    """Shapes that broadcast; rarely ones that may not."""
    whole = draw(shapes())
    if draw(rarely):
        return [draw(shapes()) for _ in range(count)]
    return [draw(part_of(whole)) for _ in range(count)]


@cache
@st.composite
def part_of(draw: Any, whole: Shape, *, missing: bool = True) -> Shape:
    """A shape that broadcasts to `whole`: some leading axes are missing, others are of size one."""
    ones = draw(st.integers(0, 2 ** len(whole) - 1))
    part = tuple(1 if ones >> axis & 1 else size for axis, size in enumerate(whole))
    return part[draw(st.integers(0, len(whole))) :] if missing else part


@cache
@st.composite
def some(draw: Any, /, **options: Any) -> dict[str, Any]:
    """Keyword arguments, each of which is left out one time in four."""
    chances = draw(st.integers(0, 4 ** len(options) - 1))
    return {name: draw(each) for n, (name, each) in enumerate(options.items()) if chances >> 2 * n & 3 != 3}


@cache
def axis_of(ndim: int) -> st.SearchStrategy[int]:
    """An axis, from either end; rarely one that does not exist."""
    fitting = st.integers(-ndim, ndim - 1) if ndim else st.sampled_from([0, -1])
    return rarely.flatmap(lambda wrong: st.sampled_from([ndim, -ndim - 1]) if wrong else fitting)


@cache
@st.composite
def axes_of(draw: Any, ndim: int) -> tuple[int, ...]:
    """Some of the axes, each from either end; rarely one that does not exist, or one of them twice."""
    chosen = draw(st.permutations(range(ndim)))[draw(st.integers(0, ndim)) :]
    if draw(rarely):
        chosen = [*chosen, *draw(st.sampled_from([(ndim,), chosen[:1]]))]
    fronts = draw(st.integers(0, 2**ndim - 1))
    return tuple(axis if fronts >> position & 1 else axis - ndim for position, axis in enumerate(chosen))


@cache
def reduced_axes(ndim: int) -> st.SearchStrategy[int | tuple[int, ...] | None]:
    """The `axis` argument of a reduction: None, one, or several."""
    return st.one_of(axes_of(ndim), axis_of(ndim), axes_of(ndim), st.none())


@cache
@st.composite
def operands(draw: Any, count: int, make: Any = values) -> tuple[Any, ...]:
    """Tensors that broadcast, mostly of one kind; one or more of them may be Python scalars."""
    shapes = draw(broadcastable(count))
    dtype = draw(st.sampled_from(ALL))
    near = tuple(d for d in ALL if np.dtype(d).kind == np.dtype(dtype).kind)
    tensors = [draw(arrays(draw(st.sampled_from([(dtype,), near, ALL])), shape, make)) for shape in shapes]
    if draw(st.booleans()):
        return tuple(tensors)
    scalars = st.sampled_from(SCALARS if make is values else ORDINARY_SCALARS)
    return tuple(draw(scalars) if draw(st.booleans()) else each for each in tensors)
