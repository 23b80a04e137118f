"""Layouts: those that fit a tensor on a grid, and their spelling."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import MetadataError, MetadataIndexError, MetadataTypeError
from tensord.interpreter.layouts.layout import BROADCAST, Partial, Split, layout_of, user_notation
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

MATRIX = Meta.of((4, 6), "float32")


def test_an_atom_is_a_layout_on_a_grid_of_one_dimension():
    assert layout_of(td.split(1), 1, MATRIX) == (Split(1),)
    assert layout_of(td.broadcast, 1, MATRIX) == (BROADCAST,)
    assert layout_of([td.partial("max")], 1, MATRIX) == (Partial("max"),)


def test_a_negative_axis_counts_from_the_back():
    assert layout_of((td.split(-2), td.split(-1)), 2, MATRIX) == (Split(0), Split(1))


@each_case(
    ("layout", "text"),
    [
        ((Split(0),), "split(0)"),
        ((BROADCAST,), "broadcast"),
        ((Partial("sum"),), "partial(sum)"),
        ((Split(0), BROADCAST), "(split(0), broadcast)"),
    ],
)
def test_a_layout_is_spelt_as_it_is_written(layout, text):
    assert user_notation(layout) == text


@each_case(
    ("given", "grid_dims", "error"),
    [
        (Split(2), 1, MetadataIndexError),
        (Split(-3), 1, MetadataIndexError),
        (Split("0"), 1, MetadataTypeError),  # type: ignore[arg-type]  # what users may do
        (Split(True), 1, MetadataTypeError),
        (Partial("prod"), 1, MetadataError),
        (Split(0), 2, MetadataError),
        ((Split(0), Split(1)), 1, MetadataError),
        ((Partial("sum"), Partial("max")), 2, MetadataError),
        ("split", 1, MetadataTypeError),
        ((0,), 1, MetadataTypeError),
        (((Split(0),),), 1, MetadataTypeError),
        (None, 1, MetadataTypeError),
        ((), 1, MetadataError),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(given, grid_dims, error):
    with pytest.raises(error):
        layout_of(given, grid_dims, MATRIX)


def test_bools_have_no_partial_sum_and_complex_numbers_no_partial_maximum():
    bools, complex_numbers = Meta.of((3,), "bool"), Meta.of((3,), "complex64")
    assert layout_of(td.partial("max"), 1, bools) == (Partial("max"),)
    assert layout_of(td.partial("sum"), 1, complex_numbers) == (Partial("sum"),)
    for meta, reduction in ((bools, "sum"), (complex_numbers, "min")):
        with pytest.raises(MetadataTypeError, match="not defined"):
            layout_of(td.partial(reduction), 1, meta)


def test_what_has_no_shape_yet_is_not_split():
    assert layout_of(td.broadcast, 1, None) == (BROADCAST,)
    with pytest.raises(MetadataError, match="not known yet"):
        layout_of(td.split(0), 1, None)


def test_a_number_of_numpy_may_be_the_axis_of_a_split():
    axis = td.split(np.int64(1)).axis  # type: ignore[arg-type]
    assert (axis, type(axis)) == (1, int)


def test_the_makers_of_atoms_refuse_what_is_none():
    with pytest.raises(MetadataTypeError):
        td.split("0")  # type: ignore[arg-type]
    with pytest.raises(MetadataError, match="'mean'"):
        td.partial("mean")
