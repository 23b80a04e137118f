"""Shares: cut as NumPy cuts, covering each element once, nested where both dimensions of a grid split one axis."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.layouts.layout import BROADCAST, Partial, Split
from tensord.interpreter.layouts.shares import PartShare, shares

SHAPES = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)
GRIDS = st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple)


@given(st.integers(0, 12), st.integers(1, 5))
def test_one_split_is_numpys(size, parts):
    array = np.arange(size * 2).reshape(size, 2)
    found = [array[share.slices] for share in shares(array.shape, (parts,), (Split(0),))]
    assert [part.tolist() for part in found] == [part.tolist() for part in np.array_split(array, parts)]


@given(SHAPES, GRIDS, st.data())
def test_two_splits_are_numpys_one_after_the_other(shape, grid, data):
    layout = tuple(Split(data.draw(st.integers(0, len(shape) - 1))) for _ in grid)
    array = np.arange(np.prod(shape)).reshape(shape)
    expected = [array]
    for parts, atom in zip(grid, layout, strict=True):
        expected = [piece for part in expected for piece in np.array_split(part, parts, atom.axis)]
    found = shares(shape, grid, layout)
    assert [array[share.slices].tolist() for share in found] == [part.tolist() for part in expected]
    assert [share.shape for share in found] == [part.shape for part in expected]


def test_of_broadcast_and_partial_values_each_device_has_all():
    assert shares((3, 4), (2,), (BROADCAST,)) == (PartShare((0, 0), (3, 4)),) * 2
    assert (
        shares((3, 4), (2, 2), (Partial("sum"), Split(1))) == (PartShare((0, 0), (3, 2)), PartShare((0, 2), (3, 2))) * 2
    )


def test_a_value_without_axes_has_shares_too():
    assert shares((), (3,), (BROADCAST,)) == (PartShare((), ()),) * 3
