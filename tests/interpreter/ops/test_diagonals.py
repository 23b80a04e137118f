"""Traces and diagonals against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tensord.interpreter.errors import MetadataError, MetadataTypeError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from .test_norms import MATRICES, assert_close

OFFSETS = st.integers(-6, 6) | st.sampled_from([-(2**63), 2**63 - 1])


def diagonal(x, offset):
    return np.diagonal(x, min(max(offset, -9), 9), -2, -1)


@given(shape=MATRICES, dtype=st.sampled_from(sorted(DTYPES)), offset=OFFSETS)
def test_trace(evaluate, make, assert_same, shape, dtype, offset):
    x = make(shape, dtype, 0)
    with np.errstate(all="ignore"):
        expected = np.sum(diagonal(x, offset), axis=-1)
    actual = evaluate("trace", x, offset=offset)
    if DTYPES[dtype].kind in "biu":
        assert_same(actual, expected)
    else:
        assert_close(actual, expected, dtype)


@each_case(("dtype", "wide"), [("int8", "int64"), ("uint8", "uint64"), ("bool", "int64")])
def test_the_trace_of_integers_is_of_64_bits(dtype, wide, evaluate, assert_same):
    assert_same(evaluate("trace", np.eye(2, dtype=dtype)), np.array(2, wide))


@each_case("wanted", ["int16", "uint64", "float32", "complex64"])
@each_case("dtype", ["int8", "float16"])
def test_the_trace_is_computed_in_the_dtype_asked_for(dtype, wanted, evaluate, assert_same):
    assert_same(evaluate("trace", np.diag(np.full(3, 100, dtype)), dtype=wanted), np.array(300, wanted))


def test_the_trace_of_complex_matrices_has_an_imaginary_part(infer):
    with pytest.raises(MetadataTypeError, match="no imaginary part"):
        infer("trace", Meta.of((2, 2), "complex64"), dtype="float32")


@st.composite
def strided(draw):
    """Matrices in some layout of a larger storage, and the storage."""
    shape = draw(MATRICES)
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 2, -1])) for _ in shape]
    sizes = [abs(step) * shape[a] for step, a in zip(steps, order, strict=True)]
    storage = np.arange(np.prod(sizes, dtype=int))
    index: Any = (*(slice(None, None, step) for step in steps), ...)
    sliced = storage.reshape(sizes)[index]
    return sliced.transpose(np.argsort(np.array(order, dtype=int))), storage


@given(case=strided(), offset=OFFSETS)
def test_diagonal_as_a_view_and_as_a_copy(evaluate, assert_same, case, offset):
    x, storage = case
    expected = diagonal(x, offset)
    assert_same(evaluate("diagonal", x, offset=offset), expected)
    op, meta = find("diagonal"), Meta.of(x.shape, x.dtype)
    (out,) = infer_once(op, (meta,), op.freeze({"offset": offset}))
    assert out
    assert op.view
    base = storage.__array_interface__["data"][0]
    start = x.__array_interface__["data"][0] - base if x.size else 0
    layout = op.view(meta, (start, x.strides), out, {"offset": offset})
    assert layout
    begin, strides = layout
    assert 0 <= begin <= storage.nbytes
    first = storage.view(np.uint8)[begin : begin + 8].view(x.dtype) if out.size else storage
    assert_same(as_strided(first, out.shape, strides), expected)


@each_case("dtype", sorted(DTYPES))
def test_every_dtype_has_a_diagonal(dtype, evaluate, make, assert_same):
    x = make((2, 3, 3), dtype, 0)
    assert_same(evaluate("diagonal", x, offset=-1), np.diagonal(x, -1, -2, -1))


@each_case("name", ["diagonal", "trace"])
def test_a_vector_is_no_matrix(infer, name):
    with pytest.raises(MetadataError, match="a matrix has two dimensions"):
        infer(name, Meta.of((3,), "float32"))


@pytest.mark.parametrize("name", ["diagonal", "trace"])
def test_an_offset_is_an_int(infer, name):
    with pytest.raises(MetadataTypeError, match="expected an int, got float"):
        infer(name, Meta.of((3, 3), "float32"), offset=1.0)


@each_case(("name", "attributes", "work"), [("diagonal", {}, 100), ("trace", {}, 100), ("trace", {"offset": -90}, 10)])
def test_work_is_the_elements_of_the_diagonal(name, attributes, work):
    x, op = Meta.of((100, 100), "float64"), find(name)
    frozen = dict(op.freeze(attributes))
    assert op.estimate((x,), op.infer((x,), frozen), frozen) == work
