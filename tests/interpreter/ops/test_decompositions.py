"""Decompositions: the product of the factors is the matrix, and the factors are NumPy's."""

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

DTYPES = ["float32", "float64", "complex64", "complex128"]
REAL = {"float32": "float32", "float64": "float64", "complex64": "float32", "complex128": "float64"}
MATRICES = hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4)
SQUARE = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4).map(lambda shape: (*shape, shape[-1]))
EVERY = ["cholesky", "qr", "svd", "svdvals", "eigh", "eigvalsh", "det", "slogdet", "inv", "pinv", "matrix_rank"]


def run(name, *operands, **attributes):
    """All results of an op, filled into arrays of the inferred metas."""
    op = find(name)
    frozen = op.freeze(attributes)
    metas = infer_once(op, tuple(Meta.of(x.shape, x.dtype) for x in operands), frozen)
    outputs = [np.full(m.shape, 7, m.dtype) for m in metas if m]
    with np.errstate(all="ignore"):
        op.bind(np, len(operands), dict(frozen))(*operands, *outputs)
    return outputs


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if dtype.startswith("c") else values).astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def positive(shape, dtype):
    x = random(shape, dtype)
    return (x @ adjoint(x) + np.eye(shape[-1])).astype(dtype)


def tolerance(dtype):
    return 1e-4 if REAL[dtype] == "float32" else 1e-11


def assert_close(actual, expected, dtype):
    assert (actual.shape, actual.dtype) == (expected.shape, np.dtype(dtype))
    np.testing.assert_allclose(actual, expected, rtol=tolerance(str(dtype)), atol=tolerance(str(dtype)))


def assert_orthonormal_columns(x):
    assert_close(adjoint(x) @ x, np.broadcast_to(np.eye(x.shape[-1]), (*x.shape[:-2], *x.shape[-1:] * 2)), x.dtype)


# --- cholesky


@given(shape=SQUARE, dtype=st.sampled_from(DTYPES))
def test_cholesky(shape, dtype):
    x = positive(shape, dtype)
    (lower,), (upper,) = run("cholesky", x), run("cholesky", x, upper=True)
    assert_close(lower, np.linalg.cholesky(x), dtype)
    assert_close(upper, adjoint(lower), dtype)
    assert_close(adjoint(upper) @ upper, x, dtype)
    np.testing.assert_array_equal(np.triu(lower, 1), 0)


@pytest.mark.parametrize("upper", [False, True])
def test_a_matrix_that_is_not_positive_definite_has_no_factor(upper):
    x = np.stack([np.eye(2), -np.eye(2)])
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        run("cholesky", x, upper=upper)


# --- qr


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@given(shape=MATRICES, dtype=st.sampled_from(DTYPES))
def test_qr(mode, shape, dtype):
    x = random(shape, dtype)
    q, r = run("qr", x, mode=mode)
    for actual, expected in zip((q, r), np.linalg.qr(x, mode=mode), strict=True):
        assert_close(actual, expected, dtype)
    assert_close(q @ r, x, dtype)
    assert_orthonormal_columns(q)
    np.testing.assert_array_equal(np.tril(r, -1), 0)


@pytest.mark.parametrize(("mode", "message"), [("r", "complete', got 'r'"), (1, "complete', got int")])
def test_other_modes_are_refused(infer, mode, message):
    with pytest.raises(MetadataError, match=message):
        infer("qr", Meta.of((2, 2), "float32"), mode=mode)


# --- svd


@given(shape=MATRICES, dtype=st.sampled_from(DTYPES), full_matrices=st.booleans())
def test_svd(shape, dtype, full_matrices):
    x = random(shape, dtype)
    u, s, vh = run("svd", x, full_matrices=full_matrices)
    expected = np.linalg.svd(x, full_matrices=full_matrices)
    assert [part.shape for part in (u, s, vh)] == [part.shape for part in expected]
    assert_close(s, expected.S, REAL[dtype])
    assert_orthonormal_columns(u)
    assert_orthonormal_columns(adjoint(vh))
    inner = s.shape[-1]
    assert_close(((u[..., :inner] * s[..., None, :]) @ vh[..., :inner, :]).astype(dtype), x, dtype)


def test_svd_is_full_by_default():
    u, s, vh = run("svd", np.ones((3, 2)))
    assert (u.shape, s.shape, vh.shape) == ((3, 3), (2,), (2, 2))


@given(shape=MATRICES, dtype=st.sampled_from(DTYPES))
def test_svdvals(shape, dtype):
    x = random(shape, dtype)
    (s,) = run("svdvals", x)
    assert_close(s, np.linalg.svdvals(x), REAL[dtype])
    assert np.all(np.diff(s, axis=-1) <= 0)


# --- eigh


@given(shape=SQUARE, dtype=st.sampled_from(DTYPES))
def test_eigh(shape, dtype):
    x = positive(shape, dtype)
    values, vectors = run("eigh", x)
    assert_close(values, np.linalg.eigvalsh(x), REAL[dtype])
    assert_orthonormal_columns(vectors)
    assert_close(((vectors * values[..., None, :]) @ adjoint(vectors)).astype(dtype), x, dtype)


@given(shape=SQUARE, dtype=st.sampled_from(DTYPES))
def test_eigvalsh(shape, dtype):
    x = positive(shape, dtype)
    assert_close(run("eigvalsh", x)[0], np.linalg.eigvalsh(x), REAL[dtype])


# --- all of them


@each_case("name", ["svd", "svdvals", "eigh", "eigvalsh", "pinv", "matrix_rank"])
@each_case("value", [np.nan, np.inf])
def test_what_lapack_would_get_wrong_is_refused(name, value):
    x = np.array([[value, 1], [1, 2]])  # with NaN, LAPACK may answer that the eigenvalues are -1.41 and 1.41
    with pytest.raises(np.linalg.LinAlgError, match="a NaN or an infinity"):
        run(name, x)


@each_case("name", EVERY)
@each_case("dtype", ["float16", "int32", "bool"])
def test_lapack_takes_four_dtypes(infer, name, dtype):
    with pytest.raises(MetadataTypeError, match="takes float32, float64, complex64 and complex128"):
        infer(name, Meta.of((2, 2), dtype))


@each_case("name", EVERY)
def test_a_vector_is_no_matrix(infer, name):
    with pytest.raises(MetadataError, match="a matrix has two dimensions"):
        infer(name, Meta.of((2,), "float32"))


@each_case("name", ["cholesky", "eigh", "eigvalsh", "det", "slogdet", "inv"])
def test_only_square_matrices_have_them(infer, name):
    with pytest.raises(MetadataError, match="must be square"):
        infer(name, Meta.of((3, 3, 2), "float32"))


@each_case("name", EVERY)
def test_their_work_grows_with_the_third_power(name):
    op = find(name)

    def work(*shape):
        meta = Meta.of(shape, "float64")
        attributes = dict(op.freeze({}))
        return op.estimate((meta,), op.infer((meta,), attributes), attributes)

    assert 7.5 < work(4096, 4096) / work(2048, 2048) < 8.1
    assert work(10, 100, 100) == pytest.approx(10 * work(100, 100), rel=1e-3)
    assert work(1000, 1, 1) >= 1_000_000
    assert work(0, 3, 3) == 0


@pytest.mark.parametrize(("name", "attributes"), [("svd", {"full_matrices": True}), ("qr", {"mode": "complete"})])
def test_square_factors_of_tall_matrices_are_work(infer, name, attributes):
    tall, op = Meta.of((10_000, 2), "float64"), find(name)
    outputs = infer(name, tall, **attributes)
    assert op.estimate((tall,), outputs, attributes) > outputs[0].size


def test_factors_that_no_memory_could_hold_are_refused(infer):
    with pytest.raises(MetadataError, match="too large"):
        infer("svd", Meta.of((2**40, 1), "float32"))
