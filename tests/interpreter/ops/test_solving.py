"""Determinants, inverses, ranks and powers against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError, MetadataTypeError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from .elsewhere import evaluate_elsewhere

DTYPES = ["float32", "float64", "complex64", "complex128"]
STACKS = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
SQUARE = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4).map(lambda shape: (*shape, shape[-1]))
SQUARES = Meta.of((2, 3, 3), "float32")


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if dtype.startswith("c") else values).astype(dtype)


def regular(shape, dtype, seed=0):
    """Matrices that are far from singular."""
    return (random(shape, dtype, seed) + 5 * np.eye(shape[-1])).astype(dtype)


def low_rank(shape, dtype, rank):
    """Matrices of at most that rank, the other singular values being about the machine epsilon."""
    *stack, rows, columns = shape
    return (random((*stack, rows, rank), dtype) @ random((*stack, rank, columns), dtype, 1)).astype(dtype)


def assert_close(actual, expected):
    expected = np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    tolerance = 1e-3 if np.finfo(actual.dtype).bits == 32 else 1e-9
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- determinants


def slogdet(x):
    """Both results of slogdet."""
    op = find("slogdet")
    outputs = [np.full(m.shape, 7, m.dtype) for m in infer_once(op, (Meta.of(x.shape, x.dtype),), ()) if m]
    with np.errstate(all="ignore"):
        op.bind(np, 1, {})(x, *outputs)
    return outputs


@given(shape=SQUARE, dtype=st.sampled_from(DTYPES))
def test_det(evaluate, shape, dtype):
    x = random(shape, dtype)
    assert_close(evaluate("det", x), np.linalg.det(x))


@given(shape=SQUARE, dtype=st.sampled_from(DTYPES))
def test_slogdet(shape, dtype):
    x = random(shape, dtype)
    for actual, expected in zip(slogdet(x), np.linalg.slogdet(x), strict=True):
        assert_close(actual, expected)


def test_the_logarithm_of_a_determinant_does_not_overflow(evaluate):
    x = np.diag(np.full(40, 1e10))
    assert np.isinf(evaluate("det", x))
    sign, logabsdet = slogdet(x)
    assert (sign, logabsdet) == (1, pytest.approx(400 * np.log(10)))


# --- inv and solve


@given(shape=SQUARE, dtype=st.sampled_from(DTYPES))
def test_inv(evaluate, shape, dtype):
    x = regular(shape, dtype)
    assert_close(evaluate("inv", x), np.linalg.inv(x))


@given(
    stacks=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, min_side=0, max_side=3),
    sizes=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    vector=st.booleans(),
)
def test_solve(evaluate, stacks, sizes, dtypes, vector):
    rows, columns = sizes
    x1 = regular((*stacks.input_shapes[0], rows, rows), dtypes[0])
    x2 = random((rows,) if vector else (*stacks.input_shapes[1], rows, columns), dtypes[1], 1)
    assert_close(evaluate("solve", x1, x2), np.linalg.solve(x1, x2))


def test_a_stack_of_as_many_rows_is_no_vector(evaluate):
    x1, x2 = regular((2, 3, 3), "float64"), random((3, 3), "float64", 1)
    assert_close(evaluate("solve", x1, x2), np.stack([np.linalg.solve(a, x2) for a in x1]))


@each_case(
    ("right", "message"),
    [
        ((), "x2 must have at least one dimension"),
        ((2,), "3 equations do not match the 2"),
        ((2, 1), "3 equations do not match the 2"),
        ((2, 3), "3 equations do not match the 2"),
        ((4, 3, 1), "do not broadcast"),
    ],
)
def test_sides_that_do_not_fit_are_refused(infer, right, message):
    with pytest.raises(MetadataError, match=message):
        infer("solve", SQUARES, Meta.of(right, "float32"))


def test_only_square_systems_are_solved(infer):
    with pytest.raises(MetadataError, match="must be square"):
        infer("solve", Meta.of((3, 2), "float32"), Meta.of((3,), "float32"))


@pytest.mark.parametrize("right", ["float16", "int64"])
def test_both_sides_are_of_the_dtypes_of_lapack(infer, right):
    with pytest.raises(MetadataTypeError, match="x2 takes float32"):
        infer("solve", SQUARES, Meta.of((3,), right))


# --- pinv and matrix_rank


@given(stack=STACKS, sizes=st.tuples(st.integers(0, 4), st.integers(0, 4)), dtype=st.sampled_from(DTYPES))
def test_pinv(evaluate, stack, sizes, dtype):
    x = low_rank((*stack, *sizes), dtype, 2)
    y = evaluate("pinv", x)
    assert (y.shape, y.dtype) == ((*stack, *sizes[::-1]), x.dtype)
    assert_close((x @ y) @ x, x)
    for product in (x @ y, y @ x):
        assert_close(product, np.conj(np.swapaxes(product, -1, -2)))


@given(stack=STACKS, sizes=st.tuples(st.integers(0, 4), st.integers(0, 4)), dtype=st.sampled_from(DTYPES))
def test_matrix_rank(evaluate, assert_same, stack, sizes, dtype):
    x = low_rank((*stack, *sizes), dtype, 2)
    assert_same(evaluate("matrix_rank", x), np.full(stack, min(2, *sizes), "int64"))


SINGULAR_VALUES = np.stack([np.diag([8.0, 4, 2, 1]), np.diag([1.0, 0, 0, 0])])
TOLERANCES = [0, 0.25, 1, 1.0, np.array(0.2), np.array([0.2]), np.array([0.5, 0.1]), np.array([0.2], "float32")]


@each_case("rtol", TOLERANCES)
@each_case("dtype", DTYPES)
def test_singular_values_up_to_the_tolerance_are_zero(evaluate, assert_same, rtol, dtype):
    x = SINGULAR_VALUES.astype(dtype)
    tolerances = np.broadcast_to(np.asarray(rtol), 2)
    assert_same(evaluate("matrix_rank", x, rtol), np.linalg.matrix_rank(x, rtol=tolerances))
    expected = [np.linalg.pinv(m, rtol=t) for m, t in zip(x, tolerances, strict=True)]
    assert_close(evaluate("pinv", x, rtol), np.stack(expected))


def test_there_are_not_more_tolerances_than_matrices(infer):
    for name in ("pinv", "matrix_rank"):
        for shape in ((3,), (1, 2), (2, 1)):
            with pytest.raises(MetadataError, match="does not broadcast to a stack"):
                infer(name, SQUARES, Meta.of(shape, "float32"))


@each_case("name", ["pinv", "matrix_rank"])
@each_case(
    ("rtol", "message"),
    [
        (Meta.of((), "complex64"), "rtol takes real floating-point"),
        (Meta.of((), "int32"), "rtol takes real floating-point"),
        (complex, "not a Python complex"),
        (bool, "not a Python bool"),
    ],
)
def test_a_tolerance_is_real(infer, name, rtol, message):
    with pytest.raises(MetadataTypeError, match=message):
        infer(name, SQUARES, rtol)


@pytest.mark.parametrize("name", ["pinv", "matrix_rank"])
def test_there_is_one_tolerance(infer, name):
    with pytest.raises(MetadataError, match="1 to 2 operands, not 3"):
        infer(name, SQUARES, float, float)


# --- matrix_power


@given(shape=SQUARE, dtype=st.sampled_from(DTYPES), n=st.integers(-4, 9))
def test_matrix_power(evaluate, shape, dtype, n):
    x = (regular(shape, dtype) / 5).astype(dtype)
    assert_close(evaluate("matrix_power", x, n=n), np.linalg.matrix_power(x, n))


def test_the_power_of_a_half_precision_matrix(evaluate, infer, assert_same):
    x = np.array([[1, 2], [3, 4]], "float16")
    assert_same(evaluate("matrix_power", x, n=3), np.linalg.matrix_power(x, 3))
    assert_same(evaluate("matrix_power", x, n=0), np.eye(2, dtype="float16"))
    with pytest.raises(MetadataTypeError, match="cannot be inverted"):
        infer("matrix_power", Meta.of((2, 2), "float16"), n=-1)


@each_case(
    ("meta", "n", "kind", "message"),
    [
        (Meta.of((2, 2), "int64"), 2, MetadataTypeError, "floating-point"),
        (SQUARES, 2.0, MetadataTypeError, "expected an int, got float"),
        (SQUARES, True, MetadataTypeError, "got a bool"),
        (Meta.of((2, 3), "float32"), 2, MetadataError, "must be square"),
        (Meta.of((2,), "float32"), 2, MetadataError, "a matrix has two dimensions"),
    ],
)
def test_powers_that_do_not_exist_are_refused(infer, meta, n, kind, message):
    with pytest.raises(kind, match=message):
        infer("matrix_power", meta, n=n)


def test_a_huge_exponent_takes_few_products(evaluate, assert_same):
    assert_same(evaluate("matrix_power", np.diag([1.0, -1.0]), n=2**62), np.eye(2))
    op, x = find("matrix_power"), Meta.of((64, 64), "float64")
    assert op.estimate((x,), (x,), {"n": 2**62}) < 100 * op.estimate((x,), (x,), {"n": 1})


def test_the_work_of_solve_counts_the_columns_of_every_matrix():
    op = find("solve")

    def work(left, right):
        metas = Meta.of(left, "float64"), Meta.of(right, "float64")
        return op.estimate(metas, infer_once(op, metas, ()), {})

    assert work((50, 50), (50, 500)) > 5 * work((50, 50), (50, 1)) > 5 * 50**3 // 16
    assert work((50, 50), (10, 50, 1)) > 5 * work((50, 50), (50,))
    assert work((50, 50), (50, 0)) > 50**3 // 16  # the check whether the matrix is singular
    assert work((50, 50), (0, 50, 1)) == work((0, 50, 50), (0, 50, 1)) == 0


@pytest.mark.parametrize("run", ["here", "elsewhere"])
def test_a_singular_matrix_is_called_singular(evaluate, run):
    call, x = evaluate if run == "here" else evaluate_elsewhere, np.ones((2, 2))
    for name, operands, attributes in (("inv", (x,), {}), ("solve", (x, x), {}), ("matrix_power", (x,), {"n": -1})):
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            call(name, *operands, **attributes)
