"""Places supervisors in bundles of placement groups, which Ray spreads over its nodes; each node of a cluster has a
bundle.

A group has a bundle for each node of one request (STRICT_SPREAD). Nodes that are added later get another group, on
Ray nodes that have no node of the cluster. A bundle whose node has left is reused first. Placement is always
explicit, and `placement_group_capture_child_tasks` stays off, so Ray never runs users' tasks in these bundles.
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
LABEL: Final = "ray.io/node-id"  # Ray gives each of its nodes this label


class Bundle(NamedTuple):
    """A bundle: the name of its group, and its number there."""

    group: str
    number: int


def bundle_of(cpus: float, gpus: int) -> dict[str, float]:
    """The resources of Ray that one node needs."""
    return {"CPU": cpus, **({"GPU": float(gpus)} if gpus else {})}


def check_nodes(
    count: int, bundle: Mapping[str, float], nodes: Iterable[Mapping[str, Any]], taken: Iterable[str]
) -> None:
    """Raise ClusterError, which says what is lacking where, unless Ray has `count` free nodes with these resources."""
    occupied = set(taken)
    free = [node for node in nodes if node["Alive"] and node["NodeID"] not in occupied]
    if len(free) < count:
        also = f", {len(occupied)} are already in use" if occupied else ""
        raise ClusterError(
            f"too few nodes of Ray: {count} wanted, {len(free)} free{also}: start more with `ray start "
            "--address=...`, ask for fewer (--nodes), or wait for them (--wait)"
        )
    lacking = [
        (node, name) for node in free for name, least in bundle.items() if node["Resources"].get(name, 0.0) < least
    ]
    if len(free) - len({node["NodeID"] for node, _ in lacking}) < count:
        shortages = ", ".join(
            f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}) has {node['Resources'].get(name, 0.0):g} "
            f"{name}"
            for node, name in lacking
        )
        raise ClusterError(
            f"too few nodes have what the devices need, {described(bundle)} each: {shortages}; choose other devices "
            "(--device), fewer CPUs (--cpus) or fewer nodes (--nodes), or give `ray start` larger numbers (--num-gpus)"
        )


def described(bundle: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())


def place(namespace: str, count: int, bundle: Mapping[str, float], taken: Sequence[str], seconds: float) -> str:
    """Let Ray make a group of `count` bundles. Returns its name. ClusterError, and no group, if there is no room."""
    name = f"{namespace}/{next(number for number in range(1 << 20) if not is_group(f'{namespace}/{number}'))}"
    other_nodes = [{LABEL: f"!in({','.join(taken)})"}] * count if taken else None
    group = placement_group(
        [dict(bundle)] * count,
        strategy="STRICT_SPREAD",
        name=name,
        lifetime="detached",
        bundle_label_selector=other_nodes,
    )
    if group.wait(seconds):
        return name
    remove_placement_group(group)
    raise ClusterError(
        f"Ray has no room for {count} nodes with {described(bundle)} each within {seconds:g} s: `ray status` shows "
        "what is in use; end some of it, ask for less (--cpus), or wait longer (--wait)"
    )


def is_group(name: str) -> bool:
    return group_named(name) is not None


def group_named(name: str) -> PlacementGroup | None:
    try:
        return get_placement_group(name)
    except ValueError:
        return None


def strategy(bundle: Bundle) -> PlacementGroupSchedulingStrategy:
    """The strategy that schedules an actor in this bundle, and none of its tasks."""
    group = get_placement_group(bundle.group)
    return PlacementGroupSchedulingStrategy(group, bundle.number, placement_group_capture_child_tasks=False)


def groups(namespace: str) -> dict[str, int]:
    """The groups of a cluster, each with its number of bundles."""
    rows = ray.util.placement_group_table().values()
    existing = [row for row in rows if row["name"].startswith(f"{namespace}/") and row["state"] != REMOVED]
    return {row["name"]: len(row["bundles"]) for row in existing}


def unused(namespace: str, used: Iterable[Bundle]) -> list[Bundle]:
    """The bundles without a supervisor."""
    bundles = [Bundle(name, index) for name, count in groups(namespace).items() for index in range(count)]
    taken = set(used)
    return [bundle for bundle in bundles if bundle not in taken]


def remove_groups(namespace: str, used: Iterable[Bundle] = ()) -> None:
    """Give back the groups that have none of the `used` bundles."""
    needed = {bundle.group for bundle in used}
    for name in groups(namespace):
        group = group_named(name)
        if name not in needed and group is not None:
            remove_placement_group(group)


def free_names(count: int, taken: Iterable[str]) -> list[str]:
    """The first `count` node names that are not taken."""
    others = set(taken)
    names = (node_name(index) for index in range(len(others) + count))
    return [name for name in names if name not in others][:count]
