"""Groups of durable values that changed together, so that a generation has all changes of an atomic block, or none.

A durable name whose value is not computed when names are written keeps its last written value. The other names that the
same block has changed must then keep their last written values, too, and names that the block has removed must stay;
otherwise the disk would have half of the block's changes.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from ..model.tensor import VmTensor

Member: TypeAlias = str | VmTensor  # a name that was bound or removed, or a tensor that was written in place
PRUNE_MARGIN: Final = 64  # a group is pruned if its members exceed twice the number of durable names by this many


class ChangedGroup(NamedTuple):
    """Members that were changed together, and their present and removed names."""

    members: set[Member]
    names: set[str]


class Groups:
    """The groups of one machine. Groups with a common member are one group."""

    def __init__(self) -> None:
        self._group_of: dict[Member, set[Member]] = {}

    def join(self, changed: Iterable[Member]) -> set[Member]:
        """Join members that were changed together; return their whole group."""
        members = set(changed)
        found = {id(group): group for member in members if (group := self._group_of.get(member)) is not None}
        largest = max(found.values(), key=len, default=set[Member]())
        for group in (members, *found.values()):
            if group is not largest:
                largest |= group
                self._group_of.update(dict.fromkeys(group, largest))
        return largest

    def prune(
        self,
        group: set[Member],
        durable: Collection[str],
        tensors: Collection[VmTensor],
        written: Collection[str],
    ) -> None:
        """Forget outdated members of a group once they are the majority.

        `tensors`: those with a durable name. Outdated are all other tensors, and names that are neither durable nor
        `written`.
        """
        if len(group) > PRUNE_MARGIN + 2 * (len(durable) + len(tensors) + len(written)):
            outdated = [
                one
                for one in group
                if (one not in durable and one not in written if isinstance(one, str) else one not in tensors)
            ]
            for member in outdated:
                group.remove(member)
                del self._group_of[member]

    def remove(self, group: ChangedGroup) -> None:
        """Remove a group that is being written."""
        for member in group.members:
            del self._group_of[member]

    def names_not_in(self, durable: Container[str]) -> set[str]:
        """The names in groups that are no longer durable."""
        return {one for one in self._group_of if isinstance(one, str) and one not in durable}

    def containing(
        self, values: Mapping[str, VmTensor], routines: Iterable[str], durable: Container[str]
    ) -> list[ChangedGroup]:
        """The groups that contain these names, tensors or routines, with their names that are no longer durable."""
        groups: dict[int, ChangedGroup] = {}
        current: list[tuple[str, Member]] = [*values.items(), *((name, name) for name in routines)]
        for name, value in current:
            for member in (name, value):
                members = self._group_of.get(member)
                if members is not None:
                    groups.setdefault(id(members), ChangedGroup(members, set())).names.add(name)
        for group in groups.values():
            group.names.update(one for one in group.members if isinstance(one, str) and one not in durable)
        return list(groups.values())
