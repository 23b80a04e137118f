"""Groups of names that are written together: groups with a common member are merged, obsolete ones are dropped."""

from __future__ import annotations

from tensord.vm.durability.groups import PRUNE_MARGIN, Groups


def test_groups_with_a_member_in_common_are_one():
    groups = Groups()
    groups.join({"a", "b"})
    groups.join({"c", "d"})
    assert groups.join({"b", "c"}) == {"a", "b", "c", "d"}
    assert [group.names for group in groups.containing({}, ["a"], {"a", "b", "c", "d"})] == [{"a"}]


def test_a_name_that_was_taken_away_is_among_those_of_its_group():
    groups = Groups()
    groups.join({"old", "new", "other"})
    (group,) = groups.containing({}, ["new"], {"new", "other"})
    assert group.names == {"old", "new"}
    assert groups.names_not_in({"new", "other"}) == {"old"}
    groups.remove(group)
    assert groups.containing({}, ["new", "old", "other"], {"new"}) == []


def test_of_a_large_group_what_is_neither_durable_nor_written_is_forgotten():
    groups = Groups()
    group = groups.join({f"step {n}" for n in range(2 * PRUNE_MARGIN)} | {"old", "new"})
    groups.prune(group, ["new"], [], ["old"])
    assert group == {"old", "new"}
