"""The functions beyond the standard, which have NumPy's semantics."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, BOOL, FLOATING, REAL, Shape, arrays, ordinary, rarely, reduced_axes, shapes, some
from .calls import Call
from .judge import Entry
from .rules import FAMILIES, missing_axis

flags = st.booleans()
lengths = st.integers(0, 4)
METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "hazen", "median_unbiased")
SUBSCRIPTS = (
    "ij,jk->ik",
    "ij,jk",
    "ii",
    "ii->i",
    "i,i",
    "i , j -> ij",
    "ba",
    "ijk->k",
    "ij,jk,kl->il",
    "i,ij,j",
    "->",
    ",i",
    "...ij->...ji",
    "...i,...i->...",
    "b...i,bi->b...",
    "i...->...",
)


def whole(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Small whole numbers, whose sums of products are exact in every dtype and order."""
    low = 0 if np.dtype(dtype).kind in "bu" else -2
    return np.asarray(np.random.default_rng(seed).integers(low, 2 if dtype == "bool" else 3, shape)).astype(dtype)


def near(draw: Any, few: tuple[str, ...] = ALL) -> tuple[str, ...]:
    """Dtypes that mix; rarely any."""
    if draw(rarely):
        return few
    kind = FAMILIES[np.dtype(draw(st.sampled_from(few))).kind]
    return tuple(d for d in few if FAMILIES[np.dtype(d).kind] == kind)


@st.composite
def einsum(draw: Any) -> Call:
    text = draw(st.sampled_from(SUBSCRIPTS))
    sizes = {letter: draw(st.integers(0 if draw(rarely) else 1, 3)) for letter in "abijkl"}
    dots, dtypes, given = tuple(draw(st.lists(st.integers(1, 2), max_size=2))), near(draw), []
    for part in text.replace(" ", "").partition("->")[0].split(","):
        before, has_dots, behind = part.partition("...")
        shape = (*(sizes[c] for c in before), *(dots if has_dots else ()), *(sizes[c] for c in behind))
        shape = (*shape, 1) if draw(rarely) else tuple(n + draw(rarely) for n in shape)
        given.append(draw(arrays(dtypes, shape, whole)))
    return Call((text, *given), {})


@st.composite
def median(draw: Any) -> Call:
    x = draw(arrays())
    return Call((x,), draw(some(axis=reduced_axes(x.ndim), keepdims=flags)))


def median_by_numpy(x: np.ndarray, axis: Any = None, keepdims: Any = False) -> Any:
    """Over no axis each element is its own median; without elements, NumPy fails as it reshapes nothing."""
    if axis == () and not x.size:
        return np.mean(x, axis, keepdims=keepdims)
    return np.median(x, axis, keepdims=keepdims)


@st.composite
def quantile(draw: Any, most: int) -> Call:
    x = draw(arrays((*BOOL, *FLOATING) if draw(rarely) else REAL))
    fractions = st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.99, 1.0, *[1.5, -0.1, float("nan")] * draw(rarely)])
    several = st.lists(fractions, max_size=3).map(lambda q: np.asarray(q) * most)
    one = fractions.map(lambda q: np.float64(q * most)) | st.sampled_from([0, 1])
    q = draw(several | one.map(np.asarray) | one.map(lambda q: q.item() if isinstance(q, np.generic) else q))
    options = some(axis=reduced_axes(x.ndim), keepdims=flags, method=st.sampled_from(METHODS))
    return Call(
        (x, q.astype(draw(st.sampled_from(["float64", "float32"]))) if isinstance(q, np.ndarray) else q), draw(options)
    )


def of_nothing(made: Call) -> Exception | None:
    """There is no quantile of no elements; NumPy raises an IndexError, or returns an empty array for no quantiles."""
    x, axis = made.args[0], made.kwargs.get("axis")
    try:
        empty = np.max(x, axis=axis).size > 0 if x.size else bool(np.sum(x, axis=axis).size)
    except (ValueError, TypeError):
        return missing_axis(made)
    return ValueError("no elements") if not x.size and empty else missing_axis(made)


@st.composite
def histogram(draw: Any) -> Call:
    x = draw(arrays((*BOOL, *REAL), make=ordinary))
    edges = st.lists(st.sampled_from([-3.0, 0.0, 0.5, 1.0, 4.0]), min_size=1, unique=True).map(sorted).map(np.asarray)
    bins = st.integers(0 if draw(rarely) else 1, 4) | edges | st.just(np.asarray([3, 1, 2]))
    ranges = st.sampled_from([(0.0, 2.0), (-1, 1), (1.0, 1.0), (2.0, 1.0)])
    options = {"bins": bins, "range": ranges, "density": flags}
    if draw(flags):
        options["weights"] = arrays((*BOOL, *REAL, "complex128"), x.shape, whole)
    return Call((x,), draw(some(**options)))


@st.composite
def interp(draw: Any) -> Call:
    count = draw(lengths)
    points = np.sort(draw(arrays(REAL, (count,), ordinary)))
    values = draw(arrays(tuple(d for d in ALL if d != "bool"), (count + draw(rarely),), ordinary))
    ends = st.sampled_from([-1.0, 0, float("nan")])
    period = {"period": st.sampled_from([2.5, -3, 0])} if draw(rarely) else {}
    return Call((draw(arrays(REAL)), points, values), draw(some(left=ends, right=ends, **period)))


@st.composite
def convolve(draw: Any) -> Call:
    dtypes = near(draw)
    a, v = (draw(arrays(dtypes, shapes(0, 2) if draw(rarely) else (draw(lengths),), whole)) for _ in range(2))
    mode = st.sampled_from(["full", "same", "valid", *["most"] * draw(rarely)])
    return Call((a, v), {} if draw(flags) else {"mode": draw(mode)})


@st.composite
def pad(draw: Any) -> Call:
    x = draw(arrays(shape=shapes(0, 2)))
    width = st.integers(-1 if draw(rarely) else 0, 5)
    pair = st.tuples(width, width)
    widths = draw(width | pair | st.tuples(*[pair] * x.ndim) if x.ndim else width)
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
    fill = True if x.dtype == np.bool_ else draw(st.sampled_from([2, (1, 3)]))
    return Call((x, widths, mode), {"constant_values": fill} if mode == "constant" and draw(flags) else {})


@st.composite
def split(draw: Any) -> Call:
    x = draw(arrays())
    where = st.integers(-1 if draw(rarely) else 1, 4) | st.lists(st.integers(-3, 5), max_size=3).map(tuple)
    return Call((x, draw(where)), draw(some(axis=st.integers(-x.ndim - draw(rarely), max(x.ndim - 1, 0)))))


def no_parts(made: Call) -> Exception | None:
    """NumPy divides by the number of parts, also by 0."""
    return ValueError("no parts") if made.args[1] == 0 else None


@st.composite
def lstsq(draw: Any) -> Call:
    rows, columns, right = draw(lengths), draw(lengths), draw(st.integers(1, 2))
    few = ALL if draw(rarely) else ("float32", "float64", "complex64", "complex128")
    a = draw(arrays(few, (rows, columns), whole))
    b = draw(arrays(few, (rows + draw(rarely), right) if draw(flags) else (rows,), whole))
    return Call((a, b), {"rcond": 1e-3} if draw(flags) else {})


def lstsq_by_numpy(a: np.ndarray, b: np.ndarray, rcond: float | None = None) -> tuple[Any, ...]:
    """NumPy's residuals are rounded otherwise."""
    if not {a.dtype.name, b.dtype.name} <= {"float32", "float64", "complex64", "complex128"}:
        raise TypeError("LAPACK does not know the dtype")
    x, _, rank, values = np.linalg.lstsq(a, b, rcond)
    unique = rank == a.shape[1] < a.shape[0]
    rest = a @ x - b
    residuals = np.atleast_1d(np.sum((rest * rest.conj()).real, axis=0))[: None if unique else 0]
    return x, residuals, np.asarray(rank, np.int64), values


BEYOND = {
    "convolve": Entry(convolve(), promotes=(0, 1), text=np.convolve),
    "einsum": Entry(einsum(), promotes=(1, 2, 3), text=np.einsum),
    "histogram": Entry(histogram(), text=np.histogram, late=True),
    "interp": Entry(interp(), text=np.interp),
    "linalg.lstsq": Entry(lstsq(), text=lstsq_by_numpy, ulps=64),
    "median": Entry(median(), forbids=missing_axis, text=median_by_numpy),
    "pad": Entry(pad(), text=np.pad),
    "percentile": Entry(quantile(100), forbids=of_nothing, text=np.percentile, late=True),
    "quantile": Entry(quantile(1), forbids=of_nothing, text=np.quantile, late=True),
    "split": Entry(split(), forbids=no_parts, text=np.split),
}


@each_case("name", BEYOND)
def test_beyond(name, conforms):
    conforms(name, BEYOND[name], times=3)
