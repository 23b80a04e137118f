"""Indices along split axes: the values are NumPy's, and only the selected or written elements move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensord as td

DEVICES = ["cpu:0", "sim:0", "sim:1", "sim:2", "sim:3"]
PLACEMENTS = [
    td.placement(["sim:1", "sim:0"]),
    td.placement(["sim:0", "sim:1", "sim:2"]),
    td.placement([["sim:0", "sim:1"], ["sim:2", "sim:3"]]),
]
ATOMS = [td.split(0), td.split(1), td.broadcast, td.partial("sum")]
BOUND = st.none() | st.integers(-8, 8)
SLICES = st.builds(slice, BOUND, BOUND, st.sampled_from([None, 1, 2, 3, -1, -2]))
FORMS = st.sampled_from(PLACEMENTS).flatmap(
    lambda where: st.tuples(st.just(where), st.tuples(*[st.sampled_from(ATOMS)] * len(where.grid)))
)


@pytest.fixture(scope="module")
def session():
    with td.connect("local", devices=DEVICES) as session:
        yield session
        session.sync()
        assert session.trace().verify() == []


@settings(max_examples=60)
@given(form=FORMS, shape=st.tuples(st.integers(1, 7), st.integers(1, 5)), data=st.data())
def test_indexing_is_numpys(session, form, shape, data):
    rows, columns = (data.draw(SLICES | st.integers(-size, size - 1)) for size in shape)
    index = data.draw(st.sampled_from([(rows,), (rows, columns), (..., columns), (None, rows), (rows, None, columns)]))
    array = np.arange(float(np.prod(shape))).reshape(shape)
    found = session.global_tensor(array, *form)[index]
    assert found.shape == array[index].shape
    np.testing.assert_array_equal(found.numpy(), array[index])


@pytest.mark.parametrize(
    ("index", "layout", "nbytes"),
    [
        (0, td.broadcast, 3 * 8),
        (slice(0, 2), td.split(0), 8),  # the second row, on the first device, goes to the second one
        (slice(2, 4), td.split(0), 8),
        (slice(1, 3), td.split(0), 0),
        (slice(0, 0), td.split(0), 0),
        ((slice(None), 0), td.split(0), 0),
    ],
)
def test_what_is_selected_moves_alone(session, index, layout, nbytes):
    where = td.placement(["sim:0", "sim:1"]) if index != 0 else td.placement(DEVICES[1:])
    x = session.global_tensor(np.ones((4, 1)), where, td.split(0))
    session.sync()
    explained = session.explain(lambda x: x[index], x)
    assert explained.bytes == nbytes
    assert x[index].layout == (layout,)


@st.composite
def writes(draw):
    """A shape, an index into it, and the shape of a value that broadcasts to the selection."""
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 5)))
    rows, columns = (draw(SLICES | st.integers(-size, size - 1)) for size in shape)
    index = draw(st.sampled_from([(rows,), (rows, columns), (..., columns), (None, rows), (rows, None, columns)]))
    selected = list(np.empty(shape)[index].shape)
    for axis in range(len(selected)):
        selected[axis] = draw(st.sampled_from([selected[axis], 1]))
    ones = draw(st.integers(0, 1)) * (1,)
    return shape, index, (*ones, *selected[draw(st.integers(0, len(selected))) :])


@settings(max_examples=80)
@given(form=FORMS, given=st.sampled_from(ATOMS), write=writes(), number=st.booleans())
def test_writing_is_numpys(session, form, given, write, number):
    shape, index, of_value = write
    where, layout = form
    expected = np.arange(float(np.prod(shape))).reshape(shape)
    value = 0.5 if number else -1 - np.arange(float(np.prod(of_value, dtype=int))).reshape(of_value)
    split = td.broadcast if getattr(given, "axis", 0) >= len(of_value) else given
    x = session.global_tensor(expected, where, layout)
    x[index] = value if number else session.global_tensor(value, where, (split,) * len(layout))
    expected[index] = value
    assert x.layout == layout
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize(
    ("index", "layout", "nbytes"),
    [
        (slice(0, 2), td.broadcast, 0),
        (slice(0, 2), td.split(0), 8),
        (slice(1, 3), td.split(0), 0),
        (0, td.broadcast, 0),
        (slice(0, 0), td.split(0), 0),
        (slice(0, 2), td.partial("sum"), 32),
    ],
)
def test_what_is_written_moves_alone(session, index, layout, nbytes):
    x = session.global_tensor(np.ones((4, 1)), td.placement(["sim:0", "sim:1"]), td.split(0))
    value = session.global_tensor(np.ones(np.empty((4, 1))[index].shape), x.placement, layout)

    def write(x, value):
        x[index] = value

    assert session.explain(write, x, value).bytes == nbytes


def test_a_tensor_is_written_with_itself_as_it_was(session):
    x = session.global_tensor(np.arange(7.0), td.placement(DEVICES[1:4]), td.split(0))
    x[::-1] = x
    assert x.tolist() == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    x[1:] = x[:-1]
    assert x.tolist() == [6.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


def test_a_value_that_does_not_fit_is_refused_and_nothing_is_written(session):
    x = session.global_tensor(np.zeros(6), td.placement(DEVICES[1:4]), td.split(0))
    with pytest.raises(td.MetadataError, match="do not broadcast"):
        x[1:4] = session.global_tensor(np.ones(2), x.placement)
    with pytest.raises(td.MetadataError, match="out of bounds"):
        x[6] = 1.0
    assert x.tolist() == [0.0] * 6


def test_more_than_one_device_holds_can_be_indexed(make_session):
    session = make_session(devices=["cpu:0", *({"name": name, "memory": 1 << 20} for name in DEVICES[1:4])])
    where = td.placement(DEVICES[1:4])
    x = session.global_tensor(np.arange(3 * 80_000.0), where, td.split(0))
    assert (x[-1].item(), x[5:7].tolist(), x[:1].layout) == (239_999.0, [5.0, 6.0], (td.split(0),))


def test_where_placement_is_strict_an_index_moves_nothing(make_session):
    session = make_session(devices=DEVICES, strict=True)
    x = session.global_tensor(np.arange(4.0), td.placement(DEVICES[1:3]), td.split(0))
    assert x[1:3].tolist() == [1.0, 2.0]
    with pytest.raises(td.MetadataError, match="strict"):
        x[0]
    x[1:3] = x[1:3]
    x[3] = 5.0
    with pytest.raises(td.MetadataError, match="strict"):
        x[2:] = x[:2]
    assert x.tolist() == [0.0, 1.0, 2.0, 5.0]
