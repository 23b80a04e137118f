"""The statistical and utility functions, and the functions that search and sort."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, INTEGER, SCALARS, arrays, axis_of, rarely, reduced_axes, shapes, some
from .calls import Call, call
from .judge import Entry
from .rules import FAMILIES, missing_axis

flags = st.booleans()
dtypes = st.none() | st.sampled_from(ALL).map(np.dtype)


@st.composite
def reduction(draw: Any, /, axis: Any = reduced_axes, **options: Any) -> Call:
    x = draw(arrays())
    return Call((x,), draw(some(axis=axis(x.ndim), keepdims=flags, **options)))


def one_axis(ndim: int) -> st.SearchStrategy[int | None]:
    return st.none() | axis_of(ndim)


@st.composite
def along(draw: Any, /, axis: Any = axis_of, least: int = 0, **options: Any) -> Call:
    """Calls of functions that work along one axis."""
    x = draw(arrays(shape=shapes(least)))
    return Call((x,), draw(some(axis=axis(x.ndim), **options)))


def no_axis(made: Call) -> Exception | None:
    """A 0-d tensor has no axis, not even where NumPy lets it have one."""
    return np.exceptions.AxisError("no axis") if made.args[0].ndim == 0 else None


@st.composite
def diff(draw: Any) -> Call:
    made = draw(along(n=st.integers(-1, 4)))
    (x,), axis = made.args, made.kwargs.get("axis", -1)
    shape = list(x.shape)
    if -x.ndim <= axis < x.ndim:
        shape[axis] = draw(st.integers(0, 2))
    ends = arrays(ALL if draw(rarely) else (x.dtype.name,), tuple(shape) if x.ndim else (1,))
    return Call(made.args, {**made.kwargs, **draw(some(prepend=ends, append=ends))})


@st.composite
def searchsorted(draw: Any) -> Call:
    dtype = draw(st.sampled_from(ALL))
    near = tuple(d for d in ALL if FAMILIES[np.dtype(d).kind] == FAMILIES[np.dtype(dtype).kind])
    x1 = draw(arrays((dtype,), shapes(0, 2) if draw(rarely) else shapes(1, 1)))
    x2 = draw(arrays(ALL if draw(rarely) else near) | st.sampled_from(SCALARS))
    kwargs = draw(some(side=st.sampled_from(["left", "right", "middle"] if draw(rarely) else ["left", "right"])))
    if x1.ndim != 1 or draw(flags):
        return Call((np.sort(x1.ravel()).reshape(x1.shape), x2), kwargs)
    if draw(rarely):
        return Call((x1, x2), {**kwargs, "sorter": draw(arrays(("int64", "float32"), shapes(0, 2)))})
    return Call((x1, x2), {**kwargs, "sorter": np.argsort(x1, kind="stable").astype(draw(st.sampled_from(INTEGER)))})


def unlike_sorter(made: Call) -> Exception | None:
    """A sorter has the shape of the sorted tensor; NumPy has several errors for others."""
    sorter = made.kwargs.get("sorter")
    return ValueError("another shape") if sorter is not None and sorter.shape != made.args[0].shape else None


def mean(x: np.ndarray, axis: Any = None, *, keepdims: bool = False) -> np.ndarray:
    """A NaN stays in its part of a complex number."""
    if x.dtype.kind != "c":
        return np.mean(x, axis=axis, keepdims=keepdims)
    parts = [np.asarray(np.mean(part, axis=axis, keepdims=keepdims)) for part in (x.real, x.imag)]
    made = np.empty(parts[0].shape, x.dtype)
    made.real, made.imag = parts
    return made


def var(x: np.ndarray, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> np.ndarray:
    """NaN without a degree of freedom. float16 is summed as float32, in which it does not overflow."""
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    found = np.asarray(np.var(wide, axis=axis, ddof=correction, keepdims=keepdims))
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if math.prod(x.shape[each] for each in axes) - correction <= 0:
        found = np.full_like(found, np.nan)
    return found


def narrowed(function: Any) -> Any:
    """The function, with results of float16 for float16."""

    def of_width(x: np.ndarray, **kwargs: Any) -> np.ndarray:
        found = function(x, **kwargs)
        return found.astype(np.float16) if x.dtype == np.float16 else found

    return of_width


def diff_by_numpy(x: np.ndarray, *, axis: int = -1, n: int = 1, **ends: np.ndarray) -> np.ndarray:
    """The values for the ends stay there if no differences are taken."""
    if n == 0:
        whole = [each for each in (ends.get("prepend"), x, ends.get("append")) if each is not None]
        return np.concatenate(whole, axis)
    return np.diff(x, n, axis, **ends)


def searchsorted_by_numpy(x1: np.ndarray, x2: np.ndarray, *, side: Any = "left", sorter: Any = None) -> np.ndarray:
    """Real numbers only; and a sorter may be of uint64, which NumPy does not take."""
    if sorter is not None and sorter.dtype == np.uint64:
        sorter = sorter.astype(np.int64)
    if not isinstance(x2, np.ndarray):
        x2 = np.asarray(x2, np.result_type(x1, type(x2)(0)))
    found = np.searchsorted(x1, x2, side, sorter)
    if {x1.dtype.kind, x2.dtype.kind} & {"b", "c"}:
        raise TypeError("not of real numbers")
    return found


def sort(x: np.ndarray, *, axis: int = -1, descending: bool = False, stable: bool = True) -> np.ndarray:
    found = np.sort(x, axis=axis, stable=stable)
    return np.flip(found, axis) if descending else found


def argsort(x: np.ndarray, *, axis: int = -1, descending: bool = False, stable: bool = True) -> np.ndarray:
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, stable=stable), axis)


cumulative = along(one_axis, 1, dtype=dtypes, include_initial=flags)
CORRECTIONS = st.sampled_from([0, 1, 2, 0.5, 3.0, -1])


def reduces(calls: st.SearchStrategy[Call], **options: Any) -> Entry:
    return Entry(calls, forbids=missing_axis, **options)


cumulative = along(one_axis, 1, dtype=dtypes, include_initial=flags)
CORRECTIONS = st.sampled_from([0, 1, 2, 0.5, 3.0, -1])
REDUCTIONS = {
    "prod": Entry(reduction(dtype=dtypes), forbids=missing_axis, loosely=True),
    "sum": Entry(reduction(dtype=dtypes), forbids=missing_axis),
    **{name: reduces(reduction()) for name in ("all", "any", "count_nonzero", "max", "min")},
    **{name: reduces(reduction(one_axis)) for name in ("argmax", "argmin")},
    # array_api_strict makes the initial value an operand, and 0 + -0 is the other zero.
    "cumulative_prod": Entry(cumulative, text=np.cumulative_prod, loosely=True),
    "cumulative_sum": Entry(cumulative, text=np.cumulative_sum),
    "argsort": Entry(along(descending=flags, stable=flags), forbids=no_axis, numpy=argsort),
    "diff": Entry(diff(), promotes=(0, "prepend", "append"), forbids=no_axis, text=diff_by_numpy),
    "mean": reduces(reduction(), text=mean, ulps=4),
    "nonzero": Entry(call(arrays())),
    "searchsorted": Entry(
        searchsorted(), promotes=(0, 1), forbids=unlike_sorter, late=True, numpy=searchsorted_by_numpy
    ),
    "sort": Entry(along(descending=flags, stable=flags), forbids=no_axis, numpy=sort, signed_zeros=False),
    "std": reduces(
        reduction(correction=CORRECTIONS), text=narrowed(lambda x, **kwargs: np.sqrt(var(x, **kwargs))), ulps=4
    ),
    "var": reduces(reduction(correction=CORRECTIONS), text=narrowed(var), ulps=4),
}


@each_case("name", REDUCTIONS)
def test_reductions(name, conforms):
    conforms(name, REDUCTIONS[name])
