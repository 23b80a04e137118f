"""The `linalg` extension, and its functions in the main namespace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, COMPLEX, FLOATING, Shape, arrays, axes_of, axis_of, ordinary, part_of, rarely, sizes, some
from .calls import Call
from .judge import Entry
from .rules import FAMILIES

flags = st.booleans()
stacks = st.lists(st.integers(0, 2), max_size=2).map(tuple)
LAPACK = ("float32", "float64", *COMPLEX)


def normal(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Numbers of which no matrix is singular, if they are floats."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=shape) * 3
    if dtype in COMPLEX:
        made = made + 1j * rng.normal(size=shape)
    return np.asarray(made).astype(dtype)


def adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


def hermitian(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    x = normal(shape, dtype, seed)
    return x + adjoint(x) if x.ndim > 1 and shape[-1] == shape[-2] else x


def positive(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Positive definite matrices; now and then one that is only Hermitian."""
    if dtype not in FLOATING or len(shape) < 2 or shape[-1] != shape[-2] or seed % 8 == 0:
        return hermitian(shape, dtype, seed)
    x = normal(shape, dtype, seed)
    return x @ adjoint(x) + np.eye(shape[-1], dtype=dtype)


def singular(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Matrices of low rank for every fourth seed."""
    x = normal(shape, dtype, seed)
    if seed % 4 == 0 and x.ndim > 1 and shape[-2] > 1:
        x[..., 0, :] = 0
    return x


@st.composite
def matrices(draw: Any, make: Any = normal, *, square: bool = False, least: int = 0, few: Any = FLOATING) -> np.ndarray:
    """Stacks of matrices; rarely of another shape or dtype."""
    rows, columns = (draw(st.integers(least, 3)) for _ in range(2))
    shape = (*draw(stacks), rows, rows if square and not draw(rarely) else columns)
    return draw(arrays(ALL if draw(rarely) else few, shape[-1:] if draw(rarely) else shape, make))


@st.composite
def of_matrices(draw: Any, /, given: Any, **options: Any) -> Call:
    return Call((draw(given),), draw(some(**options)))


@st.composite
def matrix_power(draw: Any) -> Call:
    return Call((draw(matrices(square=True)), draw(st.integers(-2, 4))), {})


@st.composite
def near(draw: Any, make: Any, *shapes: Shape) -> tuple[np.ndarray, ...]:
    """Tensors of these shapes, mostly of one kind."""
    kind = np.dtype(draw(st.sampled_from(ALL))).kind
    dtypes = ALL if draw(rarely) else tuple(d for d in ALL if FAMILIES[np.dtype(d).kind] == FAMILIES[kind])
    return tuple(draw(arrays(dtypes, shape, make)) for shape in shapes)


@st.composite
def matmul(draw: Any) -> Call:
    whole, rows, inner, columns = draw(stacks), draw(sizes), draw(sizes), draw(sizes)
    left = (*draw(part_of(whole)), rows, inner)
    right = (*draw(part_of(whole)), inner + draw(rarely), columns)
    left, right = draw(st.sampled_from([(left, right), (left[-1:], right), (left, right[-2:-1]), (left[-1:],) * 2]))
    return Call(draw(near(ordinary, () if draw(rarely) else left, right)), {})


@st.composite
def tensordot(draw: Any) -> Call:
    shared, before, after = ([draw(sizes) for _ in range(draw(st.integers(0, 2)))] for _ in range(3))
    x1, x2 = draw(near(ordinary, (*before, *shared), (*shared, *after)))
    count = len(shared)
    if count == 2 and draw(flags):
        return Call((x1, x2), {})
    if draw(flags):
        return Call((x1, x2), {"axes": count + draw(rarely)})
    order = draw(st.permutations(range(count)))
    axes = [len(before) + i - draw(st.sampled_from([0, x1.ndim])) for i in order], list(order)
    return Call((x1, x2), {"axes": (axes[0], tuple(axes[1]) if draw(flags) else axes[1][draw(rarely) :])})


def too_many_axes(made: Call) -> Exception | None:
    """More axes to contract than there are: a ValueError, also where NumPy raises another error."""
    axes = made.kwargs.get("axes", 2)
    return ValueError("too many") if isinstance(axes, int) and axes > min(x.ndim for x in made.args) else None


def from_the_front(made: Call) -> Exception | None:
    """Both tensors may have other axes in front, so the axis is counted from the end."""
    return ValueError("count from the end") if made.kwargs.get("axis", -1) >= 0 else None


@st.composite
def along(draw: Any, size: Any) -> Call:
    """Two tensors with vectors along one of their last axes."""
    axis, whole = draw(st.integers(-2, -1)), [*draw(stacks), 1, 1]
    shapes = [[*draw(part_of(tuple(whole[:-2]))), draw(st.sampled_from([1, 2])), 1] for _ in range(2)]
    if shapes[0][-2] != shapes[1][-2]:
        shapes[0][-2] = 1
    length = draw(size)
    for shape in shapes:
        shape[axis], shape[-3 - axis] = length + draw(rarely), shape[-2]
    x1, x2 = draw(near(ordinary, *(tuple(shape) for shape in shapes)))
    if axis == -1 and draw(flags):
        return Call((x1, x2), {})
    return Call((x1, x2), {"axis": draw(st.sampled_from([0, 1, -5])) if draw(rarely) else axis})


def other_sizes(made: Call) -> Exception | None:
    """The axis of a cross product has size 3, and is counted from the end; NumPy takes 2, and broadcasts."""
    axis = made.kwargs.get("axis", -1)
    fits = axis < 0 and all(-x.ndim <= axis and x.shape[axis] == 3 for x in made.args)
    return None if fits else ValueError("no vectors of three")


@st.composite
def outer(draw: Any) -> Call:
    shapes = [(draw(sizes),) * (0 if draw(rarely) else 2 if draw(rarely) else 1) for _ in range(2)]
    return Call(draw(near(ordinary, *shapes)), {})


def bools(made: Call) -> Exception | None:
    """Numbers only."""
    return TypeError("not of bools") if any(x.dtype == np.bool_ for x in made.args) else None


@st.composite
def solve(draw: Any) -> Call:
    whole, rows = draw(stacks), draw(sizes)
    x1 = (*draw(part_of(whole)), rows, rows)
    x2 = (
        (rows + draw(rarely),) if draw(flags) else (*draw(part_of(whole)), rows + draw(rarely), draw(st.integers(1, 3)))
    )
    few = ALL if draw(rarely) else LAPACK
    return Call((draw(arrays(few, x1, singular)), draw(arrays(few, x2, normal))), {})


@st.composite
def with_rtol(draw: Any) -> Call:
    """Matrices, some of low rank, and perhaps a tolerance, or one for each."""
    x = draw(matrices(singular, least=1, few=LAPACK))
    if draw(flags):
        return Call((x,), {})
    kind = "float32" if x.dtype.name in {"float32", "complex64"} else "float64"
    each = np.full(x.shape[:-2], 1e-3, kind)
    return Call((x,), {"rtol": draw(st.sampled_from([1e-3, 0.5, each]))})


def no_lapack(made: Call) -> Exception | None:
    """Matrices of the dtypes that LAPACK knows alone."""
    if any(x.dtype.name not in LAPACK for x in made.args):
        return TypeError("LAPACK does not know the dtype")
    return ValueError("no matrix") if made.args[0].ndim < 2 else None


@st.composite
def vector_norm(draw: Any) -> Call:
    x = draw(arrays(ALL if draw(rarely) else FLOATING, None, normal if draw(flags) else ordinary))
    axis = draw(st.none() | axis_of(x.ndim) | axes_of(x.ndim))
    ords = st.sampled_from([2, 1, 0, -1, -2, 3, 0.5, 2.5, math.inf, *[-math.inf] * bool(x.size)])
    return Call((x,), {**draw(some(ord=ords, keepdims=flags)), **({} if axis is None else {"axis": axis})})


def floating(function: Any) -> Any:
    """The function, for floats alone."""

    def of_floats(x: np.ndarray, *args: Any, **kwargs: Any) -> Any:
        found = function(x, *args, **kwargs)
        if x.dtype.kind not in "fc":
            raise TypeError("not of floats")
        return found

    return of_floats


def lapack(calls: Any, **options: Any) -> Entry:
    return Entry(calls, numpy=None, ulps=64, late=True, **options)


dtypes = st.none() | st.sampled_from(ALL).map(np.dtype)
ORDS = st.sampled_from(["fro", "nuc", None, 1, -1, 2, -2, math.inf, -math.inf, 3])
PRODUCTS = {
    "matmul": Entry(matmul(), promotes=(0, 1), ulps=8),
    "matrix_transpose": Entry(of_matrices(matrices(few=ALL))),
    "tensordot": Entry(tensordot(), promotes=(0, 1), forbids=too_many_axes, ulps=8),
    "vecdot": Entry(along(sizes), promotes=(0, 1), forbids=from_the_front, ulps=8),
}
LINALG = {
    **PRODUCTS,
    **{f"linalg.{name}": entry for name, entry in PRODUCTS.items()},
    "linalg.cholesky": lapack(of_matrices(matrices(positive, square=True), upper=flags)),
    "linalg.cross": Entry(along(st.just(3)), promotes=(0, 1), forbids=other_sizes, ulps=8),
    "linalg.det": lapack(of_matrices(matrices(singular, square=True))),
    "linalg.diagonal": Entry(of_matrices(matrices(few=ALL), offset=st.integers(-4, 4))),
    "linalg.eig": lapack(of_matrices(matrices(square=True))),
    "linalg.eigvals": lapack(of_matrices(matrices(square=True))),
    "linalg.eigh": lapack(of_matrices(matrices(hermitian, square=True))),
    "linalg.eigvalsh": lapack(of_matrices(matrices(hermitian, square=True))),
    "linalg.inv": lapack(of_matrices(matrices(singular, square=True))),
    "linalg.matrix_norm": Entry(
        of_matrices(matrices(least=1), ord=ORDS, keepdims=flags), numpy=floating(np.linalg.matrix_norm), ulps=64
    ),
    "linalg.matrix_power": Entry(matrix_power(), numpy=floating(np.linalg.matrix_power), ulps=64, late=True),
    "linalg.matrix_rank": lapack(with_rtol(), forbids=no_lapack),
    "linalg.outer": Entry(outer(), promotes=(0, 1), forbids=bools),
    "linalg.pinv": lapack(with_rtol(), forbids=no_lapack),
    "linalg.qr": lapack(of_matrices(matrices(), mode=st.sampled_from(["reduced", "complete"]))),
    "linalg.slogdet": lapack(of_matrices(matrices(singular, square=True))),
    "linalg.solve": lapack(solve()),
    "linalg.svd": lapack(of_matrices(matrices(), full_matrices=flags)),
    "linalg.svdvals": lapack(of_matrices(matrices())),
    "linalg.trace": Entry(of_matrices(matrices(ordinary, few=ALL), offset=st.integers(-4, 4), dtype=dtypes)),
    "linalg.vector_norm": Entry(vector_norm(), numpy=floating(np.linalg.vector_norm), ulps=16),
}


@each_case("name", LINALG)
def test_linalg(name, conforms):
    conforms(name, LINALG[name])
