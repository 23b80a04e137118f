"""Placements: grids of devices of one kind."""

from __future__ import annotations

import pytest

import tensord as td
from tensord.interpreter.errors import MetadataError

from ...each_case import each_case

GRID = [["sim:0", "sim:1"], ["sim:2", "sim:3"], ["sim:4", "sim:5"]]


def test_a_list_is_a_grid_of_one_dimension():
    found = td.placement(["sim:0", "sim:2"])
    assert (found.names, found.grid, found.kind) == (("sim:0", "sim:2"), (2,), "sim")
    assert str(found) == "placement(['sim:0', 'sim:2'])"


def test_a_list_of_lists_is_one_of_two_whose_names_go_row_by_row():
    found = td.placement(GRID)
    assert (found.grid, found.rows) == ((3, 2), tuple(map(tuple, GRID)))
    assert found.names == tuple(f"sim:{n}" for n in range(6))
    assert str(found) == f"placement({GRID})"


def test_placements_are_compared_by_value():
    assert td.placement(["sim:0", "sim:1"]) == td.placement(("sim:0", "sim:1"))
    assert len({td.placement(["sim:0"]), td.placement(["sim:0"]), td.placement([["sim:0"]])}) == 2
    assert td.placement(["sim:0", "sim:1"]) != td.placement(["sim:1", "sim:0"])


def test_a_placement_is_one_of_itself():
    found = td.placement(GRID)
    assert td.placement(found) is found


def test_a_machine_may_stand_in_front():
    assert td.placement(["node1/sim:0", "node2/sim:0"]).kind == "sim"


@each_case(
    "devices",
    [
        [],
        [[]],
        [[], []],
        ["sim:0", "sim:0"],
        [["sim:0"], ["sim:0"]],
        ["sim:0", "cpu:0"],
        ["node1/sim:0", "node1/cpu:0"],
        [["sim:0", "sim:1"], ["sim:2"]],
        [["sim:0"], "sim:1"],
        [[["sim:0"]]],
        "sim:0",
        ["sim"],
        ["sim:"],
        ["sim:x"],
        ["sim:0\n"],
        ["/sim:0"],
        ["a/b/sim:0"],
        [0],
        [None],
        {"sim:0"},
        None,
        7,
    ],
)
def test_what_is_no_grid_of_devices_of_one_kind_is_refused(devices):
    with pytest.raises(MetadataError):
        td.placement(devices)
