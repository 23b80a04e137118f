"""The table of members: new and outdated announcements."""

from __future__ import annotations

from tensord.vm.cluster.members import Members


def entry(node="node1", incarnation=1, state="up"):
    return {"node": node, "incarnation": incarnation, "state": state}


def test_the_same_entry_again_is_no_news():
    members = Members()
    assert members.store(entry())
    version = members.version
    assert not members.store(entry())
    assert members.version == version


def test_an_earlier_incarnation_comes_too_late():
    members = Members()
    members.store(entry(incarnation=3))
    assert not members.store(entry(incarnation=2))
    assert members.table() == [entry(incarnation=3)]


def test_a_lost_node_keeps_its_incarnation_and_is_lost_once():
    members = Members()
    members.store(entry(incarnation=3))
    assert members.mark_lost("node1")
    assert not members.mark_lost("node1")
    assert members.table() == [entry(incarnation=3, state="lost")]
    assert members.store(entry(incarnation=3))


def test_who_has_left_is_not_lost_and_an_unknown_node_is_nothing():
    members = Members()
    members.store(entry(state="left"))
    assert not members.mark_lost("node1")
    assert not members.mark_lost("node7")


def test_the_table_is_in_the_order_of_names():
    members = Members()
    for node in ("node2", "node0", "node1"):
        members.store(entry(node))
    assert [one["node"] for one in members.table()] == ["node0", "node1", "node2"]
