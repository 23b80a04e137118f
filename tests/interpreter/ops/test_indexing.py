"""Indexing by tensors whose positions in the index are apart, against NumPy, on array modules of either kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from .elsewhere import evaluate_elsewhere

X = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
POSITIONS = np.array([1, 0, -1])
MASK = np.array([[True, False, True, False], [False, False, False, False], [False, True, False, False]])
ALL = slice(None)
INDICES = {
    "nothing in between": (ALL, POSITIONS, 0),
    "a slice in between": (ALL, POSITIONS, ALL, POSITIONS),
    "a new axis in between": (ALL, POSITIONS, None, -1),
    "an ellipsis for one axis": (ALL, POSITIONS, ..., 0),
    "an ellipsis for none": (ALL, POSITIONS, ..., 0, POSITIONS),
    "an ellipsis for none behind an int": (ALL, ALL, 0, ..., POSITIONS),
    "an ellipsis for none behind a mask": (ALL, MASK, ..., POSITIONS),
    "apart, and steps": (slice(None, None, -2), POSITIONS, ..., POSITIONS[:, None], POSITIONS),
}
indices = pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)


def named(index: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[np.ndarray]]:
    """The index as ops take it, and the tensors in it."""
    entries = tuple("tensor" if isinstance(entry, np.ndarray) else entry for entry in index)
    return entries, [entry for entry in index if isinstance(entry, np.ndarray)]


@indices
def test_reading(evaluate, assert_same, index):
    entries, tensors = named(index)
    masks = any(tensor.dtype == np.bool_ for tensor in tensors)
    for run in () if masks else (evaluate, evaluate_elsewhere):
        assert_same(run("advanced_getitem", X, *tensors, index=entries), X[index])


@indices
def test_writing(evaluate, assert_same, index):
    entries, tensors = named(index)
    value = -np.arange(X[index].size).reshape(X[index].shape)
    expected = X.copy()
    expected[index] = value
    for run in (evaluate, evaluate_elsewhere):
        assert_same(run("advanced_setitem", X, value, *tensors, index=entries), expected)


SEVENTH = np.array([7])
EMPTY_SELECTIONS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "take": ((np.zeros((3, 0)), SEVENTH), {"axis": 0}),
    "take_along_axis": ((np.zeros((3, 0)), SEVENTH[:, None]), {"axis": 0}),
    "advanced_getitem": ((np.zeros((3, 0)), SEVENTH), {"index": ("tensor",)}),
    "advanced_setitem": ((np.zeros(0), 1.0, SEVENTH), {"index": ("tensor",)}),
    "embedding": ((SEVENTH, np.zeros((3, 0), "float32")), {}),
    "embedding_grad": ((np.zeros((1, 0), "float32"), SEVENTH), {"num_embeddings": 3}),
}


@each_case("name", EMPTY_SELECTIONS)
def test_a_position_out_of_bounds_is_reported_where_nothing_is_selected(evaluate, name):
    """Like NumPy: a wrong position is an error even if the other axes are empty."""
    operands, attributes = EMPTY_SELECTIONS[name]
    with pytest.raises(IndexError, match="7"):
        evaluate(name, *operands, **attributes)


@each_case("name", EMPTY_SELECTIONS)
def test_positions_in_bounds_select_nothing_of_empty_axes(evaluate, name):
    operands, attributes = EMPTY_SELECTIONS[name]
    within = tuple(each[:0] if name.endswith("setitem") and each is SEVENTH else each * 0 for each in operands)
    assert evaluate(name, *within, **attributes).size == 0


def test_nothing_of_a_vast_axis_costs_nothing(evaluate):
    """An axis of any size may stand beside an empty one; no kernel may make positions along it."""
    vast = np.broadcast_to(np.zeros((0, 1), "int8"), (0, 1 << 40))
    assert evaluate("take_along_axis", vast, vast, axis=0).shape == (0, 1 << 40)
    assert evaluate("take", vast, np.zeros(0, "int64"), axis=0).shape == (0, 1 << 40)
    assert evaluate("advanced_getitem", vast, np.zeros(0, "int64"), index=("tensor",)).shape == (0, 1 << 40)


@each_case(
    ("index", "arrays"),
    [
        (("tensor",), [[1, 1, -1, 1]]),
        ((("slice", None, None, None), "tensor"), [[[0, 0], [2, -1]]]),
        (("tensor", ("slice", None, None, None), "tensor"), [[1, 1, 0], [3]]),
        ((None, "tensor", 0), [[1, 0, 1]]),
        (("tensor", "tensor"), [[True, False], [1, 1, 2, 1]]),
    ],
)
@each_case("axes", [4, 3, 2, 1, 0])
def test_of_several_values_for_one_element_the_last_one_stays_whatever_the_order_of_writing(index, arrays, axes):
    selectors = [np.array(array) for array in arrays]
    rest = iter(selectors)
    native = tuple(next(rest) if e == "tensor" else ALL if isinstance(e, tuple) else e for e in index)
    expected, shape = X.copy(), X[native].shape
    shape = shape[max(len(shape) - axes, 0) :]
    value = np.arange(math.prod(shape)).reshape(shape)
    expected[native] = value
    np.testing.assert_array_equal(evaluate_elsewhere("advanced_setitem", X, value, *selectors, index=index), expected)


@each_case(("room", "count"), [(1 << 10, 900), (1 << 21, 200), (1 << 21, 900)])
def test_the_last_of_many_values_stays_however_they_are_found(room, count):
    """The last ones are found by a table, by comparing each with each, or by a sort."""
    rng = np.random.default_rng(room + count)
    x, positions = np.zeros(room, np.int16), rng.integers(-room, room, count // 3).repeat(3)
    rng.shuffle(positions)
    value, expected = np.arange(count // 3 * 3, dtype=np.int16), x.copy()
    expected[positions] = value
    found = evaluate_elsewhere("advanced_setitem", x, value, positions, index=("tensor",))
    np.testing.assert_array_equal(found, expected)


@each_case(
    ("room", "count", "value", "late"),
    [
        (1 << 21, 900, (900,), False),
        (1 << 21, 900, (), True),
        (1 << 21, 900, (1,), True),
        (1 << 21, 200, (200,), True),
        (1 << 20, 900, (900,), True),
    ],
)
def test_only_a_sort_of_many_positions_waits_for_the_device(room, count, value, late):
    metas = Meta.of((room,), "int16"), Meta.of(value, "int16"), Meta.of((count,), "int64")
    assert find("advanced_setitem").reports_late(metas, {"index": ("tensor",)}) == late


def test_the_last_uint64_counts_from_the_end_as_in_numpy():
    x, last = np.arange(5), np.array([2**64 - 1], np.uint64)
    assert evaluate_elsewhere("advanced_getitem", x, last, index=("tensor",)) == [4]


@each_case(("dtype", "length"), [("int8", 128), ("int8", 200), ("int16", 40_000), ("int32", 200)])
def test_a_position_from_the_end_is_right_on_an_axis_whose_length_its_dtype_cannot_hold(dtype, length):
    x, positions = np.zeros((2, length)), np.array([-1, -3], dtype)
    found = evaluate_elsewhere("advanced_setitem", x, np.array([5.0, 6.0]), positions, index=("...", "tensor"))
    x[..., [-1, -3]] = 5, 6
    np.testing.assert_array_equal(found, x)


@each_case(
    ("index", "mask", "value", "refused"),
    [
        (("tensor",), np.zeros(4, bool), np.ones(4), True),
        (("tensor",), np.zeros(4, bool), np.ones(1), False),
        (("tensor",), np.zeros(4, bool), 1.0, False),
        (("tensor",), np.array([True, False, False, True]), np.ones(2), False),
    ],
)
def test_several_values_are_refused_where_a_mask_selects_nothing(evaluate, assert_same, index, mask, value, refused):
    x = np.zeros(4)
    for run in (evaluate, evaluate_elsewhere):
        if refused:
            with pytest.raises(ValueError, match=r"do not broadcast|boolean"):
                run("advanced_setitem", x, value, mask, index=index)
        else:
            expected = x.copy()
            expected[mask] = value
            assert_same(run("advanced_setitem", x, value, mask, index=index), expected)


@each_case("several", [(3, 5), (5,), (1, 5), (2, 1)])
def test_values_have_to_fit_the_nothing_that_a_mask_selects(several):
    x, nothing, index = np.zeros((3, 4)), np.zeros(4, bool), (("slice", None, None, None), "tensor")
    with pytest.raises(ValueError, match="not broadcast"):
        evaluate_elsewhere("advanced_setitem", x, np.ones(several), nothing, index=index)
    assert not evaluate_elsewhere("advanced_setitem", x, np.ones((3, 1)), nothing, index=index).any()


@each_case("index", [(ALL,), (...,), (), (slice(0, 2), ..., None), (slice(None, None, -1), None)])
def test_writing_all(evaluate, assert_same, index):
    expected = np.empty((2, 3), np.int8)
    value = np.arange(6, dtype=np.int8).reshape(expected[index].shape)
    expected[index] = value
    for run in (evaluate, evaluate_elsewhere):
        assert_same(run("overwrite", value, index=index, shape=(2, 3), dtype="int8"), expected)
        assert_same(run("overwrite", 7, index=index, shape=(2, 3), dtype="int8"), np.full((2, 3), 7, np.int8))


@each_case(
    ("value", "index", "error", "match"),
    [
        (1, (0,), ValueError, "does not select all of a tensor"),
        (1, (2,), ValueError, "does not select all of a tensor"),
        (np.ones((3, 2), np.int8), (...,), ValueError, "do not broadcast"),
        (np.ones((1, 2, 3)), (...,), TypeError, "float64 values cannot be assigned to int8"),
        (1.5, (...,), TypeError, "float values cannot be assigned to int8"),
        (300, (...,), OverflowError, "300 does not fit int8"),
    ],
)
def test_what_does_not_write_all_is_refused(session, value, index, error, match):
    operand = session.asarray(value) if isinstance(value, np.ndarray) else value
    with pytest.raises(error, match=match):
        session.call("overwrite", [operand], {"index": index, "shape": (2, 3), "dtype": "int8"})
