"""`tensord cluster doctor`: checks Ray, and whether the nodes are alike, reach each other, and have the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from ....interpreter.errors import TensordError
from ..doctor.doctor import show_findings
from ..doctor.findings import CheckResult, Level, fail, guarded, installed, listed, note, ok, warn
from ..drawing.figures import duration, plural
from ..line import options
from ..line.options import tell
from .reaching import EXTRA, on_a_cluster, reached

MAX_SKEW: Final = 1.0  # seconds by which clocks may differ: traces correct for that, people who compare logs do not
SLOW_CONNECTION: Final = 0.05  # seconds for a connection between two nodes

Rows = Sequence[Mapping[str, Any]]


@click.command()
@on_a_cluster
@options.as_json
def doctor(*, name: str, ray: str | None) -> None:
    """Find problems of a cluster, and say what to do. Exits with 1 if a check fails; warnings do not count.

    Example: tensord cluster doctor
    """
    findings = list(examine(name, ray))
    tell([finding._asdict() for finding in findings], show_findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise click.exceptions.Exit(1)


def examine(name: str, ray: str | None) -> Iterator[CheckResult]:
    """All findings, as far as the checks can proceed."""
    version = installed("ray")
    if version is None:
        yield fail("ray", "is not installed here", EXTRA)
        return
    yield ok("ray", version)
    try:
        with reached(ray, name):
            yield ok("ray cluster", "it is running, and asks for a token where it can be reached from other machines")
            yield from examine_cluster(name)
    except TensordError as error:
        what, _, advice = error.message.partition(": ")
        yield fail("cluster", what, advice)


def examine_cluster(name: str) -> Iterator[CheckResult]:
    from ....vm.cluster.on_ray import operations, reading

    rows = operations.status(name)
    alive = [row for row in rows if row.get("up")]
    checks: list[tuple[str, Callable[[], Iterator[CheckResult]]]] = [
        ("nodes", lambda: check_nodes(rows)),
        ("versions", lambda: check_versions(alive)),
        ("places", lambda: check_ray_nodes(alive)),
        ("members", lambda: check_members(alive)),
        ("devices", lambda: check_devices(reading.statuses(name))),
        ("links", lambda: check_links(reading.connections(name, alive))),
        ("clocks", lambda: check_clocks(reading.clocks(name))),
        ("metrics", lambda: check_metrics(reading.scraped())),
    ]
    for what, check in checks:
        yield from guarded(what, check)


def check_nodes(rows: Rows) -> Iterator[CheckResult]:
    """Check that every node serves, and that its daemon has not failed lately."""
    for row in rows:
        if not row.get("up"):
            advice = f"tensord cluster logs --node {row['node']}; `ray status` shows the nodes of Ray"
            yield fail(row["node"], f"{row['state']}: {row.get('wrong') or 'its daemon does not serve yet'}", advice)
        elif row["failures"]:
            often = f"its daemon has ended unexpectedly {plural(row['failures'], 'time')} lately"
            yield warn(row["node"], often, f"tensord cluster logs --node {row['node']}")
    if rows and all(row.get("up") for row in rows):
        yield ok("nodes", f"{plural(len(rows), 'daemon')} {'serves' if len(rows) == 1 else 'serve'}")


def check_versions(rows: Rows) -> Iterator[CheckResult]:
    """Check that tensord, Ray and Python are the same everywhere."""
    for what in ("version", "ray", "python"):
        versions = {row[what] for row in rows}
        label = "tensord" if what == "version" else what
        if len(versions) > 1:
            text = ", ".join(f"{row['node']} has {row[what]}" for row in rows)
            yield fail(label, f"differs: {text}", "install the same version on all nodes")
        elif versions:
            yield ok(label, f"{versions.pop()} on all nodes")


def check_ray_nodes(rows: Rows) -> Iterator[CheckResult]:
    """Check that no two nodes are on one node of Ray."""
    for row in rows:
        beside = [one["node"] for one in rows if one["ray_node"] == row["ray_node"]]
        if len(beside) > 1 and beside[0] == row["node"]:
            yield warn("places", f"{listed(beside)} are on one node of Ray", f"tensord cluster drain {beside[-1]}")


def check_members(rows: Rows) -> Iterator[CheckResult]:
    """Check that each node knows the state of the others."""
    now = {row["node"]: row["incarnation"] for row in rows}
    wrong = False
    for row in rows:
        seen = {one["node"]: one for one in row["members"]}
        for node, incarnation in now.items():
            entry = seen.get(node)
            if entry is None or entry["state"] != "up" or entry["incarnation"] != incarnation:
                wrong = True
                what = (
                    "does not know it"
                    if entry is None
                    else f"lists it as {entry['state']}, incarnation {entry['incarnation']}"
                )
                advice = "run the command again in a moment; if the problem persists: tensord cluster restart"
                yield warn("members", f"{node} is up, incarnation {incarnation}, and {row['node']} {what}", advice)
    if not wrong and rows:
        yield ok("members", "the tables of members are correct on every node")


def check_devices(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Check that no device is lost."""
    lost = [
        (node, name, one["lost"])
        for node, row in statuses.items()
        for name, one in row["devices"].items()
        if one["lost"]
    ]
    for node, name, why in lost:
        yield fail("devices", f"{name} is lost: {why}", f"tensord cluster restart --node {node}")
    if statuses and not lost:
        yield ok("devices", f"all {sum(len(row['devices']) for row in statuses.values())} of them work")


def check_links(connections: Mapping[tuple[str, str, str], float | str]) -> Iterator[CheckResult]:
    """Check that each node reaches the ports of each other one."""
    times = [one for one in connections.values() if isinstance(one, float)]
    for (here, there, address), result in connections.items():
        if isinstance(result, str):
            advice = f"open the port for {here} in {there}'s firewall, or name other ports (--ports)"
            yield fail("links", f"{here} does not reach {there} at {address}: {result}", advice)
    if times:
        slowest = max(times)
        text = f"{plural(len(times), 'connection')} between nodes, the slowest after {duration(slowest)}"
        yield (
            ok("links", text)
            if slowest < SLOW_CONNECTION
            else warn("links", text, "transfers cannot be faster than the network: check it between these nodes")
        )


def check_clocks(offsets: Mapping[str, tuple[float, float]]) -> Iterator[CheckResult]:
    """Check how far the nodes' clocks are from this machine's, with the uncertainty of the measurement."""
    far = {node: offset for node, (offset, unsure) in offsets.items() if abs(offset) - unsure > MAX_SKEW}
    for node, offset in far.items():
        ahead = "ahead of" if offset > 0 else "behind"
        yield warn("clocks", f"{node}'s clock is {duration(abs(offset))} {ahead} this one", "run NTP or chrony there")
    if offsets and not far:
        most = max(abs(offset) + unsure for offset, unsure in offsets.values())
        yield (
            note("clocks", f"within {duration(most)} of this machine's")
            if most > MAX_SKEW
            else ok("clocks", f"within {duration(most)} of this machine's")
        )


def check_metrics(addresses: Sequence[str]) -> Iterator[CheckResult]:
    """Find the address at which Ray serves the nodes' metrics."""
    if addresses:
        yield ok("metrics", f"for Prometheus at {listed([f'http://{address}/metrics' for address in addresses])}")
    else:
        yield note("metrics", "Ray exports no metrics", 'pip install "ray[default]" on all nodes, and restart Ray')
