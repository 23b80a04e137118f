"""Indices along split axes: the values are NumPy's, and only what is selected moves."""

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
        (slice(0, 2), td.split(0), 8),  # the second row, of the first device, to the second one
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
