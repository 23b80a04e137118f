"""Names of devices with and without a node."""

from __future__ import annotations

import pytest

from tensord.interpreter.types.device_names import counterpart, is_node, kind_of, node_of, on_node, own_name

ALONE = ["cpu:0", "sim:0"]
NODE = ["node0/cpu:0", "node0/sim:0"]


def test_a_name_has_a_node_and_a_kind():
    assert (node_of("node1/sim:0"), kind_of("node1/sim:0")) == ("node1", "sim")
    assert (node_of("sim:0"), kind_of("sim:0")) == ("", "sim")
    assert on_node("node1", "sim:0") == "node1/sim:0"
    assert on_node("", "sim:0") == "sim:0"


@pytest.mark.parametrize(
    ("given", "devices", "found"),
    [
        ("sim:0", ALONE, "sim:0"),
        ("sim:0", NODE, "node0/sim:0"),
        ("node0/sim:0", NODE, "node0/sim:0"),
        ("sim:7", NODE, "node0/sim:7"),  # not a device of the node
        ("node1/sim:0", NODE, "node1/sim:0"),
        ("node0/sim:0", ALONE, "node0/sim:0"),
        ("sim:0", [], "sim:0"),
    ],
)
def test_a_name_without_a_node_means_the_machines_own(given, devices, found):
    assert own_name(given, devices) == found


@pytest.mark.parametrize(
    ("given", "devices", "found"),
    [
        ("sim:0", NODE, "node0/sim:0"),
        ("node0/sim:0", NODE, "node0/sim:0"),
        ("node1/sim:0", NODE, "node0/sim:0"),
        ("node1/sim:0", ALONE, "sim:0"),
        ("sim:0", ALONE, "sim:0"),
        ("cuda:0", NODE, "node0/cpu:0"),
        ("node1/cuda:0", ALONE, "cpu:0"),
        ("None", NODE, "node0/cpu:0"),
    ],
)
def test_the_counterpart_of_a_device_is_the_one_most_like_it(given, devices, found):
    assert counterpart(given, devices) == found


@pytest.mark.parametrize("name", ["node0", "a", "10.0.0.5", "gpu-box_2", "n" * 63])
def test_names_of_nodes(name):
    assert is_node(name)


@pytest.mark.parametrize("name", ["", "a/b", "a:0", ".a", "-a", "a b", "nöde", "n" * 64, "a\n", None, 3, b"node0"])
def test_what_is_no_name_of_a_node(name):
    assert not is_node(name)
