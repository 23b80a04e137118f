"""Placement of supervisors: bundles of placement groups, which Ray spreads over its nodes, one for each node of ours.

A group has a bundle for each node of one request (STRICT_SPREAD); nodes that are added later get a group of their own,
away from the Ray nodes that are taken. A bundle whose node has left is reused first. Placement is always explicit, and
`placement_group_capture_child_tasks` stays off, so that Ray never runs users' tasks in these bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import ray
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ..errors import ClusterError
from ..specification import node_name

REMOVED: Final = "REMOVED"
LABEL: Final = "ray.io/node-id"  # Ray labels each of its nodes with that


class Bundle(NamedTuple):
    """A bundle by the name of its group and its place there."""

    group: str
    number: int


def bundle_of(cpus: float, gpus: int) -> dict[str, float]:
    """The resources of Ray that one node takes."""
    return {"CPU": cpus, **({"GPU": float(gpus)} if gpus else {})}


def check_nodes(
    count: int, bundle: Mapping[str, float], nodes: Iterable[Mapping[str, Any]], taken: Iterable[str]
) -> None:
    """ClusterError unless there are so many free nodes of Ray with these resources; it says which lack what."""
    occupied = set(taken)
    free = [one for one in nodes if one["Alive"] and one["NodeID"] not in occupied]
    if len(free) < count:
        also = f", {len(occupied)} have one already" if occupied else ""
        raise ClusterError(
            f"too few nodes of Ray: {count} wanted, {len(free)} free{also}: start more with `ray start "
            "--address=...`, ask for fewer (--nodes), or wait for them (--wait)"
        )
    lacking = [(one, name) for one in free for name, least in bundle.items() if one["Resources"].get(name, 0.0) < least]
    if len(free) - len({one["NodeID"] for one, _ in lacking}) < count:
        who = ", ".join(
            f"{one['NodeManagerHostname']} ({one['NodeManagerAddress']}) has {one['Resources'].get(name, 0.0):g} {name}"
            for one, name in lacking
        )
        raise ClusterError(
            f"too few nodes have what the devices need, {described(bundle)} each: {who}; name other devices "
            "(--device), fewer CPUs (--cpus) or fewer nodes (--nodes), or state more to `ray start` (--num-gpus)"
        )


def described(bundle: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())


def place(namespace: str, count: int, bundle: Mapping[str, float], taken: Sequence[str], seconds: float) -> str:
    """Have Ray make a group of so many bundles; its name. ClusterError, and no group, if there is no room."""
    name = f"{namespace}/{next(number for number in range(1 << 20) if not is_group(f'{namespace}/{number}'))}"
    away = [{LABEL: f"!in({','.join(taken)})"}] * count if taken else None
    made = placement_group(
        [dict(bundle)] * count, strategy="STRICT_SPREAD", name=name, lifetime="detached", bundle_label_selector=away
    )
    if made.wait(seconds):
        return name
    remove_placement_group(made)
    raise ClusterError(
        f"Ray has no room for {count} nodes with {described(bundle)} each within {seconds:g} s: `ray status` shows "
        "what is taken; end what has it, take less (--cpus), or wait longer (--wait)"
    )


def is_group(name: str) -> bool:
    return group_named(name) is not None


def group_named(name: str) -> PlacementGroup | None:
    try:
        return get_placement_group(name)
    except ValueError:
        return None


def strategy(bundle: Bundle) -> PlacementGroupSchedulingStrategy:
    """Into that bundle, and nothing else with it."""
    found = get_placement_group(bundle.group)
    return PlacementGroupSchedulingStrategy(found, bundle.number, placement_group_capture_child_tasks=False)


def groups(namespace: str) -> dict[str, int]:
    """The groups of a cluster, with how many bundles each has."""
    rows = ray.util.placement_group_table().values()
    ours = [row for row in rows if row["name"].startswith(f"{namespace}/") and row["state"] != REMOVED]
    return {row["name"]: len(row["bundles"]) for row in ours}


def unused(namespace: str, used: Iterable[Bundle]) -> list[Bundle]:
    """Bundles in which no supervisor is."""
    there = [Bundle(name, index) for name, count in groups(namespace).items() for index in range(count)]
    taken = set(used)
    return [one for one in there if one not in taken]


def remove_groups(namespace: str, used: Iterable[Bundle] = ()) -> None:
    """Give back the groups in which no supervisor is."""
    needed = {one.group for one in used}
    for name in groups(namespace):
        found = group_named(name)
        if name not in needed and found is not None:
            remove_placement_group(found)


def free_names(count: int, taken: Iterable[str]) -> list[str]:
    """The first names of nodes that no node has."""
    others = set(taken)
    names = (node_name(index) for index in range(len(others) + count))
    return [name for name in names if name not in others][:count]
