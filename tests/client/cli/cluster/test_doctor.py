"""The doctor's findings on a cluster, from rows that supervisors report."""

from __future__ import annotations

from tensord.client.cli.cluster.doctor import (
    check_clocks,
    check_devices,
    check_links,
    check_members,
    check_metrics,
    check_nodes,
    check_ray_nodes,
    check_versions,
)
from tensord.client.cli.doctor.findings import Level


def row(node, **changes):
    members = [{"node": name, "state": "up", "incarnation": 1} for name in ("node0", "node1")]
    usual = {
        "node": node,
        "up": True,
        "state": "serving",
        "wrong": "",
        "failures": 0,
        "incarnation": 1,
        "version": "1",
        "ray": "2",
        "python": "3",
        "ray_node": f"ray of {node}",
        "members": members,
    }
    return usual | changes


def levels(findings):
    return [finding.level for finding in findings]


BOTH = [row("node0"), row("node1")]


def test_two_nodes_that_are_well():
    found = [*check_nodes(BOTH), *check_versions(BOTH), *check_ray_nodes(BOTH), *check_members(BOTH)]
    assert {one.level for one in found} == {Level.OK}


def test_a_node_that_does_not_serve_is_wrong_and_one_that_ended_lately_is_doubtful():
    (found,) = check_nodes([row("node0", up=False, state="failing", wrong="SIGSEGV ended it")])
    assert (found.check, found.level, found.message) == ("node0", Level.FAIL, "failing: SIGSEGV ended it")
    assert levels(check_nodes([row("node0", failures=1), row("node1")])) == [Level.WARN, Level.OK]


def test_versions_that_differ_are_named():
    wrong = [one for one in check_versions([row("node0"), row("node1", ray="3")]) if one.level is Level.FAIL]
    assert [one.message for one in wrong] == ["differs: node0 has 2, node1 has 3"]


def test_two_of_our_nodes_on_one_of_rays():
    (found,) = check_ray_nodes([row("node0", ray_node="x"), row("node1", ray_node="x")])
    assert (found.level, found.message) == (Level.WARN, "node0, node1 are on one node of Ray")


def test_a_node_that_others_see_otherwise():
    stale = row("node0", members=[{"node": "node0", "state": "up", "incarnation": 1}])
    (found,) = check_members([stale, row("node1")])
    assert found.message == "node1 is up, incarnation 1, and node0 does not know it"


def test_a_lost_device_is_named():
    devices = {"node0/cpu:0": {"lost": ""}, "node0/cuda:0": {"lost": "a sticky error"}}
    (found,) = check_devices({"node0": {"devices": devices}})
    assert found.message == "node0/cuda:0 is lost: a sticky error"


def test_ports_that_are_not_reached_and_slow_ones():
    found: dict[tuple[str, str, str], float | str]
    found = {("node0", "node1", "h:7700"): 0.001, ("node1", "node0", "h:7701"): "Connection refused"}
    assert levels(check_links(found)) == [Level.FAIL, Level.OK]
    assert levels(check_links({("node0", "node1", "h:7700"): 0.2})) == [Level.WARN]


def test_clocks_that_differ_by_more_than_the_measurement():
    (found,) = check_clocks({"node0": (0.0, 0.001), "node1": (-90.0, 0.001)})
    assert found.message == "node1's clock is 1 min 30 s behind this one"
    assert levels(check_clocks({"node1": (3.0, 5.0)})) == [Level.NOTE]
    assert levels(check_clocks({"node1": (0.001, 0.001)})) == [Level.OK]


def test_where_metrics_are_and_what_a_ray_without_them_lacks():
    (found,) = check_metrics(["a:8080", "b:8080"])
    assert (found.level, found.message) == (Level.OK, "for Prometheus at http://a:8080/metrics, http://b:8080/metrics")
    (found,) = check_metrics([])
    assert (found.level, found.advice[:27]) == (Level.NOTE, 'pip install "ray[default]" ')
