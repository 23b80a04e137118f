"""`python -m bench.supervisors`: how soon a cluster of two simulated nodes is up, and how soon a loss is noticed.

It needs the extra `cluster`, and takes half a minute for each run, so `python -m bench` does not include it. A
notice is the time from the kill until the other node's daemon answers that the node is lost, or in a later
incarnation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from tensord.client.cli.cluster.asking import ask

from .measure import Row, median
from .report import print_table

RUNS = 3
PAUSE = 0.005  # seconds between two requests
TIMEOUT = 60.0
COMMAND = ["cluster", "up", "--simulate", "2", "--device", "cpu:0", "--device", "sim:0", "--json"]

Nodes = Mapping[str, Mapping[str, Any]]


@contextmanager
def two_nodes() -> Iterator[tuple[float, Nodes]]:
    """A cluster: the seconds of `cluster up` on a running Ray, and a function that returns the nodes' rows."""
    with tempfile.TemporaryDirectory(prefix="td-", ignore_cleanup_errors=True) as home:
        environment = dict(os.environ)
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            environment[name] = f"{home}/{name}"
            Path(environment[name]).mkdir(mode=0o700)
        command = [sys.executable, "-m", "tensord.client.cli", *COMMAND]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield told["seconds"], {row["node"]: row for row in told["nodes"]}
        finally:
            process.terminate()
            process.communicate()


def seen(nodes: Nodes) -> tuple[str, int]:
    """The state and the incarnation of node1, according to node0's daemon."""
    (found,) = [one for one in ask(nodes["node0"]["ipc"], "members") if one["node"] == "node1"]
    return found["state"], found["incarnation"]


def notice(nodes: Nodes, pid: int) -> float:
    """Seconds from the kill of a process until node0's daemon has noticed it."""
    before = seen(nodes)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while seen(nodes) == before:
        assert time.perf_counter() < began + TIMEOUT
        time.sleep(PAUSE)
    return time.perf_counter() - began


def await_up(nodes: Nodes) -> None:
    """Wait until node1 serves again, in its next incarnation."""
    deadline = time.perf_counter() + TIMEOUT
    while seen(nodes)[0] != "up":
        assert time.perf_counter() < deadline
        time.sleep(PAUSE)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def measure(runs: int = RUNS) -> list[Row]:
    """The rows, in seconds: medians over `runs` clusters."""
    up = Row("cluster up, 2 nodes", "s", None, None, 15.0, 5.0, baseline_name="")
    daemon = Row("notice of a killed daemon", "s", None, None, 2.0, 0.5, baseline_name="")
    raylet = Row("notice of a killed raylet", "s", None, None, 4.0, 2.0, baseline_name="")
    raylet.note = "health checks every 0.5 s; the supervisor's last message comes before one fails"
    for row in (up, daemon, raylet):
        row.runs = {"ours": []}
    for _ in range(runs):
        with two_nodes() as (seconds, nodes):
            up.runs["ours"].append(seconds)
            supervisor = nodes["node1"]["supervisor"]
            daemon.runs["ours"].append(notice(nodes, nodes["node1"]["pid"]))
            await_up(nodes)
            raylet.runs["ours"].append(notice(nodes, parent_of(supervisor)))
    for row in (up, daemon, raylet):
        row.ours = median(row.runs, "ours")
    return [up, daemon, raylet]


if __name__ == "__main__":
    print_table(measure(), Console(width=100))
