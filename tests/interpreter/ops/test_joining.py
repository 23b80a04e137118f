"""concat, stack and setitem against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError, MetadataIndexError, MetadataTypeError
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.kinds import FLOATING, INTEGER, UNSIGNED
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

# Dtypes that promote together: uint64 and signed integers have no common one.
MIXED = [{"bool"}, INTEGER - {"uint64"}, UNSIGNED, FLOATING]
DTYPE_LISTS = st.sampled_from(MIXED).flatmap(
    lambda dtypes: st.lists(st.sampled_from(sorted(dtypes)), min_size=1, max_size=4)
)


@given(dtypes=DTYPE_LISTS, data=st.data())
def test_concat(evaluate, make, assert_same, dtypes, data):
    shape = list(data.draw(hnp.array_shapes(max_dims=3, min_side=0, max_side=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    arrays = []
    for seed, dtype in enumerate(dtypes):
        shape[axis] = data.draw(st.integers(0, 3))
        arrays.append(make(tuple(shape), dtype, seed))
    assert_same(evaluate("concat", *arrays, axis=axis), np.concatenate(arrays, axis))


@given(dtypes=DTYPE_LISTS, data=st.data())
def test_concat_without_an_axis_takes_any_shapes(evaluate, make, assert_same, dtypes, data):
    shapes = [data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)) for _ in dtypes]
    arrays = [make(shape, dtype, seed).T for seed, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))]
    assert_same(evaluate("concat", *arrays, axis=None), np.concatenate([x.ravel() for x in arrays]))


@given(dtypes=DTYPE_LISTS, data=st.data())
def test_stack(evaluate, make, assert_same, dtypes, data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    arrays = [make(shape, dtype, seed) for seed, dtype in enumerate(dtypes)]
    assert_same(evaluate("stack", *arrays, axis=axis), np.stack(arrays, axis))


@each_case("name", ["concat", "stack"])
@each_case("other", [(3, 3), (2, 3, 1), (4,)])
def test_shapes_that_differ_elsewhere_are_refused(infer, name, other):
    with pytest.raises(MetadataError, match="differ"):
        infer(name, Meta.of((2, 3), "int8"), Meta.of(other, "int8"), axis=1)


@each_case("name", ["concat", "stack"])
@each_case("dtype", ["bool", "float32", "uint64"])
def test_kinds_do_not_mix(infer, name, dtype):
    with pytest.raises(MetadataTypeError, match=r"different kinds|no common integer dtype"):
        infer(name, Meta.of((2,), "int8"), Meta.of((2,), dtype))


@each_case(("name", "axis"), [("concat", 1), ("concat", -2), ("stack", 2), ("stack", -3)])
def test_an_axis_that_does_not_exist_is_an_index_error(infer, name, axis):
    with pytest.raises(MetadataIndexError, match=f"axis {axis} is out of bounds"):
        infer(name, Meta.of((2,), "int8"), axis=axis)


def test_a_stack_needs_an_axis(infer):
    with pytest.raises(MetadataTypeError, match="expected an int, got NoneType"):
        infer("stack", Meta.of((2,), "int8"), axis=None)


@pytest.mark.parametrize("axis", [0, None])
def test_a_concatenation_may_be_larger_than_any_memory(infer, axis):
    x = Meta.of((2**62,), "int8")
    with pytest.raises(MetadataError, match="too large"):
        infer("concat", x, x, axis=axis)


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_nothing_does_not_join(infer, name):
    with pytest.raises(MetadataError, match="takes 1 or more operands, not 0"):
        infer(name)


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_scalars_do_not_join(infer, name):
    with pytest.raises(MetadataTypeError, match="expected a tensor"):
        infer(name, Meta.of((2,), "int8"), int)


@given(data=st.data())
def test_setitem(evaluate, make, assert_same, data):
    x = make(data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)), "float32", 0)
    index = data.draw(hnp.basic_indices(x.shape, allow_newaxis=True))
    shape = data.draw(hnp.broadcastable_shapes(np.shape(x[index]), max_dims=np.ndim(x[index]), max_side=4))
    fits = np.broadcast_shapes(shape, np.shape(x[index])) == np.shape(x[index])
    value = make(shape, data.draw(st.sampled_from(["float64", "int8", "bool"])), 1)
    if not fits:
        with pytest.raises(MetadataError, match="does not broadcast"):
            evaluate("setitem", x, value, index=index)
        return
    expected = x.copy()
    expected[index] = value
    assert_same(evaluate("setitem", x, value, index=index), expected)


def test_setitem_into_its_own_memory_only_assigns():
    op = find("setitem")
    x = np.arange(6.0).reshape(2, 3)
    out = np.ndarray(x.shape, x.dtype, buffer=x.data)
    op.bind(np, 2, dict(op.freeze({"index": (0, slice(None, None, -1))})))(x, np.array([7.0, 8.0, 9.0]), out)
    assert x.tolist() == [[9, 8, 7], [3, 4, 5]]


def test_setitem_leaves_its_input_alone_otherwise(evaluate):
    x = np.zeros((2, 2))
    assert evaluate("setitem", x, 1, index=0).tolist() == [[1, 1], [0, 0]]
    assert not x.any()


def test_a_value_may_have_leading_axes_of_size_one(evaluate):
    assert evaluate("setitem", np.zeros(2), np.ones((1, 1, 2)), index=...).tolist() == [1, 1]
    assert evaluate("setitem", np.zeros(2), np.ones((1, 1)), index=0).tolist() == [1, 0]
    mask = np.array([True, False, True])
    index = ("tensor",)
    assert evaluate("advanced_setitem", np.zeros(3), np.ones((1, 2)), mask, index=index).tolist() == [1, 0, 1]
    with pytest.raises(MetadataError, match="does not broadcast"):
        evaluate("advanced_setitem", np.zeros(3), np.ones((2, 2)), mask, index=index)


@each_case(
    ("dtype", "value", "taken"),
    [
        ("int8", int, True),
        ("uint8", int, True),
        ("float16", float, True),
        ("float32", bool, True),
        ("bool", int, False),
        ("int64", float, False),
        ("float64", complex, False),
        ("int8", Meta.of((), "int64"), True),
        ("uint8", Meta.of((), "int8"), False),
        ("int64", Meta.of((), "float32"), False),
    ],
)
def test_a_value_casts_within_its_kind(infer, dtype, value, taken):
    x = Meta.of((2,), dtype)
    if taken:
        assert infer("setitem", x, value, index=0) == (x,)
    else:
        with pytest.raises(MetadataError, match=f"cannot be assigned to {dtype}"):
            infer("setitem", x, value, index=0)
