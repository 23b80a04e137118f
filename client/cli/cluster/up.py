"""`tensord cluster up` and `add`: a daemon on each node of a Ray cluster, or of a simulated one."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ....interpreter.errors import MetadataError
from ....interpreter.types.device_names import kind_of
from ..drawing.figures import duration, plural
from ..line import options
from ..line.options import in_json, print_json
from .access import own_key, user_name, usual_directory, write_nodes_keys
from .progress import NodeProgress
from .reaching import check_installed, on_a_cluster, reached, timeout
from .status import show_nodes

if TYPE_CHECKING:
    from ....vm.cluster.specification import Specification

OURS: Final = frozenset({"node", "addresses", "security", "restore", "devices"})  # settings that the supervisor makes

cpus = click.option("--cpus", type=click.FloatRange(0), default=1.0, help="How many of Ray's CPUs each node reserves.")
wait = click.option(
    "--wait",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for Ray to have enough nodes.",
)


@click.command()
@on_a_cluster
@click.option("--nodes", type=click.IntRange(1), help="How many nodes. Default: all nodes of Ray.")
@click.option(
    "--device", "devices", multiple=True, help="A device of each node besides cpu:0; may be given several times."
)
@click.option("--config", type=options.FILE, help="A configuration file for each daemon; options override its values.")
@click.option("--memory", help="Memory of each daemon, such as 8GiB or 50%.")
@click.option("--ports", default="7700-7799", metavar="FIRST-LAST", help="Ports that daemons may use.")
@click.option("--directory", type=options.FILE, help="The directory on each node for keys and durable names.")
@click.option("--keys", type=options.FILE, help="The directory on this machine for this user's keys.")
@click.option("--plain", is_flag=True, help="Do not encrypt traffic between daemons.")
@click.option("--no-durable", is_flag=True, help="Keep no durable names.")
@click.option("--simulate", type=click.IntRange(1), metavar="N", help="Simulate N nodes on this machine, until Ctrl-C.")
@cpus
@wait
@timeout
@options.as_json
def up(
    *,
    name: str,
    ray: str | None,
    nodes: int | None,
    keys: Path | None,
    simulate: int | None,
    cpus: float,
    wait: float,
    timeout: float,
    **given: Any,
) -> None:
    """Start a daemon on each node of a Ray cluster, supervised from then on.

    Run it on a node of the cluster, or through `ray job submit`. It ends when all daemons serve; a supervisor on each
    node restarts its daemon from then on.

    Example: tensord cluster up --nodes 4 --device sim:0
    Example: tensord cluster up --simulate 2 --device sim:0
    """
    wanted = specification(name, given, simulated=simulate or 0)
    check_installed()
    if simulate:
        check_free(wanted)
    with ExitStack() as stack:
        if simulate:
            ray = stack.enter_context(simulated_ray(simulate, name))
        else:
            stack.enter_context(reached(ray, name))
        from ....vm.cluster.credentials import ClusterCredentials
        from ....vm.cluster.on_ray import operations
        from .asking import ask

        directory, client = keys or usual_directory(name), user_name()
        credentials = ClusterCredentials(clients={client: own_key(directory, client)})
        with NodeProgress() as on_progress:
            rows = operations.up(
                wanted,
                credentials,
                ask,
                nodes=simulate or nodes,
                cpus=cpus,
                wait=wait,
                timeout=timeout,
                on_progress=on_progress,
            )
            if simulate:
                stack.callback(operations.end, name)
        write_nodes_keys(directory, rows.values())
        tell_up(name, list(rows.values()), directory, on_progress.seconds, ray if simulate else None)
        if simulate:
            operations.await_end()


@click.command()
@on_a_cluster
@click.option("--nodes", type=click.IntRange(1), default=1, help="How many nodes to add.")
@click.option(
    "--keys", type=options.FILE, help="The directory of this user's keys; the new nodes' keys are added to it."
)
@cpus
@wait
@timeout
@options.as_json
def add(*, name: str, ray: str | None, nodes: int, keys: Path | None, cpus: float, wait: float, timeout: float) -> None:
    """Add nodes to a cluster that is up. They have the settings that `up` gave the others, and the first free names.

    Example: tensord cluster add --nodes 2
    """
    with reached(ray, name):
        from ....vm.cluster.on_ray import operations
        from .asking import ask

        wanted, credentials = operations.specification(name)
        with NodeProgress() as on_progress:
            rows = operations.add(
                wanted, credentials, ask, nodes=nodes, cpus=cpus, wait=wait, timeout=timeout, on_progress=on_progress
            )
        directory = keys or usual_directory(name)
        if directory.exists():
            write_nodes_keys(directory, operations.status(name))
        tell_up(name, list(rows.values()), directory, on_progress.seconds, None)


def specification(name: str, given: Mapping[str, Any], *, simulated: int) -> Specification:
    """The common settings of the nodes. StartError or MetadataError for one with which no daemon starts."""
    from ....vm.cluster.ports import parse_range
    from ....vm.cluster.specification import Specification, gpus_of
    from ....vm.service.settings.config import load

    settings = read(given["config"])
    if wrong := OURS & settings.keys() - {"devices"}:
        raise MetadataError(f"{given['config']}: {min(wrong)} is set for each node by its supervisor: leave it out")
    devices = with_a_cpu(tuple(given["devices"]) or tuple(settings.get("devices", ())))
    settings.pop("devices", None)
    if given["memory"] or simulated:
        settings["memory"] = given["memory"] or settings.get("memory", f"{60 / simulated:.3g}%")
    checked = load(None, {**settings, "devices": list(devices)})
    gpus_of(devices)  # their numbers
    directory = given["directory"]
    return Specification(
        cluster=name,
        devices=devices,
        ports=parse_range(given["ports"]),
        directory="" if directory is None else str(directory.expanduser().absolute()),
        settings=settings,
        encryption="none" if given["plain"] else "tls",
        durable=not given["no_durable"],
        grace=checked.grace,
    )


def check_free(wanted: Specification) -> None:
    """ClusterError if another cluster of that name has a node on this machine."""
    from ....vm.cluster.errors import ClusterError
    from ....vm.cluster.ports import of_this_machine

    if of_this_machine().is_taken(wanted.lock("node0")):
        raise ClusterError(
            f"a cluster {wanted.cluster!r} is already running on this machine: end it (Ctrl-C where it was started, or "
            "`tensord cluster down`), or give this one another --name"
        )


def with_a_cpu(devices: tuple[Any, ...]) -> tuple[Any, ...]:
    """The devices, with cpu:0 first unless one is a cpu device, from which durable names are written."""
    names = [one.get("name", "") if isinstance(one, Mapping) else one for one in devices]
    return devices if any(kind_of(str(name)) == "cpu" for name in names) else ("cpu:0", *devices)


def read(file: Path | None) -> dict[str, Any]:
    """The settings in a file; empty without one."""
    from ....vm.service.settings.config import read_file

    return {} if file is None else read_file(file.expanduser().absolute())


def tell_up(name: str, rows: Sequence[Mapping[str, Any]], directory: Path, seconds: float, ray: str | None) -> None:
    """Print the nodes, and the keys with which a client connects."""
    if in_json():
        answer = {"cluster": name, "nodes": rows, "keys": str(directory), "seconds": seconds}
        print_json(answer | ({"ray": ray} if ray else {}))
        return
    show_nodes(rows)
    first = rows[0]["address"]
    print(f"{plural(len(rows), 'node')} up in {duration(seconds)}. On a node: export TENSORD_KEYS={directory}")
    print(f'and tensord.connect_cluster(); elsewhere, with a copy: tensord.connect_cluster("{first}", keys=...)')
    if ray:
        print(f"Ctrl-C ends it. In other terminals: export RAY_ADDRESS={ray}", flush=True)


@contextmanager
def simulated_ray(nodes: int, name: str) -> Iterator[str]:
    """Simulate a cluster of Ray on this machine, which SIGTERM ends like Ctrl-C; yields its address."""
    from ....vm.cluster.on_ray.simulated import interrupted_by_sigterm, simulated

    # Again within, since Ray installs a handler of its own.
    with interrupted_by_sigterm(), simulated(nodes) as ray, reached(ray, name), interrupted_by_sigterm():
        yield ray
