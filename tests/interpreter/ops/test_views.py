"""View ops: the layout, the copying kernel and NumPy say the same."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tensord.interpreter.errors import MetadataError, MetadataIndexError, MetadataTypeError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


@st.composite
def strided(draw, shapes=SHAPES):
    """An array of that shape in some layout of a larger storage, and the storage."""
    shape = draw(shapes)
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 2, -1])) for _ in shape]
    storage = np.arange(np.prod([abs(step) * shape[a] for step, a in zip(steps, order, strict=True)], dtype=int))
    packed = storage.reshape([abs(step) * shape[a] for step, a in zip(steps, order, strict=True)])
    index: Any = (*(slice(None, None, step) for step in steps), ...)
    sliced = packed[index]
    return sliced.transpose(np.argsort(np.array(order, dtype=int))), storage


def offset_of(view, storage):
    return view.__array_interface__["data"][0] - storage.__array_interface__["data"][0] if view.size else 0


def through_layout(name, x, storage, attributes):
    """The op's result read through its layout; None if the op has to copy."""
    op = find(name)
    frozen = op.freeze(attributes)
    meta = Meta.of(x.shape, x.dtype)
    (out,) = infer_once(op, (meta,), frozen)
    assert out
    assert op.view
    layout = op.view(meta, (offset_of(x, storage), x.strides), out, dict(frozen))
    if layout is None:
        return None
    offset, strides = layout
    assert len(strides) == out.ndim
    assert 0 <= offset <= storage.nbytes
    start = storage.view(np.uint8)[offset : offset + 8].view(x.dtype) if out.size else storage
    return as_strided(start, out.shape, strides)


def check(name, x, storage, attributes, expected, evaluate, assert_same):
    assert_same(evaluate(name, x, **attributes), expected)
    view = through_layout(name, x, storage, attributes)
    assert view is not None
    assert_same(view, expected)


@given(case=strided(), data=st.data())
def test_reshape(evaluate, assert_same, case, data):
    x, storage = case
    shape = data.draw(reshapes_of(x.size))
    expected = x.reshape(shape)
    assert_same(evaluate("reshape", x, shape=shape), expected)
    view = through_layout("reshape", x, storage, {"shape": shape})
    if view is None:
        assert not np.shares_memory(x, expected)
    else:
        assert_same(view, expected)
        assert x.size == 0 or np.shares_memory(x, expected)


@given(case=strided(), data=st.data())
def test_reshape_fails_rather_than_copies_if_told_so(evaluate, assert_same, case, data):
    x, storage = case
    shape = data.draw(reshapes_of(x.size))
    if through_layout("reshape", x, storage, {"shape": shape}) is None:
        with pytest.raises(ValueError, match="without a copy"):
            through_layout("reshape", x, storage, {"shape": shape, "copy": False})
    else:
        assert_same(through_layout("reshape", x, storage, {"shape": shape, "copy": False}), x.reshape(shape))
    assert_same(evaluate("reshape", x, shape=shape, copy=True), x.reshape(shape))


@st.composite
def reshapes_of(draw, size):
    """Factors of the size in some order, sometimes with ones and a -1."""
    factors, rest = [], size
    while rest > 1 and draw(st.booleans()):
        factor = draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
        factors.append(factor)
        rest //= factor
    shape = [*factors, rest]
    if draw(st.booleans()):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    if size and draw(st.booleans()):
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    return tuple(shape)


@pytest.mark.parametrize("name", ["permute_dims", "transpose"])
@given(case=strided(), data=st.data())
def test_permutations(name, evaluate, assert_same, case, data):
    x, storage = case
    axes = tuple(a - data.draw(st.sampled_from([0, x.ndim])) for a in data.draw(st.permutations(range(x.ndim))))
    check(name, x, storage, {"axes": axes}, np.transpose(x, axes), evaluate, assert_same)


@given(case=strided(), data=st.data())
def test_moveaxis(evaluate, assert_same, case, data):
    x, storage = case
    count = data.draw(st.integers(0, x.ndim))
    source, destination = (data.draw(hnp.valid_tuple_axes(x.ndim, min_size=count, max_size=count)) for _ in range(2))
    if count == 1 and data.draw(st.booleans()):
        (source,), (destination,) = source, destination
    attributes = {"source": source, "destination": destination}
    check("moveaxis", x, storage, attributes, np.moveaxis(x, source, destination), evaluate, assert_same)


@given(case=strided())
def test_transpose_reverses_by_default(evaluate, assert_same, case):
    x, storage = case
    check("transpose", x, storage, {}, x.T, evaluate, assert_same)


@given(case=strided(hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=3)))
def test_matrix_transpose(evaluate, assert_same, case):
    x, storage = case
    check("matrix_transpose", x, storage, {}, np.swapaxes(x, -1, -2), evaluate, assert_same)


@given(case=strided(), data=st.data())
def test_broadcast_to(evaluate, assert_same, case, data):
    x, storage = case
    kept = tuple(data.draw(st.integers(0, 3)) if n == 1 else n for n in x.shape)
    shape = (*data.draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)), *kept)
    check("broadcast_to", x, storage, {"shape": shape}, np.broadcast_to(x, shape), evaluate, assert_same)


@given(case=strided(), data=st.data())
def test_expand_dims_and_back(evaluate, assert_same, case, data):
    x, storage = case
    count = data.draw(st.integers(1, 2))
    axes = data.draw(hnp.valid_tuple_axes(x.ndim + count, min_size=count, max_size=count))
    axis = axes if data.draw(st.booleans()) or count == 2 else axes[0]
    check("expand_dims", x, storage, {"axis": axis}, np.expand_dims(x, axis), evaluate, assert_same)
    wide = np.expand_dims(x, axis)
    check("squeeze", wide, storage, {"axis": axis}, np.squeeze(wide, axis), evaluate, assert_same)
    check("squeeze", wide, storage, {}, np.squeeze(wide), evaluate, assert_same)


@given(case=strided(), data=st.data())
def test_flip(evaluate, assert_same, case, data):
    x, storage = case
    axis = data.draw(st.none() | hnp.valid_tuple_axes(x.ndim)) if x.ndim else None
    check("flip", x, storage, {"axis": axis}, np.flip(x, axis), evaluate, assert_same)


@given(case=strided(), data=st.data())
def test_getitem(evaluate, assert_same, case, data):
    x, storage = case
    index = data.draw(hnp.basic_indices(x.shape, allow_newaxis=True))
    check("getitem", x, storage, {"index": index}, np.asarray(x[index]), evaluate, assert_same)


@each_case(
    ("name", "attributes"),
    [
        ("permute_dims", {"axes": (0,)}),
        ("permute_dims", {"axes": (0, 0)}),
        ("transpose", {"axes": (0, 2)}),
        ("moveaxis", {"source": (0, 1), "destination": 0}),
        ("moveaxis", {"source": (0, 0), "destination": (0, 1)}),
        ("moveaxis", {"source": (0, 1), "destination": (0, -2)}),
        ("broadcast_to", {"shape": (3, 3)}),
        ("broadcast_to", {"shape": (3,)}),
        ("expand_dims", {"axis": 3}),
        ("expand_dims", {"axis": (0, 0)}),
        ("squeeze", {"axis": 0}),
        ("flip", {"axis": 2}),
        ("getitem", {"index": 2}),
        ("getitem", {"index": (0, 0, 0)}),
        ("reshape", {"shape": (-1, 4)}),
        ("reshape", {"shape": (-1, 0)}),
    ],
)
def test_what_does_not_fit_is_refused(infer, name, attributes):
    with pytest.raises(MetadataError, match=f"^{name}\\(float32\\[2, 3\\]\\): "):
        infer(name, Meta.of((2, 3), "float32"), **attributes)


@each_case(
    ("name", "attributes"),
    [
        ("permute_dims", {"axes": (0, 2)}),
        ("moveaxis", {"source": -3, "destination": 0}),
        ("moveaxis", {"source": 0, "destination": 2}),
        ("expand_dims", {"axis": -4}),
        ("squeeze", {"axis": -3}),
        ("flip", {"axis": (0, 2)}),
    ],
)
def test_an_axis_that_does_not_exist_is_an_index_error(infer, name, attributes):
    with pytest.raises(MetadataIndexError, match=r"is out of bounds for [23] dimensions"):
        infer(name, Meta.of((2, 3), "float32"), **attributes)


@pytest.mark.parametrize("copy", [0, "yes"])
def test_copy_is_a_bool_or_none(infer, copy):
    with pytest.raises(MetadataTypeError, match="expected a bool"):
        infer("reshape", Meta.of((2, 3), "float32"), shape=(6,), copy=copy)


def test_shapes_may_be_larger_than_any_memory(infer):
    x = Meta.of((2**31, 2**28), "float32")
    assert infer("reshape", x, shape=(-1,)) == (Meta.of((2**59,), "float32"),)
    assert infer("moveaxis", x, source=0, destination=1) == (Meta.of((2**28, 2**31), "float32"),)
    with pytest.raises(MetadataError, match="too large"):
        infer("broadcast_to", x, shape=(2**40, 2**31, 2**28))


def test_a_vector_is_no_matrix(infer):
    with pytest.raises(MetadataError, match="a matrix has two dimensions"):
        infer("matrix_transpose", Meta.of((3,), "float32"))
