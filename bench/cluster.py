"""A cluster session on the daemons of two nodes on loopback, over tcp with CURVE keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tensord as td
from examples.own_daemon import own_daemon
from tensord.interpreter.wire import keys
from tensord.interpreter.wire.members import member_of

from .echo import echoing
from .latency import percentiles
from .measure import DAEMON_CONFIG, Row, Settings, clocked, compare, median
from .small_ops import LENGTH, chain

NODES = ("node0", "node1")
REMOTE = "node1/cpu:0"
TOKEN = "b" * 40


def measure(settings: Settings) -> list[Row]:
    """The rows of a cluster session; none without a daemon."""
    if settings.baseline_only:
        return []
    with ExitStack() as stack:
        addresses, pair = stack.enter_context(two_nodes())
        local = stack.enter_context(td.connect(addresses[0]))
        session = stack.enter_context(td.connect_cluster(addresses[0], keys=pair))
        return [
            measure_chain(settings, local, session),
            *measure_one_op(settings, session),
            measure_opening(settings, addresses[0], pair),
        ]


def measure_chain(settings: Settings, local: td.Session, session: td.Session) -> Row:
    """A chain of ops on the remote node's device, against the same chain on the local daemon, over ipc."""
    count = settings.size(10_000, 500)

    def run_on(where: td.Session, device: str) -> Callable[[], float]:
        def run() -> float:
            operands = [where.asarray(np.full(LENGTH, 1e-3, np.float32), device=device) for _ in range(2)]
            where.sync()
            return clocked(lambda: where.fetch(chain(operands, count)), per=count)

        return run

    runs = compare(settings, run_on(session, REMOTE), run_on(local, "cpu:0"), "us")
    return Row(
        "chain on a remote node", "us", min(runs["ours"]), min(runs["baseline"]), 1.3, 1.05, "ratio", "ipc", runs=runs
    )


def measure_one_op(settings: Settings, session: td.Session) -> Iterator[Row]:
    """`(x + y).numpy()` on the remote node's device, in turns with echoes over tcp with CURVE."""
    tensor = session.asarray(np.ones(LENGTH, np.float32), device=REMOTE)
    with echoing(curve=True) as echo:

        def ours() -> object:
            return (tensor + tensor).numpy()

        works: dict[str, Callable[[], object]] = {"ours": ours, "baseline": echo}
        runs = percentiles(works, settings.runs, settings.size(2_000, 50))
    of = runs[50]
    yield Row(
        "one op, remote, median", "us", median(of, "ours"), median(of, "baseline"), 2.2, 1.6, "ratio", "echo", runs=of
    )


def measure_opening(settings: Settings, address: str, pair: Path) -> Row:
    """The time from opening a cluster session until a value of the remote node is fetched; the baseline does not
    fetch it."""

    def opened(*, used: bool) -> float:
        def work() -> None:
            with td.connect_cluster(address, keys=pair) as session:
                if used:
                    session.asarray([1.0], device=REMOTE).numpy()

        return clocked(work)

    runs = compare(settings, lambda: opened(used=True), lambda: opened(used=False), "s")
    note = "ours: with one value of the other node; the baseline is the session alone, and both are closed"
    return Row(
        "cluster session opens",
        "s",
        median(runs, "ours"),
        median(runs, "baseline"),
        0.2,
        0.05,
        baseline_name="alone",
        note=note,
        runs=runs,
    )


@contextmanager
def two_nodes(
    devices: str = DAEMON_CONFIG, cluster: str = "", nodes: Sequence[str] = NODES
) -> Iterator[tuple[Sequence[str], Path]]:
    """The ipc addresses of the daemons of two nodes, or of `nodes`, which know each other, and the client's keys.

    `devices`, `cluster`: parts of their configuration.
    """
    with TemporaryDirectory(prefix="tensord-") as directory, ExitStack() as stack:
        home = Path(directory)
        public, _ = keys.create(home / "client", "bench")
        allowed = home / "allowed"
        allowed.write_bytes(keys.read_public(public) + b" bench\n")
        addresses, members = [], []
        for node in nodes:
            server, secret = keys.create(home / node, "server")
            security = f'[security]\nserver_secret = "{secret}"\nallow = "{allowed}"\n'
            config = f'{devices}\nnode = "{node}"\n{security}{cluster}'
            daemon = stack.enter_context(own_daemon(config=config, also=["tcp://127.0.0.1:0"]))
            addresses.append(daemon.address)
            with td.connect(daemon.address) as session:
                (row,) = session._core.answers.query("members")
            key = keys.read_public(server).decode()
            members.append(member_of(row)._replace(address=daemon.addresses[1], key=key).row())
        for address in addresses:
            with td.connect(address) as session:
                session._core.answers.query("join", members, TOKEN)
        yield addresses, home / "client"
